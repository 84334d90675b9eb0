//! What became of a key: told to its own tenant, and to nobody else.

use std::sync::Arc;

use selfsame_test_postgres::Server;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fair_share::flood;
use crate::harness::{Answer, Gate, Gateway, Ledger, Then, eventually, reply};
use crate::postgres;

const PATH: &str = "/.well-known/idempotency/status";
const ALICE: &str = "Bearer alice";

/// What `caller` is told of a key that was sent with the request `route`.
fn ask(gateway: &Gateway, caller: &str, key: &str, route: &str) -> Answer {
    let target = format!("{PATH}?route={}", route.replace(' ', "%20"));
    gateway.request("GET", &target).key(key).header("Authorization", caller).send()
}

fn told(gateway: &Gateway, key: &str, route: &str) -> Value {
    let answer = ask(gateway, ALICE, key, route);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn unknown() -> Value {
    json!({ "state": "unknown", "attempts": 0, "first_seen": null, "expires_at": null })
}

#[test]
fn each_state_is_told_and_nothing_is_done() {
    let ledger = Ledger::start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| match effect.target.as_str() {
        "/gated" => {
            at_gate.pass();
            reply(client, 201, &[], "done")
        }
        "/lost" => Then::Close,
        "/busy" => reply(client, 503, &[], "later"),
        _ => reply(client, 201, &[], "answered-secret"),
    });
    let settings = "status = true\n[[route]]\nmatch = \"POST /short\"\nretention = \"1s\"\n\
        allow_short_retention = true\nremember = \"1h\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let post = |target: &str, key: &str| {
        gateway.post(target).key(key).header("Authorization", ALICE).json("{}")
    };

    assert_eq!(told(&gateway, "done", "POST /done"), unknown());
    assert_eq!(post("/done", "done").send().status, 201);
    let done = told(&gateway, "done", "POST /done");
    assert_eq!((&done["state"], &done["attempts"]), (&json!("completed"), &json!(1)));
    assert_eq!(done["original_status"], 201);
    for moment in ["first_seen", "expires_at"] {
        assert!(done[moment].as_str().is_some_and(|text| text.ends_with('Z')), "{done}");
    }
    assert!(!done.to_string().contains("secret"));
    // Quoted, it is the same key.
    assert_eq!(told(&gateway, "\"done\"", "POST /done"), done);

    post("/busy", "failed").send();
    assert_eq!(told(&gateway, "failed", "POST /busy")["state"], "failed");
    post("/lost", "held").send().refused("upstream-failed");
    let held = told(&gateway, "held", "POST /lost");
    assert_eq!((&held["state"], &held["expires_at"]), (&json!("held"), &Value::Null));
    let running = post("/gated", "running").begin();
    eventually("it runs", || {
        (told(&gateway, "running", "POST /gated")["state"] == "in_progress").then_some(())
    });
    gate.open();
    drop(running);
    assert_eq!(post("/short", "expired").send().status, 201);
    eventually("it expires", || {
        (told(&gateway, "expired", "POST /short")["state"] == "expired").then_some(())
    });
    assert_eq!(ledger.all().len(), 5, "nobody ran because of a question");
}

#[test]
fn anothers_key_looks_like_one_that_was_never_used() {
    let ledger = Ledger::start();
    let settings = "status = true\n[[route]]\nmatch = \"POST /everyones\"\ntenant = \"none\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    for target in ["/charges", "/everyones"] {
        let request = gateway.post(target).key("order-1").header("Authorization", ALICE);
        assert_eq!(request.send().status, 201);
    }
    gateway.post("/charges").key("public").send();

    let theirs = ask(&gateway, "Bearer mallory", "order-1", "POST /charges");
    let never = ask(&gateway, "Bearer mallory", "never-used", "POST /charges");
    let without_date = |mut answer: Answer| {
        answer.headers.retain(|(name, _)| name != "date");
        answer
    };
    assert_eq!(without_date(theirs.clone()), without_date(never));
    assert_eq!(serde_json::from_slice::<Value>(&theirs.body).expect("JSON"), unknown());

    // Keys that callers share are nobody's to ask about.
    let target = format!("{PATH}?route=POST%20/charges");
    let anonymous = gateway.request("GET", &target).key("public").send();
    anonymous.refused("missing-tenant");
    assert_eq!(anonymous.header("cache-control"), Some("no-store"));
    ask(&gateway, ALICE, "order-1", "POST /everyones").refused("missing-tenant");
    let cookie = gateway.request("GET", &target).key("order-1").header("Cookie", "a=b").send();
    cookie.refused("missing-tenant");
}

