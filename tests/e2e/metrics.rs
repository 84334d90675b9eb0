//! What an operator can count.

use std::io::BufReader;

use crate::harness::{Answer, Gate, Gateway, Ledger, Then, reply};

#[test]
fn every_request_is_counted_once_by_route_and_outcome() {
    let ledger = Ledger::start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| match effect.target.as_str() {
        "/gated" => {
            at_gate.pass();
            reply(client, 201, &[], "")
        }
        "/lost" => Then::Close,
        "/busy" if effect.header("selfsame-attempt") == Some("1") => reply(client, 503, &[], ""),
        "/large" => reply(client, 201, &[], &"x".repeat(2000)),
        _ => reply(client, 201, &[], ""),
    });
    let settings = "[idempotency]\nmax_response_body = \"1KiB\"\nmax_request_body = \"1KiB\"\n\
        [[route]]\nmatch = \"POST /required\"\nkey = \"required\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let post = |target: &str, key: &str, body: &str| {
        gateway.post(target).key(key).json(body).send().status
    };

    assert_eq!((post("/a", "a", "1"), post("/a", "a", "1"), post("/a", "a", "1")), (201, 201, 201));
    assert_eq!(post("/a", "a", "2"), 422);
    assert_eq!((post("/busy", "busy", ""), post("/busy", "busy", "")), (503, 201));
    assert_eq!((post("/lost", "lost", ""), post("/lost", "lost", "")), (502, 409));
    assert_eq!((post("/large", "large", ""), post("/large", "large", "")), (201, 409));
    assert_eq!(post("/a", "", ""), 400);
    assert_eq!(post("/a", "long", &"x".repeat(2000)), 413);
    assert_eq!(gateway.post("/required").send().status, 400);
    assert_eq!(gateway.post("/a").key("c").header("Cookie", "a=1").send().status, 401);
    assert_eq!(gateway.request("GET", "/a").send().status, 201);
    assert_eq!(gateway.post("/a").send().status, 201);
    let running = gateway.post("/gated").key("gated").begin();
    ledger.wait_for("gated", 1);
    gateway.expect_metric("selfsame_in_flight", 1.0);
    assert_eq!(gateway.post("/gated").key("gated").send().status, 409);
    gate.open();
    let mut running = BufReader::new(running);
    assert_eq!(Answer::read(&mut running).expect("an answer").status, 201);

    let counted = [
        ("default", "executed", 5.0),
        ("default", "resumed", 1.0),
        ("default", "replayed", 2.0),
        ("default", "in_progress", 1.0),
        ("default", "key_reused", 1.0),
        ("default", "held", 1.0),
        ("default", "not_kept", 1.0),
        ("default", "invalid_key", 1.0),
        ("default", "bad_body", 1.0),
        ("default", "missing_tenant", 1.0),
        ("default", "passed", 2.0),
        ("/required", "missing_key", 1.0),
    ];
    for (route, outcome, expected) in counted {
        let name = format!(r#"selfsame_requests_total{{route="{route}",outcome="{outcome}"}}"#);
        gateway.expect_metric(&name, expected);
    }
    gateway.expect_metric("selfsame_in_flight", 0.0);
    let all: f64 = counted.iter().map(|(_, _, count)| count).sum();
    gateway.expect_metric("selfsame_overhead_seconds_count", all);
}
