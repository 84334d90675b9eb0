//! Keys in bodies, and keys that a route does not take, through a gateway.

use std::io::{BufReader, Write};

use crate::harness::{Answer, Gateway, Ledger, read_up_to};

const IN_BODY: &str = "[idempotency]\nkey_pointer = \"/idempotency_key\"\nmax_request_body = \"1KiB\"\n\
    [[route]]\nmatch = \"POST /required\"\nkey = \"required\"\n";

#[test]
fn a_key_in_the_body_runs_once_also_after_a_crash() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(IN_BODY).start();
    let body = r#"{"amount": 10, "idempotency_key": "order-1"}"#;
    let first = gateway.post("/charges").json(body).send();
    assert_eq!(first.status, 201);
    let gateway = gateway.kill().start();
    gateway.post("/charges").json(body).send().replays(&first);
    gateway.post("/charges").json(r#"{"idempotency_key":"order-1"}"#).send().refused("key-reused");
    let two = gateway.post("/charges").key("order-1").json(body).send();
    two.refused("invalid-key");
    let wrong = gateway.post("/charges").json(r#"{"idempotency_key": 7}"#).send();
    let detail = wrong.refused("invalid-key")["detail"].to_string();
    assert!(detail.contains("must be a string"), "{detail}");
    let effects = ledger.all();
    assert_eq!(effects.len(), 1);
    assert_eq!(effects[0].body, body.as_bytes(), "it is sent as it came");
}

#[test]
fn a_body_without_a_key_passes_or_is_told_where_one_belongs() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(IN_BODY).start();
    let large = "x".repeat(10_000);
    for body in [r#"{ "amount" : 1.0 }"#, "a=b", &large] {
        assert_eq!(gateway.post("/charges").body(body.as_bytes()).send().status, 201);
        assert_eq!(ledger.all().last().expect("sent").body, body.as_bytes());
        let refusal = gateway.post("/required").body(body.as_bytes()).send();
        let detail = refusal.refused("missing-key")["detail"].to_string();
        assert!(detail.contains("/idempotency_key"), "{detail}");
    }
    let too_large = format!("{{\"a\":\"{large}\"}}");
    for target in ["/charges", "/required"] {
        gateway.post(target).json(&too_large).send().refused("body-too-large");
    }
    assert_eq!(ledger.all().len(), 3);
}

#[test]
fn an_upload_that_is_not_json_streams_without_end() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(IN_BODY).start();
    let request = gateway.post("/uploads").header("Transfer-Encoding", "chunked");
    let mut connection = request.begin();
    for _ in 0..64 {
        connection.write_all(format!("400\r\n{}\r\n", "u".repeat(1024)).as_bytes()).expect("taken");
    }
    connection.write_all(b"0\r\n\r\n").expect("taken");
    let answer = Answer::read(&mut BufReader::new(connection)).expect("an answer");
    assert_eq!(answer.status, 201);
    assert_eq!(ledger.all()[0].body.len(), 64 * 1024);

    // Refused where it is too large for JSON, long before its end.
    let mut connection = request.begin();
    connection.write_all(format!("801\r\n{{{}\r\n", " ".repeat(0x800)).as_bytes()).expect("taken");
    let told = read_up_to(&mut connection, "body-too-large");
    assert!(told.starts_with("HTTP/1.1 413"), "{told}");
}

#[test]
fn keys_that_a_route_does_not_take_are_refused_with_the_reason() {
    let settings = "[idempotency]\nmin_length = 8\n\
        [[route]]\nmatch = \"POST /uuid\"\nformat = \"uuid\"\n\
        [[route]]\nmatch = \"POST /young\"\nformat = \"uuidv7\"\nreject_older_than = \"7d\"\n";
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let table = [
        ("/charges", "short", "at least 8 are needed"),
        ("/uuid", "order-12345678", "must be a UUID"),
        ("/young", "8e03978e-40d5-43dd-bc93-6894a57f9324", "UUID of version 7"),
        ("/young", "01932e7a-709c-7e2c-9b6a-3f2b1c0d4e5f", "make a new key for a new one"),
        ("/young", "ffffffff-709c-7e2c-9b6a-3f2b1c0d4e5f", "in the future"),
    ];
    for (target, key, reason) in table {
        let refusal = gateway.post(target).key(key).send().refused("invalid-key");
        assert!(refusal["detail"].to_string().contains(reason), "{key}: {refusal}");
    }
    assert_eq!(ledger.all().len(), 0);
    let uuid = "8E03978E-40d5-43dd-bc93-6894a57f9324";
    assert_eq!(gateway.post("/uuid").key(uuid).send().status, 201);
    assert_eq!(gateway.post("/charges").key("long-enough").send().status, 201);
}
