//! Row 44: wherever a request is said to end, and whatever becomes of it, the upstream sees no
//! request that nobody sent.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use crate::harness::{Answer, Gate, Gateway, Ledger, Request, reply};

/// A body that would be a request of its own if anyone took it for one.
const SMUGGLED: &str = "POST /smuggled HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";

/// Reads what is left until the other end closes, whichever way it does.
fn rest(connection: &mut BufReader<TcpStream>) -> String {
    let mut rest = Vec::new();
    let _reset = connection.read_to_end(&mut rest);
    String::from_utf8_lossy(&rest).into_owned()
}

#[track_caller]
fn assert_nothing_smuggled(ledger: &Ledger, sent: usize) {
    let targets: Vec<_> = ledger.all().into_iter().map(|effect| effect.target).collect();
    assert!(targets.iter().all(|target| target != "/smuggled"), "{targets:?}");
    assert_eq!(targets.len(), sent, "{targets:?}");
}

#[test]
fn a_request_that_leaves_its_end_unclear_is_refused_and_its_connection_closed() {
    let (ledger, gateway, gate, running) = with_a_run_under_way();
    let finished = gateway.post("/charges").key("finished").body(b"x").send();
    assert_eq!(finished.status, 201);
    let chunked = format!("0\r\n\r\n{SMUGGLED}");
    let length = chunked.len().to_string();
    let games: [(&str, &[(&str, &str)]); 11] = [
        ("both", &[("Content-Length", &length), ("Transfer-Encoding", "chunked")]),
        (
            "both, the other way round",
            &[("Transfer-Encoding", "chunked"), ("Content-Length", &length)],
        ),
        ("both, spelled oddly", &[("content-LENGTH", &length), ("tRANSFER-encoding", "Chunked")]),
        ("two lengths", &[("Content-Length", "5"), ("Content-Length", &length)]),
        ("one length twice", &[("Content-Length", &length), ("Content-Length", &length)]),
        ("one length, written in two ways", &[("Content-Length", "5"), ("Content-Length", "05")]),
        ("a list of lengths", &[("Content-Length", "5, 5")]),
        ("an unknown coding", &[("Transfer-Encoding", "xchunked")]),
        ("a coding before chunked", &[("Transfer-Encoding", "gzip, chunked")]),
        ("chunked twice", &[("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")]),
        ("a coding after chunked", &[("Transfer-Encoding", "chunked, identity")]),
    ];
    // Keys that would run, replay, be in progress, be reused; and none.
    let keys = [("/charges", "game"), ("/charges", "finished"), ("/charges", "running")];
    for (target, key) in keys.into_iter().chain([("/reused", "finished"), ("/charges", "")]) {
        for (what, headers) in games {
            let request = gateway.post(target).body(chunked.as_bytes());
            let request = if key.is_empty() { request } else { request.key(key) };
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(name, value));
            let mut connection = request.open();
            let answer = request.send_on(&mut connection).expect("an answer");
            assert_eq!(answer.status, 400, "{what}, {key:?}");
            assert_eq!(rest(&mut connection), "", "{what}, {key:?}: the connection is closed");
        }
    }
    assert_nothing_smuggled(&ledger, 2);
    gate.open();
    let answer = Answer::read(&mut BufReader::new(running)).expect("an answer");
    assert_eq!(answer.status, 201);
}

#[test]
fn a_line_feed_alone_ends_no_line() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let head = "POST /charges HTTP/1.1\r\nHost: a\r\nX-Own: 1\r\nContent-Length: 0\r\n\r\n";
    for at in head.match_indices("\r\n").map(|(at, _)| at) {
        let mut connection = gateway.post("/charges").open();
        let with_line_feed = format!("{}{}{SMUGGLED}", &head[..at], &head[at + 1..]);
        connection.get_mut().write_all(with_line_feed.as_bytes()).expect("sent");
        let answer = Answer::read(&mut connection).expect("an answer");
        assert_eq!(answer.status, 400, "{at}");
        assert!(answer.text().contains("unclear where the request ends"), "{at}");
        assert_eq!(rest(&mut connection), "", "{at}: the connection is closed");
    }
    assert_nothing_smuggled(&ledger, 0);
}

#[test]
fn zeros_before_the_size_of_a_chunk_hide_nothing_behind_it() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    // Whoever reads only the zeros takes the chunk for trailers, and what follows for a body.
    let inner = "\r\nPOST / HTTP/1.1\r\nContent-Length: 10000\r\n\r\n";
    let chunk = format!("{:0>300x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    let both = "Content-Length: 3\nTransfer-Encoding: chunked\n";
    let hidden = format!("POST /smuggled HTTP/1.1\nHost: a\n{both}\n3\r\nabc\r\n0\r\n\r\n");
    let request = gateway.post("/charges").header("Transfer-Encoding", "chunked").key("k");
    let request = request.body(format!("{chunk}{hidden}").as_bytes());
    let mut connection = request.open();
    assert_eq!(request.send_on(&mut connection).expect("an answer").status, 400);
    assert_eq!(rest(&mut connection), "", "the connection is closed");
    assert_nothing_smuggled(&ledger, 0);
}

#[test]
fn a_length_is_passed_on_in_its_shortest_form() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let padded = gateway.post("/charges").header("Content-Length", "0002").body(b"{}");
    assert_eq!(padded.send().status, 201);
    assert_eq!(ledger.all()[0].header("content-length"), Some("2"));
}

