//! Clients that never come back. Their requests are driven to an end without them, by any
//! gateway and once, or left to a person.

use selfsame_test_postgres::Server;

use crate::checkpoints::save;
use crate::encryption::{bytes_in, holds, new_key, start};
use crate::harness::{Gate, Gateway, Ledger, Request, Setup, Then, eventually, reply};
use crate::postgres::database;

const SETTINGS: &str = r#"
    [encryption]
    key_file = "keys"
    [checkpoints]
    listen = "127.0.0.1:0"
    [idempotency]
    lease = "1s"
    complete_abandoned = true
    completer_after = "400ms"
    completer_attempts = 3
    completer_headers = ["X-Account"]
"#;
const RESUME: &str = "upstream_idempotent = true\n";
/// What no file may hold.
const BODY: &str = r#"{"card":"4242424242424242"}"#;

fn charge(gateway: &Gateway, key: &str) -> Request {
    let request = gateway.post("/charges?currency=eur").key(key).json(BODY);
    request.header("Authorization", "Bearer ann").header("X-Account", "7")
}

fn runs(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!("selfsame_completer_runs_total{{outcome=\"{outcome}\"}}"))
}

fn begin(ledger: &Ledger, settings: &str) -> Gateway {
    start(Gateway::in_front_of(ledger).with(&format!("{SETTINGS}{settings}")), &[&new_key("a")])
}

/// Loses the answer to the first attempt, and answers any other with `status`.
fn losing(status: u16) -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(move |effect, client| match effect.header("selfsame-attempt") {
        Some("1") => Then::Close,
        _ => reply(client, status, &[], "charged"),
    });
    ledger
}

#[test]
fn work_that_was_interrupted_goes_on_from_its_recovery_point_without_its_client() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("selfsame-attempt") {
        Some("1") => {
            assert_eq!(save(effect, r#"{"recovery_point":"charge_created"}"#).status, 204);
            Then::Close
        }
        _ => reply(client, 201, &[], "charged"),
    });
    let gateway = begin(&ledger, "");
    charge(&gateway, "k").send().refused("upstream-failed");
    assert!(!holds(&bytes_in(&gateway.data()), "4242424242424242"), "it is kept closed");

    eventually("the completer's run", || (runs(&gateway, "completed") == 1.0).then_some(()));
    let [first, second] = &ledger.of("k")[..] else { panic!("two attempts") };
    assert_eq!((&second.method, &second.target), (&first.method, &first.target));
    assert_eq!((second.body.as_slice(), BODY.as_bytes()), (BODY.as_bytes(), &first.body[..]));
    for name in ["idempotency-key", "content-type", "host", "x-account", "selfsame-derived-key"] {
        assert_eq!(second.header(name), first.header(name), "{name}");
    }
    assert_eq!(second.header("selfsame-attempt"), Some("2"));
    assert_eq!(second.header("selfsame-recovery-point"), Some("charge_created"));
    for name in ["authorization", "forwarded", "x-forwarded-for"] {
        assert!(first.header(name).is_some(), "{name}");
        assert_eq!(second.header(name), None, "{name}");
    }

    let late = charge(&gateway, "k").send();
    assert_eq!((late.status, late.text().as_str()), (201, "charged"));
    assert_eq!(late.header("idempotent-replayed"), Some("true"));
    assert_eq!(ledger.effects("k"), 2);
    gateway.expect_metric("selfsame_abandoned", 0.0);
    assert!(!gateway.whole_log().contains("4242424242424242"), "no request in the log");
}

#[test]
fn work_that_fails_again_and_again_is_left_to_a_person() {
    let ledger = losing(503);
    let gateway = begin(&ledger, RESUME);
    charge(&gateway, "k").send().refused("upstream-failed");
    eventually("it is held", || (runs(&gateway, "held") == 1.0).then_some(()));
    eventually("all are counted", || (runs(&gateway, "unfinished") == 3.0).then_some(()));
    assert_eq!(ledger.effects("k"), 4, "the client's run, and three more");
    charge(&gateway, "k").send().refused("outcome-unknown");
    assert!(gateway.keys(&["free", "k"]).status.success());
    ledger.behave(|_, client| reply(client, 201, &[], "charged"));
    assert_eq!(charge(&gateway, "k").send().status, 201);
}

