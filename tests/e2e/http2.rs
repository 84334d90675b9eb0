//! Clients that speak HTTP/2, on the port where others speak HTTP/1.1: the same promises, and the
//! faults that only many requests on one connection can have.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use bytes::Bytes;
use futures_util::future::join_all;
use h2::Reason;
use http::{HeaderMap, HeaderName, HeaderValue, Request};

use crate::harness::{
    Answer, CONTINUATION, Frame, GOAWAY, Gateway, Http2, Ledger, PATIENCE, PREFACE, Then,
    eventually, headers, read, read_up_to, reply, reset,
};

/// A request with this key. The authority is the client's own business.
fn post<T>(target: &str, key: &str, body: T) -> Request<T> {
    Request::post(format!("http://api.example.com:8443{target}"))
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body(body)
        .expect("a request")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_the_same_over_either_protocol() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let client = Http2::connect(gateway.address).await;
    let over_http1 = |key: &str| gateway.post("/charges").key(key).json("{}");

    let first = client.send(post("/charges", "a", "{}")).await;
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None));
    client.send(post("/charges", "a", "{}")).await.replays(&first);
    over_http1("a").send().replays(&first);
    client.send(post("/charges", "a", "[]")).await.refused("key-reused");

    let first = over_http1("b").send();
    client.send(post("/charges", "b", "{}")).await.replays(&first);
    assert_eq!((ledger.effects("a"), ledger.effects("b")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_of_http1_sees_a_request_of_http1() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let client = Http2::connect(gateway.address).await;
    let mut request = post("/charges?a=1", "k", "{}");
    request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer ann"));
    request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    for cookie in ["a=1", "b=2", "c=3"] {
        request.headers_mut().append("cookie", HeaderValue::from_static(cookie));
    }
    assert_eq!(client.send(request).await.status, 201);

    let effect = &ledger.all()[0];
    assert_eq!((&*effect.method, &*effect.target), ("POST", "/charges?a=1"));
    let lines = |name: &str| -> Vec<&str> {
        let lines = effect.headers.iter().filter(|(found, _)| found == name);
        lines.map(|(_, value)| value.as_str()).collect()
    };
    assert_eq!(lines("host"), ["api.example.com:8443"]);
    assert_eq!(lines("cookie"), ["a=1; b=2; c=3"]);
    assert_eq!(lines("content-length"), ["2"]);
    for absent in ["te", "transfer-encoding", "connection", ":authority"] {
        assert_eq!(lines(absent), [""; 0], "{absent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rivals_on_one_connection_have_one_effect() {
    let (ledger, gate) = Ledger::gated(|_| "once".to_owned());
    let gateway = Gateway::in_front_of(&ledger).start();
    let client = Http2::connect(gateway.address).await;
    let rivals = join_all((0..64).map(|_| client.send(post("/charges", "k", "{}"))));
    let opener = async {
        ledger.wait_for("k", 1);
        let others = client.send(post("/charges", "k", "{}")).await;
        others.refused("in-progress");
        gate.open();
    };
    let (answers, ()) = tokio::join!(rivals, opener);

    let (ran, others): (Vec<Answer>, Vec<Answer>) = answers
        .into_iter()
        .partition(|answer| answer.status == 201 && answer.header("idempotent-replayed").is_none());
    let [first] = &ran[..] else { panic!("one of them ran, not {}", ran.len()) };
    for other in others {
        match other.status {
            201 => other.replays(first),
            _ => drop(other.refused("in-progress")),
        }
    }
    client.send(post("/charges", "k", "{}")).await.replays(first);
    assert_eq!(ledger.effects("k"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_stream_does_not_cancel_the_work() {
    let (ledger, gate) = Ledger::gated(|_| "done after all".to_owned());
    let gateway = Gateway::in_front_of(&ledger).start();
    let client = Http2::connect(gateway.address).await;

    let (answer, mut stream) = client.begin(post("/charges", "k", ()), false).await;
    stream.send_data(Bytes::from_static(b"{}"), true).expect("sent");
    ledger.wait_for("k", 1);
    stream.send_reset(Reason::CANCEL);
    assert!(read(answer).await.is_err());
    client.send(post("/charges", "k", "{}")).await.refused("in-progress");
    gate.open();

    let mut retry = post("/charges", "k", "{}");
    retry.headers_mut().insert("prefer", HeaderValue::from_static("wait=10"));
    let retry = client.send(retry).await;
    assert_eq!((retry.status, &*retry.text()), (201, "done after all"));
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    assert_eq!(ledger.effects("k"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_cut_ran_nothing() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let client = Http2::connect(gateway.address).await;

    let (answer, mut stream) = client.begin(post("/charges", "k", ()), false).await;
    stream.send_data(Bytes::from_static(b"{"), false).expect("sent");
    stream.send_reset(Reason::CANCEL);
    assert!(read(answer).await.is_err());
    // A length that is not kept to, which over HTTP/2 anyone can see.
    let mut short = post("/charges", "k", ());
    short.headers_mut().insert("content-length", HeaderValue::from_static("3"));
    let (answer, mut stream) = client.begin(short, false).await;
    stream.send_data(Bytes::from_static(b"{}"), true).expect("sent");
    assert!(read(answer).await.map_or(true, |answer| answer.status == 400));

    let retry = client.send(post("/charges", "k", "{}")).await;
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (201, None));
    assert_eq!(ledger.of("k")[0].header("selfsame-attempt"), Some("1"));
    assert_eq!(ledger.effects("k"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_do_not_wait_for_the_body_and_leave_the_connection_open() {
    let ledger = Ledger::start();
    let settings = "[[route]]\nmatch = \"POST /required\"\nkey = \"required\"\n\
        [[route]]\nmatch = \"POST /small\"\nmax_request_body = \"1KiB\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let client = Http2::connect(gateway.address).await;
    let with = |target: &str, key: &str, name: &'static str, value: &'static str| {
        let mut request = post(target, key, ());
        request.headers_mut().insert(name, HeaderValue::from_static(value));
        request
    };
    let mut missing = with("/required", "k", "x", "1");
    missing.headers_mut().remove("idempotency-key");
    let refused = [
        ("missing-key", missing),
        ("invalid-key", post("/charges", "a b", ())),
        ("missing-tenant", with("/charges", "k", "cookie", "a=b")),
        ("body-too-large", with("/small", "k", "content-length", "1025")),
    ];
    for (slug, request) in refused {
        let (answer, _unsent) = client.begin(request, false).await;
        read(answer).await.expect("an answer").refused(slug);
    }
    let endless = async {
        let (answer, mut stream) = client.begin(post("/small", "k", ()), false).await;
        for _ in 0..8 {
            stream.send_data(Bytes::from(vec![b'x'; 512]), false).expect("sent");
        }
        read(answer).await.expect("an answer")
    };
    endless.await.refused("body-too-large");
    assert_eq!(ledger.all().len(), 0);
    assert_eq!(client.send(post("/small", "k", "{}")).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_pass_both_ways_and_are_given_again() {
    let upstream = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let gateway = Gateway::before(upstream.local_addr().expect("bound")).start();
    let serving = std::thread::spawn(move || {
        let (mut server, _) = upstream.accept().expect("the gateway connects");
        server.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let request = read_up_to(&mut server, "x-sum: 7\r\n\r\n");
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Check\r\n\r\n";
        let answer = format!("{head}4\r\nbody\r\n0\r\nX-Check: 9\r\n\r\n");
        server.write_all(answer.as_bytes()).expect("written");
        request
    });
    let client = Http2::connect(gateway.address).await;
    let request = || {
        let mut request = post("/charges", "k", ());
        request.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
        request
    };
    let mut answers = Vec::new();
    for _ in 0..2 {
        let (answer, mut stream) = client.begin(request(), false).await;
        stream.send_data(Bytes::from_static(b"{}"), false).expect("sent");
        let sum = (HeaderName::from_static("x-sum"), HeaderValue::from_static("7"));
        stream.send_trailers(HeaderMap::from_iter([sum])).expect("sent");
        answers.push(read(answer).await.expect("an answer"));
    }
    assert_eq!(answers[0].text(), "body");
    assert_eq!(answers[0].trailers, [("x-check".to_owned(), "9".to_owned())]);
    answers[1].replays(&answers[0]);
    let request = serving.join().expect("no panic");
    assert!(request.contains("transfer-encoding: chunked"), "{request}");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_shutdown_running_work_ends_and_idle_connections_close() {
    let (ledger, gate) = Ledger::gated(|_| "just in time".to_owned());
    let gateway = Gateway::in_front_of(&ledger).start();
    let (busy, idle) =
        (Http2::connect(gateway.address).await, Http2::connect(gateway.address).await);
    let silent = TcpStream::connect(gateway.address).expect("a connection");
    let running = busy.send(post("/charges", "k", "{}"));
    let stopping = async {
        ledger.wait_for("k", 1);
        gateway.signal("TERM");
        idle.closed().await.expect("a graceful end");
        gate.open();
    };
    let (answer, ()) = tokio::join!(running, stopping);
    assert_eq!((answer.status, &*answer.text()), (201, "just in time"));
    busy.closed().await.expect("a graceful end");
    let (status, setup) = gateway.wait();
    assert!(status.success(), "{status}");
    drop(silent);

    let gateway = setup.start();
    let client = Http2::connect(gateway.address).await;
    client.send(post("/charges", "k", "{}")).await.replays(&answer);
    assert_eq!(ledger.effects("k"), 1);
}

/// The fewest fields a request can have: `POST http /`, and an authority of one letter.
const FIELDS: [u8; 6] = [0x83, 0x86, 0x84, 0x41, 0x01, b'a'];

/// The same with a key.
fn fields_with(key: &str) -> Vec<u8> {
    let name = "idempotency-key";
    let length = |text: &str| u8::try_from(text.len()).expect("short");
    let key_field = [&[0, length(name)], name.as_bytes(), &[length(key)], key.as_bytes()].concat();
    [&FIELDS[..], &key_field].concat()
}

/// Writes all of it, if it can, and reads why the connection is closed.
fn reason_to_close(gateway: &Gateway, flood: &[u8]) -> Reason {
    let mut connection = gateway.post("/").connect().expect("a connection");
    let mut writer = connection.try_clone().expect("a second handle");
    std::thread::scope(|scope| {
        // It may be closed before all of it is written.
        scope.spawn(move || {
            drop(writer.write_all(&[PREFACE, &Frame::settings().bytes(), flood].concat()))
        });
        loop {
            let frame = Frame::read(&mut connection).expect("a word before it is closed");
            if frame.kind == GOAWAY {
                let code = frame.payload[4..8].try_into().expect("four bytes");
                return u32::from_be_bytes(code).into();
            }
        }
    })
}

#[test]
fn a_flood_of_resets_ends_its_own_connection_and_leaves_no_claim_behind() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let mut flood = Vec::new();
    for stream in (1..).step_by(2).take(5000) {
        flood.extend(headers(stream, &fields_with(&format!("k-{stream}")), true).bytes());
        flood.extend(reset(stream, Reason::CANCEL.into()).bytes());
    }
    let before = gateway.resident_kib();
    assert_eq!(reason_to_close(&gateway, &flood), Reason::ENHANCE_YOUR_CALM);
    let grown = gateway.resident_kib().saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB more");
    assert!(ledger.all().len() < 1000, "{} of 5000 were passed on", ledger.all().len());

    gateway.expect_metric("selfsame_in_flight", 0.0);
    for key in ["k-1", "k-3", "k-99"] {
        assert_eq!(gateway.post("/").key(key).send().status, 201, "{key}");
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
}

#[test]
fn a_head_without_end_ends_its_own_connection_and_holds_little_memory() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let before = gateway.resident_kib();
    let mut begun = headers(1, &fields_with("k"), true);
    begun.flags = 0;
    let payload = fields_with("more").split_off(FIELDS.len());
    let more = Frame { kind: CONTINUATION, flags: 0, stream: 1, payload };
    let flood = [begun.bytes(), more.bytes().repeat(200_000)].concat();
    assert_eq!(reason_to_close(&gateway, &flood), Reason::ENHANCE_YOUR_CALM);
    let grown = gateway.resident_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB more");
    assert_eq!(ledger.all().len(), 0);
    assert_eq!(gateway.post("/").key("k").send().status, 201, "it serves on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_too_large_is_refused() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let client = Http2::connect(gateway.address).await;
    let mut request = post("/charges", "k", "");
    let large = HeaderValue::from_str(&"x".repeat(40 * 1024)).expect("valid");
    request.headers_mut().insert("x-large", large);
    assert_eq!(client.send(request).await.status, 431);
    assert_eq!(ledger.all().len(), 0);
}

#[test]
fn either_protocol_is_recognised_however_slowly_it_begins() {
    let ledger = Ledger::start();
    ledger.behave(|_, client| {
        reply(client, 200, &[], "");
        Then::KeepOpen
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("k").json("{}");
    let drip = |bytes: &[u8]| {
        let mut connection = request.connect().expect("a connection");
        for byte in bytes.chunks(1) {
            connection.write_all(byte).expect("written");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        connection
    };
    // Both begin with the same letter.
    read_up_to(&mut drip(&request.bytes()), "HTTP/1.1 200");
    let mut connection = drip(&[PREFACE, &Frame::settings().bytes()].concat());
    connection.write_all(&headers(1, &FIELDS, true).bytes()).expect("written");
    eventually("an answer", || {
        let frame = Frame::read(&mut connection).expect("a frame");
        (frame.stream == 1).then_some(())
    });
    // And what only looks like it is a request of HTTP/1.1.
    read_up_to(&mut drip(b"PRI /x HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 200");
    read_up_to(&mut drip(b"PRI * HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 400");
}

#[test]
fn curl_agrees() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let curl = |more: &[&str]| {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--include", "--http2-prior-knowledge"])
            .args(["--header", "Idempotency-Key: curl", "--data", "{}"])
            .args(more)
            .arg(format!("http://{}/charges", gateway.address))
            .output();
        let output = output.expect("curl runs; in Debian it is in the package curl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n")
    };
    let (first, retry) = (curl(&[]), curl(&[]));
    assert!(first.starts_with("HTTP/2 201"), "{first}");
    assert!(retry.contains("\nidempotent-replayed: true\n"), "{retry}");
    let body = |answer: &str| answer.split_once("\n\n").expect("a body").1.to_owned();
    assert_eq!(body(&first), body(&retry));
    // A refusal that does not wait for the body is still read by a client that is busy sending it.
    for _ in 0..20 {
        let refused = curl(&["--header", "Idempotency-Key: another"]);
        assert!(refused.contains("#invalid-key"), "{refused}");
    }
    assert_eq!(ledger.effects("curl"), 1);
}
