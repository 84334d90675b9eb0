//! Row 20: an upstream that is slower than its client can wait.

use std::io::Write;

use crate::harness::{Gate, Gateway, Ledger, Then, eventually, reply};

const SETTINGS: &str = "[idempotency]\nresponse_timeout = \"300ms\"\nlease = \"1s\"\n";

#[test]
fn the_client_is_let_go_and_the_late_answer_is_there_for_its_retry() {
    let ledger = Ledger::start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |_, client| {
        at_gate.pass();
        reply(client, 201, &["X-Late: yes"], "late")
    });
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    let request = gateway.post("/charges").key("slow").json(r#"{"amount":10}"#);

    request.send().refused("upstream-timeout");
    request.send().refused("in-progress");
    gate.open();
    let retry = eventually("the late answer is recorded", || {
        let retry = request.send();
        (retry.status != 409).then_some(retry)
    });

    assert_eq!((retry.status, retry.text().as_str()), (201, "late"));
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    assert_eq!(retry.header("x-late"), Some("yes"));
    assert_eq!(ledger.all().len(), 1, "one forward");
}

#[test]
fn an_answer_that_stops_half_way_is_waited_for_no_longer_than_one_that_never_begins() {
    let ledger = Ledger::start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |_, client| {
        let half = b"HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\nhalf";
        client.write_all(half).expect("written");
        at_gate.pass();
        client.write_all(b"half").expect("written");
        Then::KeepOpen
    });
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    let request = gateway.post("/charges").key("drips").json("{}");

    request.send().refused("upstream-timeout");
    gate.open();
    let retry = eventually("the whole answer is recorded", || {
        let retry = request.send();
        (retry.status != 409).then_some(retry)
    });
    assert_eq!((retry.status, retry.text().as_str()), (201, "halfhalf"));
    assert_eq!(ledger.effects("drips"), 1);
}
