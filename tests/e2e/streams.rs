//! Row 24: answers that are too large to keep, and answers that never end.

use std::io::{BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{Answer, Gate, Gateway, Ledger, Then, eventually, read_up_to, reply};

#[track_caller]
fn assert_not_kept(answer: &Answer, status: u16, location: Option<&str>) {
    let refusal = answer.refused("response-not-kept");
    assert_eq!(refusal["original_status"], status);
    assert_eq!(refusal.get("location").and_then(|location| location.as_str()), location);
}

#[test]
fn an_answer_over_the_limit_goes_to_its_first_caller_whole_and_to_nobody_else() {
    let ledger = Ledger::start();
    let body = "0123456789".repeat(50_000);
    let large = body.clone();
    ledger.behave(move |_, client| reply(client, 201, &["Location: /exports/1"], &large));
    let settings = "[idempotency]\nmax_response_body = \"1KiB\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let request = gateway.post("/exports").key("large").json("{}");

    let first = request.send();
    assert_eq!((first.status, first.header("location")), (201, Some("/exports/1")));
    assert!(first.text() == body, "{} bytes of {} came", first.body.len(), body.len());
    for _ in 0..3 {
        let retry = request.send();
        assert_not_kept(&retry, 201, Some("/exports/1"));
        assert!(!retry.text().contains("0123456789"));
    }
    gateway.post("/exports").key("large").json("[]").send().refused("key-reused");
    assert_eq!(ledger.effects("large"), 1);
}

#[test]
fn the_limit_itself_is_kept_and_a_byte_more_is_not() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| {
        let length: usize = effect.target.trim_start_matches('/').parse().expect("a length");
        // Chunked, so that nobody knows the length beforehand.
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let body = "x".repeat(length);
        let answer = format!("{head}{length:x}\r\n{body}\r\n0\r\n\r\n");
        client.write_all(answer.as_bytes()).expect("written");
        Then::KeepOpen
    });
    let settings = "[idempotency]\nmax_response_body = \"1KiB\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    for (length, is_kept) in [(1024, true), (1025, false)] {
        let request = gateway.post(&format!("/{length}")).key(&format!("l-{length}"));
        let first = request.send();
        assert_eq!((first.status, first.body.len()), (200, length));
        let retry = request.send();
        match is_kept {
            true => retry.replays(&first),
            false => assert_not_kept(&retry, 200, None),
        }
        assert_eq!(ledger.effects(&format!("l-{length}")), 1);
    }
}

#[test]
fn a_large_answer_that_breaks_is_not_passed_off_as_whole() {
    let ledger = Ledger::start();
    ledger.behave(|_, client| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let begun = format!("{head}1000\r\n{}\r\n", "x".repeat(0x1000));
        client.write_all(begun.as_bytes()).expect("written");
        Then::Close
    });
    let settings = "[idempotency]\nmax_response_body = \"1KiB\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let request = gateway.post("/exports").key("torso").json("{}");
    assert!(request.try_send().is_err(), "half an answer must not look like a whole one");
    assert_not_kept(&request.send(), 200, None);
    assert_eq!(ledger.effects("torso"), 1);
}

/// An upstream that sends one event, waits at the gate, and sends another.
fn upstream_of_events(kind: &'static str) -> (Ledger, Gate) {
    let ledger = Ledger::start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |_, client| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\ndata: one\n\n");
        client.write_all(head.as_bytes()).expect("written");
        at_gate.pass();
        client.write_all(b"data: two\n\n").expect("written");
        Then::Close
    });
    (ledger, gate)
}

#[test]
fn events_arrive_while_their_stream_is_open_and_are_never_sent_twice() {
    let route = "[[route]]\nmatch = \"POST /streams\"\nstream = true\n";
    let kinds =
        [("/events", "text/event-stream; charset=utf-8"), ("/streams", "application/x-ndjson")];
    for (target, kind) in kinds {
        let (ledger, gate) = upstream_of_events(kind);
        let gateway = Gateway::in_front_of(&ledger).with(route).start();
        let request = gateway.post(target).key("events").json("{}");

        let mut connection = BufReader::new(request.begin());
        let begun = read_up_to(&mut connection, "data: one\n\n");
        assert!(begun.starts_with("HTTP/1.1 200 OK"), "{begun}");
        assert_not_kept(&request.send(), 200, None);
        gate.open();
        read_up_to(&mut connection, "data: two\n\n");
        read_up_to(&mut connection, "0\r\n\r\n");

        assert_not_kept(&request.send(), 200, None);
        assert_eq!(ledger.effects("events"), 1);
    }
}

#[test]
fn an_endless_stream_whose_client_left_is_drained_and_then_cut() {
    let ledger = Ledger::start();
    let sent = Arc::new(AtomicUsize::new(0));
    let (counted, ended) = (sent.clone(), Gate::shut());
    let over = ended.clone();
    ledger.behave(move |effect, client| {
        if effect.target != "/events" {
            return reply(client, 201, &[], "");
        }
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        client.write_all(head).expect("written");
        let event = [b'x'; 16 * 1024];
        while client.write_all(&event).is_ok() {
            counted.fetch_add(event.len(), Ordering::Relaxed);
            // Other tests need the machine, too.
            std::thread::sleep(Duration::from_millis(1));
        }
        over.open();
        Then::Close
    });
    let settings = "[idempotency]\nresponse_timeout = \"1s\"\nrun_timeout = \"20s\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let request = gateway.post("/events").key("endless").json("{}");

    let mut connection = BufReader::new(request.begin());
    read_up_to(&mut connection, "xxx");
    drop(connection);

    // More than all the buffers on the way can hold: somebody reads on.
    let far = sent.load(Ordering::Relaxed) + 16 * 1024 * 1024;
    eventually("the stream is drained", || (sent.load(Ordering::Relaxed) > far).then_some(()));
    ended.pass();
    assert_not_kept(&request.send(), 200, None);
    assert_eq!(ledger.effects("endless"), 1);
    assert_eq!(gateway.post("/other").key("other").send().status, 201, "it serves on");
}