#[test]
fn the_request_is_named_as_it_was_sent_or_as_its_route() {
    let ledger = Ledger::start();
    let settings = "status = true\n[idempotency]\nscope = \"endpoint\"\n\
        [[route]]\nmatch = \"PUT,POST /v1/charges/{id}\"\nkey_headers = [\"X-Key\"]\n\
        [[route]]\nhost = \"eu.example.com\"\nmatch = \"POST /v1/refunds\"\n\
        key_pointer = \"/idempotency_key\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let charge = gateway.request("PUT", "/v1/charges/ch_1").header("X-Key", "k");
    assert_eq!(charge.header("Authorization", ALICE).send().status, 201);
    let refund = gateway.post("/v1/refunds").host("eu.example.com").header("Authorization", ALICE);
    assert_eq!(refund.json(r#"{"idempotency_key":"k"}"#).send().status, 201);

    let state = |header: &str, route: &str| {
        let target = format!("{PATH}?route={}", route.replace(' ', "%20"));
        let request = gateway.request("GET", &target).header("Authorization", ALICE);
        let answer = request.header(header, "k").send();
        serde_json::from_slice::<Value>(&answer.body).expect("JSON")["state"].clone()
    };
    for route in ["PUT /v1/charges/ch_1", "PUT /v1/charges/{id}", "PUT /v1/charges/ch_2?a=b"] {
        assert_eq!(state("X-Key", route), "completed", "{route}");
    }
    assert_eq!(state("X-Key", "POST /v1/charges/ch_1"), "unknown");
    assert_eq!(state("Idempotency-Key", "POST eu.example.com/v1/refunds"), "completed");
    assert_eq!(state("Idempotency-Key", "POST /v1/refunds"), "unknown");
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with("status = true\n").start();
    let get = |query: &str| {
        gateway.request("GET", &format!("{PATH}{query}")).header("Authorization", ALICE)
    };
    for query in ["", "?route=", "?route=/charges", "?route=POST", "?other=1", "?route=P%20x"] {
        let refused = get(query).key("k").send();
        assert_eq!(refused.status, 400, "{query}");
        assert!(refused.text().contains("?route=POST%20/v1/charges"), "{}", refused.text());
    }
    get("?route=POST%20/charges").send().refused("missing-key");
    get("?route=POST%20/charges").key("a b").send().refused("invalid-key");
    get("?route=POST%20/charges").key("a").key("b").send().refused("invalid-key");
    assert_eq!(gateway.post(&format!("{PATH}?route=POST%20/charges")).key("k").send().status, 405);
    assert_eq!(ledger.all().len(), 0);
}

#[test]
fn the_path_is_the_upstreams_unless_it_is_switched_on() {
    let ledger = Ledger::start();
    let mut gateway = Gateway::in_front_of(&ledger).start();
    assert_eq!(gateway.request("GET", PATH).send().status, 201);
    assert_eq!(ledger.all()[0].target, PATH);
    gateway.rewrite("status = true\n");
    assert_eq!(gateway.reload().status, 200);
    assert_eq!(told(&gateway, "k", "POST /charges"), unknown());
    assert_eq!(ledger.all().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn look_ups_of_one_address_leave_room_for_others() {
    let (ledger, server) = (Ledger::start(), Server::start());
    let setup = postgres::gateway(&ledger, &postgres::database(&server));
    let gateway = setup.with("status = true\n").start();
    let target = format!("{PATH}?route=POST%20/charges");
    let look_up = gateway.request("GET", &target).key("k").header("Authorization", ALICE);
    let requests = Arc::new(look_up.bytes().repeat(16));
    let mut flooding = JoinSet::new();
    for _ in 0..300 {
        flooding.spawn(flood(gateway.address, requests.clone()));
    }
    eventually("the busy address waits for others", || {
        (0..100).for_each(|_| assert_eq!(told(&gateway, "k", "POST /charges"), unknown()));
        (gateway.metric("selfsame_deferred_tasks_total") >= 1000.0).then_some(())
    });
    flooding.shutdown().await;
}