#[test]
fn an_unclear_request_after_clear_ones_is_refused_too() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let clear = gateway.post("/charges").key("clear").json(SMUGGLED);
    let chunked = gateway.post("/charges").header("Transfer-Encoding", "chunked").key("chunked");
    let chunked = chunked.body(b"3;a=b\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n");
    let unclear = gateway.post("/charges").key("unclear").body(b"0\r\n\r\n");
    let unclear = unclear.header("Content-Length", "5").header("Transfer-Encoding", "chunked");

    let mut connection = clear.open();
    for request in [&clear, &chunked, &clear, &chunked] {
        assert_eq!(request.send_on(&mut connection).expect("an answer").status, 201);
    }
    assert_eq!(unclear.send_on(&mut connection).expect("an answer").status, 400);
    assert_eq!(rest(&mut connection), "");
    assert_nothing_smuggled(&ledger, 2);
}

/// Every way a request with a body can end, each under its name.
fn every_way(gateway: &Gateway) -> Vec<(&'static str, Request, u16)> {
    let post = |key: &str| gateway.post("/charges").key(key).json(SMUGGLED);
    let chunked = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    let chunks = |key: &str| {
        let request = gateway.post("/charges").key(key).header("Transfer-Encoding", "chunked");
        request.body(chunked.as_bytes())
    };
    vec![
        ("fresh", post("fresh"), 201),
        ("replayed", post("fresh"), 201),
        ("fresh, chunked", chunks("chunked"), 201),
        ("replayed, chunked", chunks("chunked"), 201),
        ("in progress", post("running"), 409),
        ("in progress, but another request", chunks("running"), 422),
        ("reused", gateway.post("/charges?other").key("fresh").json(SMUGGLED), 422),
        ("reused, chunked", chunks("fresh"), 422),
        ("invalid key", post("a b"), 400),
        ("invalid key, chunked", chunks("a b"), 400),
        ("missing key", gateway.post("/required").json(SMUGGLED), 400),
        ("missing tenant", post("cookie").header("Cookie", "a=b"), 401),
        ("unkeyed", gateway.post("/charges").json(SMUGGLED), 201),
        ("get", gateway.request("GET", "/charges").json(SMUGGLED), 201),
    ]
}

/// A gateway whose key `running` is in flight until the gate opens.
fn with_a_run_under_way() -> (Ledger, Gateway, Gate, TcpStream) {
    let ledger = Ledger::start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        if effect.header("idempotency-key") == Some("running") {
            at_gate.pass();
        }
        reply(client, 201, &[], &effect.number.to_string())
    });
    let settings = "[[route]]\nmatch = \"POST /required\"\nkey = \"required\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let running = gateway.post("/charges").key("running").json(SMUGGLED).begin();
    ledger.wait_for("running", 1);
    (ledger, gateway, gate, running)
}

#[test]
fn no_body_is_left_on_a_kept_alive_connection() {
    let (ledger, gateway, gate, running) = with_a_run_under_way();
    let mut expected = ledger.all().len();
    for (what, request, status) in every_way(&gateway) {
        let mut connection = request.open();
        let answer = request.send_on(&mut connection).expect("an answer");
        assert_eq!(answer.status, status, "{what}");
        let next =
            gateway.post("/next").key(&format!("after {what}").replace([' ', ','], "-")).body(b"x");
        // The connection is kept, and then it is in step; or it is closed.
        if let Ok(answer) = next.send_on(&mut connection) {
            assert_eq!(
                (answer.status, answer.header("idempotent-replayed")),
                (201, None),
                "{what}"
            );
            expected += 1;
        }
        let is_run = status == 201 && !what.starts_with("replayed");
        expected += usize::from(is_run);
        assert_nothing_smuggled(&ledger, expected);
    }
    gate.open();
    let answer = Answer::read(&mut BufReader::new(running)).expect("an answer");
    assert_eq!(answer.status, 201);
}

#[test]
fn a_body_that_comes_after_its_answer_is_not_a_request() {
    let ledger = Ledger::start();
    let settings = "[idempotency]\nmax_request_body = \"1KiB\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let length = SMUGGLED.len().to_string();
    let early = [
        ("invalid key", gateway.post("/charges").key("a b").header("Content-Length", &length), 400),
        (
            "missing tenant",
            gateway
                .post("/charges")
                .key("k")
                .header("Cookie", "a=b")
                .header("Content-Length", &length),
            401,
        ),
        ("too large", gateway.post("/charges").key("k").header("Content-Length", "100000"), 413),
        (
            "chunked",
            gateway.post("/charges").key("a b").header("Transfer-Encoding", "chunked"),
            400,
        ),
    ];
    for (what, request, status) in early {
        let mut connection = request.open();
        assert_eq!(request.send_on(&mut connection).expect("an answer").status, status, "{what}");
        let _closed = connection.get_mut().write_all(SMUGGLED.as_bytes());
        let _closed = connection.get_mut().shutdown(std::net::Shutdown::Write);
        assert_eq!(rest(&mut connection), "", "{what}: nothing more is answered");
    }
    assert_nothing_smuggled(&ledger, 0);
}

#[test]
fn pipelined_requests_are_answered_each_in_its_turn() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let post = |key: &str, body: &str| gateway.post("/charges").key(key).json(body);
    let requests = [post("one", "1"), post("one", "1"), post("one", "2"), post("two", "2")];
    let bytes: Vec<u8> = requests.iter().flat_map(Request::bytes).collect();

    let mut connection = requests[0].open();
    connection.get_mut().write_all(&bytes).expect("sent");
    let answers: Vec<_> =
        (0..4).map(|_| Answer::read(&mut connection).expect("an answer")).collect();

    assert_eq!(answers[0].status, 201);
    answers[1].replays(&answers[0]);
    answers[2].refused("key-reused");
    assert_eq!((answers[3].status, answers[3].header("idempotent-replayed")), (201, None));
    assert_nothing_smuggled(&ledger, 2);
}
