//! Row 42: clients over HTTP/2 that ask for answers and leave them lying.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{
    DATA, Frame, Gateway, HEADERS, Ledger, PATIENCE, PREFACE, RST_STREAM, eventually, headers,
    packed, reply,
};

const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

const LARGE: usize = 1024 * 1024;

fn ledger() -> Ledger {
    let ledger = Ledger::start();
    let large = "x".repeat(LARGE);
    ledger.behave(move |effect, client| match &*effect.target {
        "/large" => reply(client, 201, &[], &large),
        _ => reply(client, 201, &[], &"y".repeat(500)),
    });
    ledger
}

/// A connection on which nothing of an answer's body is asked for.
fn connect(gateway: &Gateway) -> TcpStream {
    let mut connection = TcpStream::connect(gateway.address).expect("a connection");
    connection.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    connection.write_all(PREFACE).expect("sent");
    let window = [0, 4, 0, 0, 0, 0];
    let settings = Frame { kind: SETTINGS, flags: 0, stream: 0, payload: window.into() };
    connection.write_all(&settings.bytes()).expect("sent");
    connection
}

fn post(path: &str, key: &str) -> Vec<u8> {
    packed(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
        ("idempotency-key", key),
    ])
}

/// The heads of that many answers.
fn read_heads(connection: &mut TcpStream, count: usize) {
    let mut heads = 0;
    while heads < count {
        let frame = Frame::read(connection).expect("an open connection");
        heads += usize::from(frame.kind == HEADERS);
    }
}

#[test]
fn replays_that_nobody_takes_are_in_memory_once() {
    const STREAMS: u32 = 250;
    let ledger = ledger();
    let gateway = Gateway::in_front_of(&ledger).start();
    let mut first = connect(&gateway);
    first.write_all(&headers(1, &post("/large", "k"), true).bytes()).expect("sent");
    read_heads(&mut first, 1);
    eventually("it is recorded", || {
        let replays = || gateway.post("/large").host("a").key("k").send();
        (replays().header("idempotent-replayed") == Some("true")).then_some(())
    });
    let before = gateway.resident_kib();
    let mut unread: Vec<_> = (0..2).map(|_| connect(&gateway)).collect();
    for connection in &mut unread {
        for number in 0..STREAMS {
            let head = headers(1 + 2 * number, &post("/large", "k"), true);
            connection.write_all(&head.bytes()).expect("sent");
        }
    }
    for connection in &mut unread {
        read_heads(connection, STREAMS as usize);
    }
    // Each answer in a copy of its own would be 500 MiB.
    let grown = eventually("copies are gone again", || {
        let grown = gateway.resident_kib().saturating_sub(before);
        (grown < 150 * 1024).then_some(grown)
    });
    println!("{grown} KiB for {} unread answers", 2 * STREAMS);
    assert_eq!(ledger.effects("k"), 1);
}

#[test]
fn an_answer_that_is_left_lying_is_cut_while_others_go_on() {
    let ledger = ledger();
    let limits = "[limits]\nwrite_timeout = \"500ms\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(limits).start();
    let mut connection = connect(&gateway);
    connection.write_all(&headers(1, &post("/large", "k"), true).bytes()).expect("sent");
    let mut stream = 1;
    eventually("the stream is reset", || {
        stream += 2;
        let head = headers(stream, &post("/small", &format!("k-{stream}")), true);
        connection.write_all(&head.bytes()).expect("an open connection");
        for stream in [0, stream] {
            let payload = 1000_u32.to_be_bytes().into();
            let update = Frame { kind: WINDOW_UPDATE, flags: 0, stream, payload };
            connection.write_all(&update.bytes()).expect("an open connection");
        }
        let mut is_reset = false;
        loop {
            let frame = Frame::read(&mut connection).expect("an open connection");
            is_reset |= frame.kind == RST_STREAM && frame.stream == 1;
            if frame.kind == DATA && frame.stream == stream && frame.flags & END_STREAM != 0 {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
        is_reset.then_some(())
    });
    gateway.expect_metric("selfsame_streams_cut_total", 1.0);
    // What has a key is there for the retry.
    let retry = gateway.post("/large").host("a").key("k").send();
    assert_eq!((retry.status, retry.body.len()), (201, LARGE));
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    assert_eq!(ledger.effects("k"), 1);
}
