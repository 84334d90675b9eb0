//! Bugs that other idempotency layers shipped, each as a test against ours. Those not here are
//! shown where they belong: one time limit for lock and record in `crash`; a late owner in
//! `takeover`; any failure frees the key after the effect in `lost_answers`; a hang-up that cancels
//! the work in `client_leaves`; an oversize or streamed answer that frees the key in `streams`; an
//! identical retry refused for its charset in `meaning`; keys bound to too little in `reuse` and
//! `tenants`; a failed save that takes the answer away in `full_disk`; a body left on a kept-alive
//! connection in `framing`.

use std::io::{BufReader, Write};
use std::thread;

use crate::harness::{Answer, Gateway, Ledger, Then, read_up_to, reply};

#[test]
fn a_replay_does_not_lock_the_record_it_reads() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("again").json(r#"{"amount":10}"#);
    let first = request.send();
    for _ in 0..20 {
        request.send().replays(&first);
    }
    let at_once: Vec<_> = (0..50)
        .map(|_| {
            let request = request.clone();
            thread::spawn(move || request.send())
        })
        .collect();
    for replay in at_once {
        replay.join().expect("an answer").replays(&first);
    }
    assert_eq!(ledger.effects("again"), 1);
}

#[test]
fn a_failed_key_can_be_claimed_again_as_often_as_it_takes() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("selfsame-attempt") {
        Some("6") => reply(client, 201, &[], "at last"),
        _ => reply(client, 500, &[], "not yet"),
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("stubborn").json(r#"{"amount":10}"#);
    for _ in 1..6 {
        assert_eq!(request.send().status, 500);
    }
    let last = request.send();
    assert_eq!((last.status, last.text().as_str()), (201, "at last"));
    request.send().replays(&last);
    assert_eq!(ledger.effects("stubborn"), 6);
}

#[test]
fn an_answer_is_recorded_before_its_first_byte_is_sent() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    for number in 0..50 {
        let key = format!("first-byte-{number}");
        let request = gateway.post("/charges").key(&key).json("{}");
        let mut waiting = BufReader::with_capacity(1, request.begin());
        read_up_to(&mut waiting, "H");
        let retry = request.send();
        assert_eq!(retry.header("idempotent-replayed"), Some("true"), "{}", retry.text());
        assert_eq!(ledger.effects(&key), 1);
    }
}

#[test]
fn an_answer_is_not_parsed_and_written_anew() {
    let bodies: [&[u8]; 7] = [
        b"{ \"b\" : 1.0,\n\t\"a\":1e2 , \"b\":2 }\r\n",
        br#"{"id":12345678901234567890,"s":"\u0041\/caf\u00e9"}"#,
        b"\xef\xbb\xbf{\"bom\":true}",
        b"{\"broken\": \xff\xfe",
        b"not json at all\0",
        b"\"\"",
        b" ",
    ];
    let ledger = Ledger::start();
    ledger.behave(move |effect, client| {
        let number: usize = effect.target.trim_start_matches('/').parse().expect("a number");
        let length = bodies[number].len();
        let head = format!(
            "HTTP/1.1 201 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        client.write_all(&[head.as_bytes(), bodies[number]].concat()).expect("written");
        Then::KeepOpen
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    for (number, body) in bodies.into_iter().enumerate() {
        let request = gateway.post(&format!("/{number}")).key(&number.to_string()).json("{}");
        let first: Answer = request.send();
        assert_eq!(first.body, body);
        assert_eq!(first.header("content-type"), Some("application/json"));
        request.send().replays(&first);
    }
}

#[test]
fn a_request_is_not_parsed_and_written_anew() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let body = "{ \"b\" : 1.0,\n\t\"a\":1e2 , \"c\":\"\\u0041\\/\" }\r\n";
    assert_eq!(gateway.post("/charges").key("verbatim").json(body).send().status, 201);
    assert_eq!(ledger.of("verbatim")[0].body, body.as_bytes());
    assert_eq!(
        ledger.of("verbatim")[0].header("content-length"),
        Some(body.len().to_string().as_str())
    );
}