#[test]
fn a_gateway_that_was_killed_completes_after_its_start_what_it_had_begun() {
    let ledger = Ledger::start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| match effect.header("selfsame-attempt") {
        Some("1") => {
            at_gate.pass();
            Then::Close
        }
        _ => reply(client, 201, &[], "charged"),
    });
    let gateway = begin(&ledger, RESUME);
    let client = charge(&gateway, "k").begin();
    ledger.wait_for("k", 1);
    drop(client);
    let gateway = gateway.kill().start();
    eventually("the completer's run", || (runs(&gateway, "completed") == 1.0).then_some(()));
    gate.open();
    let late = charge(&gateway, "k").send();
    assert_eq!((late.status, late.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(ledger.effects("k"), 2);
}

#[test]
fn what_is_to_be_held_is_never_run() {
    let ledger = losing(201);
    let routes = "upstream_idempotent = true\n\
                  [[route]]\nmatch = \"POST /held\"\nrecover = \"hold\"\n\
                  [[route]]\nmatch = \"POST /unsaved\"\nupstream_idempotent = false\n";
    let gateway = begin(&ledger, routes);
    for (path, key) in [("/held", "held"), ("/unsaved", "unsaved"), ("/resumed", "resumed")] {
        gateway.post(path).key(key).json(BODY).send().refused("upstream-failed");
    }
    eventually("the completer's run", || (ledger.effects("resumed") == 2).then_some(()));
    // Longer than it took for that one.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!((ledger.effects("held"), ledger.effects("unsaved")), (1, 1));
    gateway.post("/held").key("held").json(BODY).send().refused("outcome-unknown");
}

#[test]
fn where_the_upstream_can_be_asked_it_is_asked_before_anything_runs() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match (&*effect.method, effect.header("idempotency-key")) {
        ("GET", Some("undone")) => reply(client, 404, &[], ""),
        ("GET", _) => reply(client, 200, &[], "known"),
        _ if effect.header("selfsame-attempt") == Some("1") => Then::Close,
        _ => reply(client, 201, &[], "charged"),
    });
    let gateway = begin(&ledger, "recover = \"probe\"\nprobe = \"GET /keys/{key}\"\n");
    for key in ["done", "undone"] {
        charge(&gateway, key).send().refused("upstream-failed");
    }
    eventually("both have ended", || (runs(&gateway, "completed") == 2.0).then_some(()));
    assert_eq!(charge(&gateway, "done").send().text(), "known");
    assert_eq!(charge(&gateway, "undone").send().text(), "charged");
    let worked = |key: &str| ledger.of(key).iter().filter(|effect| effect.method == "POST").count();
    assert_eq!((worked("done"), worked("undone")), (1, 2));
}

#[test]
fn of_two_gateways_one_completes_and_the_request_is_gone_from_the_database() {
    let (server, ledger) = (Server::start(), losing(201));
    let (url, key) = (database(&server), new_key("a"));
    // All are sent before the first of them is completed, also on a busy machine.
    let settings = format!("{SETTINGS}{RESUME}").replace("400ms", "10s");
    let gateway = |setup: Setup| start(setup.store(&url).with(&settings), &[&key]);
    let gateways = [gateway(Gateway::in_front_of(&ledger)), gateway(Gateway::in_front_of(&ledger))];
    for at in 0..8 {
        charge(&gateways[at % 2], &format!("k-{at}")).send().refused("upstream-failed");
    }
    let kept = || server.sql("keys", "select count(request) from selfsame.keys");
    assert_eq!(kept(), "8");
    eventually("all are completed", || (kept() == "0").then_some(()));
    assert_eq!(ledger.all().len(), 16, "each was run once more");
    let late = charge(&gateways[0], "k-1").send();
    assert_eq!((late.status, late.header("idempotent-replayed")), (201, Some("true")));
}
