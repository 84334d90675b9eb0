//! Rows 15 and 42: clients that are too many, too slow or too large. They are cut off at their limits,
//! and others do not notice.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;

use crate::harness::{
    Answer, Gate, Gateway, Http2, Ledger, Request, Then, eventually, read, reply,
};

/// How long a limit of 300 ms may take to be noticed on a busy machine.
const SOON: Duration = Duration::from_secs(5);

fn cut(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric(&format!(r#"selfsame_connections_cut_total{{reason="{reason}"}}"#))
}

fn expect_cut(gateway: &Gateway, reason: &str, connections: f64) {
    eventually("connections are cut", || (cut(gateway, reason) == connections).then_some(()));
}

/// Waits until the gateway has closed a connection, and returns what it said before.
#[expect(clippy::disallowed_methods, reason = "the gateway is another process: its time is real")]
fn closed(mut connection: &TcpStream) -> String {
    let begun = Instant::now();
    let mut said = Vec::new();
    // A reset is as good an end as any.
    let _reset = connection.read_to_end(&mut said);
    assert!(begun.elapsed() < SOON, "closed after {:?}", begun.elapsed());
    String::from_utf8_lossy(&said).into_owned()
}

/// Writes a byte now and then, until the connection is closed.
fn drip(connection: &TcpStream, bytes: &[u8]) {
    let mut writer = connection.try_clone().expect("a second handle");
    for byte in bytes.iter().cycle().take(200) {
        if writer.write_all(&[*byte]).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("nobody minded");
}

#[test]
fn a_head_that_does_not_end_in_time_is_cut_off() {
    let ledger = Ledger::start();
    let gateway =
        Gateway::in_front_of(&ledger).with("[limits]\nhead_timeout = \"300ms\"\n").start();
    let request = gateway.post("/charges").key("k").json("{}");
    let silent = request.connect().expect("a connection");
    assert_eq!(closed(&silent), "");

    let slow = request.connect().expect("a connection");
    (&slow).write_all(b"POST /charges HTTP/1.1\r\nHost: a\r\nX-Slow: ").expect("written");
    drip(&slow, b"x");
    assert_eq!(closed(&slow), "");
    // The head of a second request has no more time than the first.
    let mut used = request.open();
    let first = request.send_on(&mut used).expect("an answer");
    used.get_mut().write_all(b"POST /charges HTTP/1.1\r\n").expect("written");
    assert_eq!(closed(used.get_ref()), "");

    expect_cut(&gateway, "head", 3.0);
    request.send().replays(&first);
    assert_eq!(ledger.all().len(), 1);
}

/// Time before the first byte counts for the least rate, which may refuse a body first.
const BODY: &str = "[limits]\nbody_timeout = \"300ms\"\nmin_body_rate = \"off\"\n";
/// Limits of a body that a busy machine may delay.
const PATIENT_BODY: &str = "[limits]\nbody_timeout = \"3s\"\nmin_body_rate = \"off\"\n";

#[test]
fn a_body_that_stands_still_is_cut_off_and_its_key_is_free() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(BODY).start();
    let request = gateway.post("/charges").key("k").json(r#"{"amount":10}"#);
    let bytes = request.bytes();
    let slow = request.connect().expect("a connection");
    (&slow).write_all(&bytes[..bytes.len() - 1]).expect("written");
    assert_eq!(closed(&slow), "");
    expect_cut(&gateway, "body", 1.0);
    assert_eq!(ledger.all().len(), 0);
    assert_eq!(request.send().status, 201);
    assert_eq!(ledger.of("k")[0].header("selfsame-attempt"), Some("1"));

    // One that goes on, however slowly, is waited for: in all for longer than it may stand still.
    let gateway = Gateway::in_front_of(&ledger).with(PATIENT_BODY).start();
    let request = gateway.post("/charges").key("slow").json(r#"{"amount":10}"#);
    let bytes = request.bytes();
    let begun = &bytes[..bytes.len() - 10];
    let slow = request.connect().expect("a connection");
    (&slow).write_all(begun).expect("written");
    for byte in bytes[begun.len()..].chunks(1) {
        std::thread::sleep(Duration::from_millis(400));
        (&slow).write_all(byte).expect("written");
    }
    assert_eq!(Answer::read(&mut BufReader::new(slow)).expect("an answer").status, 201);
    assert_eq!(ledger.of("slow")[0].header("selfsame-attempt"), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http2_a_body_that_stands_still_is_refused_and_others_go_on() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(BODY).start();
    let client = Http2::connect(gateway.address).await;
    let post = || http::Request::post("http://a/charges").header("idempotency-key", "k");
    let (answer, mut stream) = client.begin(post().body(()).expect("a request"), false).await;
    stream.send_data(Bytes::from_static(b"{"), false).expect("sent");
    read(answer).await.expect("an answer").refused("body-incomplete");
    assert_eq!(ledger.all().len(), 0);
    assert_eq!(client.send(post().body("{}").expect("a request")).await.status, 201);
}

/// A request whose answer is more than any buffer on the way holds, in front of who says it.
fn large_answer(ledger: &Ledger) -> usize {
    const MIB: usize = 1024 * 1024;
    let body = "x".repeat(16 * MIB);
    ledger.behave(move |_, client| reply(client, 201, &[], &body));
    16 * MIB
}

const LARGE: &str =
    "[limits]\nwrite_timeout = \"500ms\"\n[idempotency]\nmax_response_body = \"64MiB\"\n";

#[test]
fn an_answer_that_nobody_takes_is_there_for_the_retry() {
    let ledger = Ledger::start();
    let bytes = large_answer(&ledger);
    let gateway = Gateway::in_front_of(&ledger).with(LARGE).start();
    let request = gateway.post("/charges").key("k").json("{}");
    let unread = request.begin();
    expect_cut(&gateway, "write", 1.0);
    let retry = request.send();
    assert_eq!((retry.status, retry.body.len()), (201, bytes));
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    assert_eq!(ledger.effects("k"), 1);
    drop(unread);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http2_an_answer_that_nobody_takes_ends_its_connection() {
    let ledger = Ledger::start();
    let bytes = large_answer(&ledger);
    let gateway = Gateway::in_front_of(&ledger).with(LARGE).start();
    let post = || http::Request::post("http://a/charges").header("idempotency-key", "k");
    let client = Http2::connect(gateway.address).await;
    let (answer, _sent) = client.begin(post().body(()).expect("a request"), true).await;
    // Its head is read, and nothing is said of the rest.
    let mut unread = answer.await.expect("a head").into_body();
    let _lost = client.closed().await;
    expect_cut(&gateway, "write", 1.0);
    let mut taken = 0;
    while let Some(Ok(data)) = unread.data().await {
        taken += data.len();
    }
    assert!(taken < bytes / 2, "{taken} bytes");

    let client = Http2::connect(gateway.address).await;
    let retry = client.send(post().body("").expect("a request")).await;
    assert_eq!((retry.status, retry.body.len()), (201, bytes));
    assert_eq!(ledger.effects("k"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_request_are_closed() {
    let ledger = Ledger::start();
    let gateway =
        Gateway::in_front_of(&ledger).with("[limits]\nidle_timeout = \"300ms\"\n").start();
    let over_http2 = Http2::connect(gateway.address).await;
    let request = gateway.request("GET", "/");
    let mut used = request.open();
    assert_eq!(request.send_on(&mut used).expect("an answer").status, 201);
    assert_eq!(closed(used.get_ref()), "");
    over_http2.closed().await.expect("a graceful end");
    expect_cut(&gateway, "idle", 2.0);
}

#[test]
fn what_is_never_answered_is_let_go_though_its_client_cannot_be_seen_to_leave() {
    let (ledger, gate) = Ledger::gated(|_| "late".to_owned());
    let gateway =
        Gateway::in_front_of(&ledger).with("[limits]\nanswer_timeout = \"300ms\"\n").start();
    let waiting = gateway.request("GET", "/").begin();
    assert_eq!(closed(&waiting), "");
    expect_cut(&gateway, "answer", 1.0);
    gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_are_too_large_are_refused() {
    let ledger = Ledger::start();
    let limits = "[limits]\nmax_headers = 20\nmax_header_bytes = \"4KiB\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(limits).start();
    let many = (0..30).fold(gateway.post("/").key("k"), |request, number| {
        request.header(&format!("X-{number}"), "x")
    });
    let large = gateway.post("/").key("k").header("X-Large", &"x".repeat(5000));
    let endless = Request::new(gateway.address, "POST", &format!("/{}", "x".repeat(5000)));
    for (name, request) in [("many", many), ("large", large), ("endless", endless)] {
        assert_eq!(request.send().status, 431, "{name}");
    }

    let client = Http2::connect(gateway.address).await;
    let post = || http::Request::post("http://a/").header("idempotency-key", "k").body("");
    let mut many = post().expect("a request");
    for number in 0..30 {
        let name = http::HeaderName::try_from(format!("x-{number}")).expect("a name");
        many.headers_mut().insert(name, HeaderValue::from_static("x"));
    }
    let mut large = post().expect("a request");
    let value = HeaderValue::from_str(&"x".repeat(5000)).expect("a value");
    large.headers_mut().insert("x-large", value);
    for (name, request) in [("many", many), ("large", large)] {
        assert_eq!(client.send(request).await.status, 431, "{name}");
    }
    assert_eq!(ledger.all().len(), 0);
    assert_eq!(client.send(post().expect("a request")).await.status, 201);
}

#[test]
fn one_connection_too_many_is_turned_away_and_the_next_is_served_once_there_is_room() {
    let ledger = Ledger::start();
    let limits = "[limits]\nmax_connections = 4\nmax_connections_per_address = 10\n";
    let gateway = Gateway::in_front_of(&ledger).with(limits).start();
    let request = gateway.request("GET", "/");
    let mut open: Vec<_> = (0..4).map(|_| request.open()).collect();
    for connection in &mut open {
        assert_eq!(request.send_on(connection).expect("an answer").status, 201);
    }
    for _ in 0..20 {
        assert!(request.try_send().is_err());
    }
    let refused = r#"selfsame_refused_connections_total{reason="max_connections"}"#;
    gateway.expect_metric(refused, 20.0);
    // Those that are there are served on.
    for connection in &mut open {
        assert_eq!(request.send_on(connection).expect("an answer").status, 201);
    }
    drop(open.pop());
    served_again(&request);
    assert_eq!(gateway.whole_log().matches("too many clients are connected").count(), 1);
}

fn served_again(request: &Request) {
    let answer = eventually("there is room", || request.try_send().ok());
    assert_eq!(answer.status, 201);
}

#[test]
fn what_is_too_much_is_refused_at_once_and_nothing_of_it_is_sent() {
    let (ledger, gate) = Ledger::gated(|effect| format!("charge {}", effect.number));
    let limits = "[limits]\nmax_requests = 3\nmax_requests_per_address = 10\n";
    let gateway = Gateway::in_front_of(&ledger).with(limits).start();
    let charge = |key: &str| gateway.post("/charges").key(key).json("{}");
    let running = [charge("a").begin(), gateway.request("GET", "/").begin()];
    // Its client has left, and it goes on.
    drop(charge("gone").begin());
    eventually("all are there", || (ledger.all().len() == 3).then_some(()));

    // Nothing that runs ends before they are refused.
    charge("b").send().refused("overloaded");
    gateway.request("GET", "/").send().refused("overloaded");
    // Not even its body is waited for.
    let unsent = gateway.post("/charges").key("b").header("Content-Length", "10").open();
    let unsent_request = gateway.post("/charges").key("b").header("Content-Length", "10");
    shed_on(unsent, &unsent_request);
    assert_eq!(gateway.request("GET", "/.well-known/idempotency").send().status, 200);
    assert_eq!(ledger.all().len(), 3);
    gateway.expect_metric(r#"selfsame_shed_requests_total{reason="max_requests"}"#, 3.0);

    gate.open();
    for answer in running.map(|connection| Answer::read(&mut BufReader::new(connection))) {
        assert_eq!(answer.expect("an answer").status, 201);
    }
    eventually("there is room", || (charge("b").send().status == 201).then_some(()));
    assert_eq!(ledger.of("b").len(), 1);
    let warning = r#""message":"too many requests are under way"#;
    assert_eq!(gateway.whole_log().matches(warning).count(), 1);
    assert_eq!(ledger.of("b")[0].header("selfsame-attempt"), Some("1"));
}

fn shed_on(mut connection: BufReader<TcpStream>, request: &Request) {
    request.send_on(&mut connection).expect("an answer").refused("overloaded");
}

#[test]
fn who_waits_for_another_s_run_takes_nobody_s_room() {
    let (ledger, gate) = Ledger::gated(|_| "charged".to_owned());
    let settings = "[limits]\nmax_requests = 2\nmax_requests_per_address = 10\n\
                    [idempotency]\non_conflict = \"wait\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let charge = gateway.post("/charges").key("k").json("{}");
    let first = charge.begin();
    ledger.wait_for("k", 1);
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let looks =
                || gateway.metric(r#"selfsame_store_seconds_count{store="file",op="claim"}"#);
            let enough = looks() + 2.0;
            let waiting = charge.begin();
            eventually("it waits", || (looks() >= enough).then_some(()));
            waiting
        })
        .collect();
    let other = gateway.request("GET", "/").begin();
    eventually("it was let through", || (ledger.all().len() == 2).then_some(()));
    gateway.request("GET", "/").send().refused("overloaded");
    gate.open();
    for connection in waiting.into_iter().chain([first, other]) {
        let answer = Answer::read(&mut BufReader::new(connection)).expect("an answer");
        assert_eq!((answer.status, &*answer.text()), (201, "charged"));
    }
    assert_eq!(ledger.effects("k"), 1);
}

#[test]
fn other_limits_count_once_the_file_is_read_again() {
    let (ledger, gate) = (Ledger::start(), Gate::shut());
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        if effect.target == "/gated" {
            at_gate.pass();
        }
        reply(client, 201, &[], "");
        Then::KeepOpen
    });
    let mut gateway = Gateway::in_front_of(&ledger).start();
    let running = gateway.request("GET", "/gated").begin();
    eventually("it is there", || (ledger.all().len() == 1).then_some(()));
    let limits =
        "[limits]\nmax_requests = 1\nmax_requests_per_address = 10\nidle_timeout = \"300ms\"\n";
    gateway.rewrite(limits);
    assert_eq!(gateway.reload().status, 200);
    let request = gateway.request("GET", "/");
    let mut connection = request.open();
    request.send_on(&mut connection).expect("an answer").refused("overloaded");
    assert_eq!(closed(connection.get_ref()), "");
    gate.open();
    drop(running);
    eventually("there is room", || (request.send().status == 201).then_some(()));
}
