//! Recovery points through the gateway: what an upstream is told, what it may save, and who goes on
//! from there.

use std::io::{BufReader, Write};
use std::net::SocketAddr;

use selfsame_test_postgres::Server;
use serde_json::{Value, json};

use crate::harness::{
    Answer, Effect, Gate, Gateway, Ledger, Request, Setup, Then, eventually, reply,
};
use crate::postgres::database;

const SETTINGS: &str = "[checkpoints]\nlisten = \"127.0.0.1:0\"\n[idempotency]\nlease = \"1s\"\n";
const SAVED: &str = r#"{"recovery_point":"ride_created","data":{"ride": 7, "fare": 1.10}}"#;

fn order(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/rides").key(key).json(r#"{"fare":10}"#)
}

fn told<'a>(effect: &'a Effect, name: &str) -> &'a str {
    effect.header(name).unwrap_or_else(|| panic!("{name} is missing: {:?}", effect.headers))
}

/// A request to where the upstream was told to save.
pub(crate) fn at_url(effect: &Effect, method: &str) -> Request {
    let url = told(effect, "selfsame-checkpoint-url");
    let (address, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .expect("an address and a path");
    Request::new(address.parse().expect("an address"), method, &format!("/{path}"))
}

pub(crate) fn save(effect: &Effect, body: &str) -> Answer {
    at_url(effect, "PUT").json(body).send()
}

/// An upstream that hangs up on its first attempt at a key, after `first` has seen it, and does the
/// work of any other.
fn dying_after(first: impl Fn(&Effect) + Send + Sync + 'static) -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(move |effect, client| match effect.header("selfsame-attempt") {
        Some("1") => {
            first(effect);
            Then::Close
        }
        _ => reply(client, 201, &[], &format!(r#"{{"ride":{}}}"#, effect.number)),
    });
    ledger
}

/// Retries until the answer is another one than "in progress".
fn decided(gateway: &Gateway, key: &str) -> Answer {
    eventually("a decision about the key", || {
        let answer = order(gateway, key).send();
        (answer.problem().as_deref() != Some("in-progress")).then_some(answer)
    })
}

#[test]
fn an_upstream_that_saved_a_checkpoint_goes_on_from_there_and_any_other_key_is_held() {
    let ledger = dying_after(|effect| {
        if effect.header("idempotency-key") == Some("saved") {
            assert_eq!(at_url(effect, "GET").send().status, 404, "nothing was saved yet");
            let answer = save(effect, SAVED);
            assert_eq!((answer.status, answer.text().as_str()), (204, ""));
        }
    });
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();

    let lost = order(&gateway, "saved").send().refused("upstream-failed");
    assert_eq!(lost["retryable"], true, "the next attempt goes on");
    let lost = order(&gateway, "unsaved").send().refused("upstream-failed");
    assert_eq!(lost["retryable"], false, "nobody knows how far it came");
    order(&gateway, "unsaved").send().refused("outcome-unknown");

    let answer = decided(&gateway, "saved");
    assert_eq!(answer.status, 201, "{}", answer.text());
    let [first, second] = &ledger.of("saved")[..] else { panic!("two attempts") };
    assert_eq!(first.header("selfsame-recovery-point"), None);
    assert_eq!(told(second, "selfsame-recovery-point"), "ride_created");
    assert_eq!(told(second, "selfsame-attempt"), "2");
    let derived_key = told(first, "selfsame-derived-key");
    assert_eq!(told(second, "selfsame-derived-key"), derived_key, "the same for each attempt");
    assert_ne!(told(&ledger.of("unsaved")[0], "selfsame-derived-key"), derived_key);
    for attempt in [first, second] {
        let url = told(attempt, "selfsame-checkpoint-url");
        assert!(url.ends_with(told(attempt, "selfsame-claim")), "{url}");
    }

    let found = at_url(second, "GET").send();
    assert_eq!((found.status, found.text().as_str()), (200, SAVED), "as it was written");
    order(&gateway, "saved").send().replays(&answer);
    assert_eq!(ledger.effects("unsaved"), 1);
    gateway.expect_metric(r#"selfsame_checkpoints_total{result="saved"}"#, 1.0);
    assert!(!gateway.whole_log().contains("fare"), "no data in the log");
}

#[test]
fn a_checkpoint_of_a_run_that_was_taken_over_or_has_ended_changes_nothing() {
    let gate = Gate::shut();
    let ledger = Ledger::start();
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| match effect.header("selfsame-attempt") {
        Some("1") => {
            assert_eq!(save(effect, SAVED).status, 204);
            Then::Close
        }
        _ => {
            at_gate.pass();
            reply(client, 201, &[], "done")
        }
    });
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    order(&gateway, "k").send().refused("upstream-failed");
    eventually("the lease is over", || {
        let shown = gateway.keys(&["show", "k"]).stdout;
        String::from_utf8_lossy(&shown).contains("the next retry goes on").then_some(())
    });
    let mut taking_over = BufReader::new(order(&gateway, "k").begin());
    ledger.wait_for("k", 2);
    let [first, second] = &ledger.of("k")[..] else { panic!("two attempts") };

    let late = r#"{"recovery_point":"late"}"#;
    for method in ["GET", "PUT"] {
        let refused = at_url(first, method).json(late).send();
        assert_eq!(refused.status, 409, "{method}");
        assert!(refused.text().contains("stop, and do nothing more"), "{}", refused.text());
    }
    assert_eq!(at_url(second, "GET").send().text(), SAVED);
    assert_eq!(save(second, r#"{"recovery_point":"charged"}"#).status, 204);
    gateway.expect_metric("selfsame_fenced_writes_total", 1.0);
    gateway.expect_metric(r#"selfsame_checkpoints_total{result="lost"}"#, 1.0);

    gate.open();
    assert_eq!(Answer::read(&mut taking_over).expect("answered").text(), "done");
    assert_eq!(save(second, late).status, 409, "the run is over");
    let found: Value = serde_json::from_str(&at_url(second, "GET").send().text()).expect("JSON");
    assert_eq!(found, json!({"recovery_point": "charged", "data": null}));
}

/// A run that waits at a gate, and what its upstream was told.
fn running(settings: &str) -> (Gateway, Effect, Gate, BufReader<std::net::TcpStream>) {
    let (ledger, gate) = Ledger::gated(|_| "done".to_owned());
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let client = BufReader::new(order(&gateway, "k").begin());
    ledger.wait_for("k", 1);
    (gateway, ledger.of("k").remove(0), gate, client)
}

#[test]
fn what_is_no_checkpoint_or_no_claim_is_refused_and_told_what_to_do() {
    let (gateway, effect, gate, mut client) = running(SETTINGS);
    let large = format!(r#"{{"recovery_point":"a","data":"{}"}}"#, "x".repeat(64 * 1024));
    let bodies = [
        ("", 400, "recovery_point"),
        ("{", 400, "recovery_point"),
        ("{}", 400, "missing field `recovery_point`"),
        (r#"{"recovery_point":"a","more":1}"#, 400, "unknown field `more`"),
        (r#"{"recovery_point":""}"#, 400, "1 to 255"),
        (r#"{"recovery_point":"two words"}"#, 400, "1 to 255"),
        (&large, 413, "65536 bytes"),
    ];
    let refused = |answer: Answer, status: u16, says: &str| {
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let problem: Value = serde_json::from_str(&answer.text()).expect("a problem is JSON");
        assert_eq!((&problem["status"], &problem["retryable"]), (&json!(status), &json!(false)));
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains(says), "{detail}");
    };
    for (body, status, says) in bodies {
        refused(save(&effect, body), status, says);
    }
    let at = |path: &str| Request::new(gateway.checkpoints(), "PUT", path).json(SAVED);
    let claim = told(&effect, "selfsame-claim");
    let forged = format!("{}A", &claim[..claim.len() - 1]);
    let forged = if forged == claim { format!("{}Q", &claim[..claim.len() - 1]) } else { forged };
    for request in [
        at(&format!("/checkpoint/{forged}")),
        at("/checkpoint/x"),
        at("/checkpoint").header("Selfsame-Claim", &forged),
        at("/checkpoint"),
    ] {
        refused(request.send(), 403, "Selfsame-Checkpoint-Url");
    }
    refused(at("/").send(), 404, "Selfsame-Checkpoint-Url");
    assert_eq!(at_url(&effect, "POST").json(SAVED).send().status, 405);
    gateway.expect_metric(r#"selfsame_checkpoints_total{result="refused"}"#, 4.0);
    gateway.expect_metric(r#"selfsame_checkpoints_total{result="invalid"}"#, 7.0);
    assert_eq!(at_url(&effect, "GET").send().status, 404, "nothing of it was saved");

    let by_header = at("/checkpoint").header("Selfsame-Claim", claim);
    assert_eq!(by_header.send().status, 204, "the claim may come in its header");
    assert_eq!(at_url(&effect, "GET").send().text(), SAVED);
    gate.open();
    assert_eq!(Answer::read(&mut client).expect("answered").status, 201);
}

#[test]
fn a_checkpoint_that_does_not_come_whole_is_given_up() {
    let (gateway, effect, gate, mut client) = running(SETTINGS);
    let request = at_url(&effect, "PUT").json(SAVED);
    let bytes = request.bytes();
    let mut slow = request.open();
    slow.get_mut().write_all(&bytes[..bytes.len() - 1]).expect("sent");
    request.hang_up_before_the_last(1);
    assert_eq!(Answer::read(&mut slow).expect("an answer").status, 408);
    gateway.expect_metric(r#"selfsame_checkpoints_total{result="invalid"}"#, 2.0);
    assert_eq!(at_url(&effect, "GET").send().status, 404, "nothing of it was saved");
    gate.open();
    assert_eq!(Answer::read(&mut client).expect("answered").status, 201);
}

#[test]
fn a_client_cannot_speak_for_the_gateway() {
    let ours = [
        "selfsame-attempt",
        "selfsame-recovery-point",
        "selfsame-derived-key",
        "selfsame-claim",
        "selfsame-checkpoint-url",
    ];
    for settings in ["", SETTINGS] {
        let ledger = Ledger::start();
        let gateway = Gateway::in_front_of(&ledger).with(settings).start();
        for request in [gateway.post("/rides"), order(&gateway, "k")] {
            let forged = ours.iter().fold(request, |request, name| request.header(name, "forged"));
            assert_eq!(forged.send().status, 201);
        }
        let [unkeyed, keyed] = &ledger.all()[..] else { panic!("two requests") };
        let said = |effect: &Effect| -> Vec<&str> {
            ours.into_iter().filter(|name| effect.header(name).is_some()).collect()
        };
        assert!(!format!("{unkeyed:?}{keyed:?}").contains("forged"));
        assert_eq!(said(unkeyed), [""; 0]);
        match settings {
            "" => assert_eq!(said(keyed), ["selfsame-attempt"]),
            _ => assert_eq!(said(keyed), [ours[0], ours[2], ours[3], ours[4]]),
        }
    }
}

#[test]
fn where_the_configuration_was_read_again_every_upstream_is_still_told() {
    let (ledger, other) = (Ledger::start(), Ledger::start());
    let mut gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    let route = "[[route]]\nmatch = \"POST /other\"\nupstream";
    gateway.rewrite(&format!("{SETTINGS}{route} = \"http://{}\"\n", other.address()));
    assert_eq!(gateway.reload().status, 200);
    assert_eq!(order(&gateway, "k").send().status, 201);
    assert_eq!(gateway.post("/other").key("l").json("{}").send().status, 201);
    for effect in [&ledger.of("k")[0], &other.of("l")[0]] {
        let at = format!("http://{}/checkpoint/", gateway.checkpoints());
        assert!(told(effect, "selfsame-checkpoint-url").starts_with(&at));
    }
}

#[test]
fn while_the_gateway_drains_an_upstream_can_still_save() {
    let (gateway, effect, gate, mut client) = running(SETTINGS);
    gateway.signal("TERM");
    eventually("newcomers are refused", || std::net::TcpStream::connect(gateway.address).err());
    assert_eq!(save(&effect, SAVED).status, 204);
    assert_eq!(at_url(&effect, "GET").send().text(), SAVED);
    gate.open();
    assert_eq!(Answer::read(&mut client).expect("answered").status, 201);
    let (status, _) = gateway.wait();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_gateway_that_was_killed_and_started_again_knows_its_claims() {
    let (gateway, effect, _gate, _client) = running(SETTINGS);
    let gateway = gateway.kill().start();
    let at = |to: SocketAddr, method: &str| {
        let claim = told(&effect, "selfsame-claim");
        Request::new(to, method, "/checkpoint").header("Selfsame-Claim", claim)
    };
    assert_eq!(at(gateway.checkpoints(), "PUT").json(SAVED).send().status, 204);
    assert_eq!(at(gateway.checkpoints(), "GET").send().text(), SAVED);
}

#[test]
fn every_gateway_of_an_installation_takes_a_checkpoint_and_none_does_without_its_store() {
    let mut server = Server::start();
    let url = database(&server);
    let (ledger, gate) = Ledger::gated(|_| "done".to_owned());
    let setup = || -> Setup { crate::postgres::gateway(&ledger, &url).with(SETTINGS) };
    let (here, there) = (setup().start(), setup().start());
    let mut client = BufReader::new(order(&here, "k").begin());
    ledger.wait_for("k", 1);
    let effect = ledger.of("k").remove(0);

    let path = format!("/checkpoint/{}", told(&effect, "selfsame-claim"));
    let there = |method| Request::new(there.checkpoints(), method, &path);
    assert_eq!(there("PUT").json(SAVED).send().status, 204);
    assert_eq!(at_url(&effect, "GET").send().text(), SAVED);

    server.crash();
    for answer in [there("PUT").json(SAVED).send(), there("GET").send()] {
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert!(answer.text().contains("\"retryable\":true"), "{}", answer.text());
    }
    server.start_again();
    eventually("it can be saved again", || {
        (there("PUT").json(SAVED).send().status == 204).then_some(())
    });
    gate.open();
    assert_eq!(Answer::read(&mut client).expect("answered").status, 201);
}
