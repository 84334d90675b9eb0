//! Rows 1 to 3: the client hangs up in its body, after it, and in the middle of the answer.

use std::io::{BufRead, BufReader};

use crate::harness::{Gateway, Ledger, eventually, reply};

#[test]
fn a_client_cut_in_the_middle_of_its_body_ran_nothing() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("cut").json(r#"{"amount":10}"#);

    request.hang_up_before_the_last(5);
    let other_key = gateway.post("/charges").key("other").json(r#"{"amount":10}"#).send();
    assert_eq!(other_key.status, 201);
    assert_eq!(ledger.effects("cut"), 0);

    let retry = request.send();
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (201, None));
    assert_eq!(ledger.of("cut")[0].header("selfsame-attempt"), Some("1"));
    assert_eq!(ledger.effects("cut"), 1);
}

#[test]
fn a_body_cut_between_two_chunks_ran_nothing() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let chunked = gateway.post("/charges").key("cut").header("Transfer-Encoding", "chunked");

    chunked.clone().body(b"4\r\nhalf\r\n").hang_up_before_the_last(0);
    let whole = chunked.body(b"4\r\nhalf\r\n0\r\n\r\n").send();

    assert_eq!((whole.status, whole.header("idempotent-replayed")), (201, None));
    assert_eq!(ledger.effects("cut"), 1);
    assert_eq!(ledger.of("cut")[0].body, b"half");
}

#[test]
fn work_goes_on_when_its_client_hangs_up_right_behind_its_body() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let keys: Vec<String> = (0..100).map(|number| format!("hasty-{number}")).collect();

    for key in &keys {
        drop(gateway.post("/charges").key(key).json(r#"{"amount":10}"#).begin());
    }

    for key in &keys {
        ledger.wait_for(key, 1);
    }
    assert_eq!(ledger.all().len(), keys.len());
}

#[test]
fn work_goes_on_when_its_client_hangs_up_and_the_retry_replays() {
    let (ledger, gate) = Ledger::gated(|_| "done after all".to_owned());
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("gone").json(r#"{"amount":10}"#);

    let connection = request.begin();
    ledger.wait_for("gone", 1);
    drop(connection);
    request.send().refused("in-progress");
    gate.open();

    let retry = eventually("the answer is recorded", || {
        let retry = request.send();
        (retry.status != 409).then_some(retry)
    });
    assert_eq!((retry.status, retry.text().as_str()), (201, "done after all"));
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    assert_eq!(ledger.effects("gone"), 1);
}

#[test]
fn a_client_cut_in_the_middle_of_the_answer_gets_all_of_it_on_its_retry() {
    let ledger = Ledger::start();
    let body = "0123456789abcdef".repeat(32 * 1024);
    let answer = body.clone();
    ledger.behave(move |_, client| reply(client, 201, &[], &answer));
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/exports").key("half-read").json("{}");

    let mut connection = BufReader::new(request.begin());
    let mut status = String::new();
    connection.read_line(&mut status).expect("the answer begins");
    assert!(status.starts_with("HTTP/1.1 201"), "{status}");
    drop(connection);

    let retry = request.send();
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    assert!(retry.text() == body, "the retry got {} bytes of {}", retry.body.len(), body.len());
    assert_eq!(ledger.effects("half-read"), 1);
}
