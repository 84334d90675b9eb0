//! Row 42: clients that flood a connection of HTTP/2 with frames that carry nothing. It is closed, and
//! honest clients are not.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{
    DATA, Frame, Gateway, HEADERS, Http2, Ledger, PATIENCE, PREFACE, Then, headers, packed, reply,
};

const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

/// More frames than a client may send without asking for anything, several times over.
const FLOOD: usize = 60_000;

const CUT: &str = r#"selfsame_connections_cut_total{reason="h2_flood"}"#;

fn control(kind: u8, stream: u32, payload: &[u8]) -> Frame {
    Frame { kind, flags: 0, stream, payload: payload.into() }
}

fn connect(gateway: &Gateway) -> TcpStream {
    let mut connection = TcpStream::connect(gateway.address).expect("a connection");
    connection.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    connection.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    connection.write_all(PREFACE).expect("sent");
    connection.write_all(&Frame::settings().bytes()).expect("sent");
    connection
}

/// Whether the gateway closes the connection for that many such frames. What it says is read, and thrown away.
fn is_cut(mut connection: TcpStream, frame: &Frame) -> bool {
    let mut reader = connection.try_clone().expect("a second handle");
    let closed = std::thread::spawn(move || {
        let mut said = [0; 16 * 1024];
        loop {
            match reader.read(&mut said) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    });
    let batch = frame.bytes().repeat(100);
    // The rest of a flood cannot be sent once it is noticed.
    let _closed = (0..FLOOD / 100).try_for_each(|_| connection.write_all(&batch));
    closed.join().expect("no panic")
}

fn head(method: &str) -> Vec<u8> {
    packed(&[(":method", method), (":scheme", "http"), (":path", "/charges"), (":authority", "a")])
}

#[test]
fn floods_of_control_frames_are_cut() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let floods = [
        ("PING", control(PING, 0, &[0; 8])),
        ("SETTINGS", control(SETTINGS, 0, &[])),
        ("PRIORITY", control(PRIORITY, 1, &[0, 0, 0, 0, 0])),
        ("WINDOW_UPDATE", control(WINDOW_UPDATE, 0, &[0, 0, 0, 1])),
        ("unknown", control(0x77, 0, &[])),
    ];
    let mut cut = 0.0;
    for (name, frame) in floods {
        assert!(is_cut(connect(&gateway), &frame), "{name}");
        cut += 1.0;
        gateway.expect_metric(CUT, cut);
    }
    // Empty DATA, on a request that is open: h2 closes the connection before we do.
    let mut connection = connect(&gateway);
    connection.write_all(&headers(1, &head("POST"), false).bytes()).expect("sent");
    assert!(is_cut(connection, &control(DATA, 1, &[])), "DATA");
    assert_eq!(gateway.post("/charges").key("k").json("{}").send().status, 201);
}

#[test]
fn a_client_that_updates_its_window_for_each_message_is_not_cut() {
    const MESSAGES: usize = 20_000;
    let ledger = Ledger::start();
    ledger.behave(|_, client| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        client.write_all(head).expect("sent");
        for _ in 0..MESSAGES / 100 {
            client.write_all(b"5\r\nhello\r\n".repeat(100).as_slice()).expect("sent");
        }
        client.write_all(b"0\r\n\r\n").expect("sent");
        Then::KeepOpen
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let mut client = connect(&gateway);
    client.write_all(&headers(1, &head("GET"), true).bytes()).expect("sent");
    let mut taken = 0;
    while taken < MESSAGES * 5 {
        let frame = Frame::read(&mut client).expect("an open connection");
        if frame.kind == DATA && !frame.payload.is_empty() {
            taken += frame.payload.len();
            let increment = u32::try_from(frame.payload.len()).expect("short").to_be_bytes();
            for stream in [0, 1] {
                let update = control(WINDOW_UPDATE, stream, &increment);
                client.write_all(&update.bytes()).expect("an open connection");
            }
            client.write_all(&control(PING, 0, &[0; 8]).bytes()).expect("sent");
        }
    }
    assert_eq!(gateway.metric(CUT), 0.0);
}

#[test]
fn a_client_that_pings_for_each_request_is_not_cut() {
    const REQUESTS: u32 = 400;
    const PINGS: usize = 40;
    let ledger = Ledger::start();
    // Answers without a body: they earn nothing.
    ledger.behave(|_, client| reply(client, 200, &[], ""));
    let gateway = Gateway::in_front_of(&ledger).start();
    let mut client = connect(&gateway);
    let pings = control(PING, 0, &[0; 8]).bytes().repeat(PINGS);
    for number in 0..REQUESTS {
        let stream = 1 + 2 * number;
        client.write_all(&headers(stream, &head("GET"), true).bytes()).expect("sent");
        client.write_all(&pings).expect("an open connection");
        loop {
            let frame = Frame::read(&mut client).expect("an open connection");
            if frame.kind == HEADERS && frame.stream == stream {
                break;
            }
        }
    }
    assert_eq!(gateway.metric(CUT), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_that_are_taken_back_once_answered_are_not_cut() {
    let ledger = Ledger::start();
    ledger.behave(|_, client| reply(client, 200, &[], "ok"));
    let gateway = Gateway::in_front_of(&ledger).start();
    let client = Http2::connect(gateway.address).await;
    for _ in 0..300 {
        let get = http::Request::get("http://a/").body(()).expect("a request");
        let (answer, mut stream) = client.begin(get, true).await;
        assert_eq!(answer.await.expect("an answer").status(), 200);
        stream.send_reset(h2::Reason::CANCEL);
    }
    assert_eq!(gateway.metric(CUT), 0.0);
}
