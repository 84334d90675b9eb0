//! Few clients cannot take everything: each address has a share, and a body a least rate.

use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};

use crate::harness::{
    Answer, Gate, Gateway, Http2, Ledger, PATIENCE, Request, Then, connect_from, eventually, read,
    read_up_to, reply,
};

/// Another client than the one of all other requests, which come from 127.0.0.1.
pub(crate) const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn shed(gateway: &Gateway, setting: &str) -> f64 {
    gateway.metric(&format!(r#"selfsame_shed_requests_total{{reason="{setting}"}}"#))
}

fn post(key: &str) -> http::request::Builder {
    http::Request::post("http://a/slow").header("idempotency-key", key)
}

/// An upstream that answers at once, and at `/slow` once the gate is open. Then it closes the connection.
fn slow_at_one_path() -> (Ledger, Gate) {
    let (ledger, gate) = (Ledger::start(), Gate::shut());
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        if effect.target == "/slow" {
            at_gate.pass();
            reply(client, 201, &["Connection: close"], "");
            return Then::Close;
        }
        reply(client, 201, &[], "")
    });
    (ledger, gate)
}

/// A connection of the attacker's, for blocking reads.
pub(crate) async fn attack(to: SocketAddr) -> BufReader<TcpStream> {
    let stream = connect_from(ATTACKER, to).await.into_std().expect("a connection");
    stream.set_nonblocking(false).expect("a blocking one");
    stream.set_read_timeout(Some(PATIENCE)).expect("a patient one");
    BufReader::new(stream)
}

async fn is_served_again(gateway: &Gateway) {
    let request = gateway.request("GET", "/");
    for _ in 0..600 {
        let mut connection = attack(gateway.address).await;
        if request.send_on(&mut connection).is_ok_and(|answer| answer.status == 201) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the address is refused for ever");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_of_one_address_leave_room_for_others() {
    let ledger = Ledger::start();
    // A quarter of it is the share of one address.
    let gateway = Gateway::in_front_of(&ledger).with("[limits]\nmax_requests = 20\n").start();
    let (mut clients, mut streams) = (Vec::new(), Vec::new());
    for connection in 0..4 {
        let client = Http2::connect_from(ATTACKER, gateway.address).await;
        for number in 0..5 {
            let key = format!("slow-{connection}-{number}");
            let begun = client.begin(post(&key).body(()).expect("a request"), false).await;
            streams.push(begun);
        }
        clients.push(client);
    }
    for (_, stream) in &mut streams {
        // Some were refused and are closed by now.
        let _refused = stream.send_data(Bytes::from_static(b"{"), false);
    }
    eventually("the others are refused", || {
        (shed(&gateway, "max_requests_per_address") == 15.0).then_some(())
    });

    let charge = gateway.post("/charges").key("k").json("{}");
    let first = charge.send();
    assert_eq!(first.status, 201);
    charge.send().replays(&first);
    assert_eq!(gateway.request("GET", "/").send().status, 201);
    let mut refused = attack(gateway.address).await;
    let again = charge.send_on(&mut refused).expect("an answer");
    again.refused("too-many-requests");
    assert_eq!(shed(&gateway, "max_requests"), 0.0);

    drop((clients, streams));
    is_served_again(&gateway).await;
    assert_eq!(ledger.of("k").len(), 1);
    let log = gateway.whole_log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("trusted_proxies")).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let named = [r#""address":"127.0.0.2""#, r#""setting":"max_requests_per_address""#];
    assert!(named.iter().all(|named| warnings[0].contains(named)), "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_leaves_only_its_share_of_runs_behind() {
    let of_its_own =
        "max_requests = 20\nmax_requests_per_address = 3\nmax_abandoned_requests = 9\n";
    let of_all = "max_requests = 20\nmax_requests_per_address = 9\nmax_abandoned_requests = 3\n";
    let limits = [("max_requests_per_address", of_its_own), ("max_abandoned_requests", of_all)];
    for (setting, limits) in limits {
        let (ledger, gate) = slow_at_one_path();
        let gateway = Gateway::in_front_of(&ledger).with(&format!("[limits]\n{limits}")).start();
        let client = Http2::connect_from(ATTACKER, gateway.address).await;
        for number in 1..=3 {
            let key = format!("left-{number}");
            let request = post(&key).body(()).expect("a request");
            let (_answer, mut stream) = client.begin(request, true).await;
            ledger.wait_for(&key, 1);
            stream.send_reset(Reason::CANCEL);
            gateway.expect_metric("selfsame_abandoned_requests", f64::from(number));
        }
        let refused = client.send(post("left-4").body("").expect("a request")).await;
        refused.refused("too-many-requests");
        assert_eq!(shed(&gateway, setting), 1.0, "{setting}");
        assert_eq!(ledger.all().len(), 3);
        // Others do as they did.
        assert_eq!(gateway.post("/charges").key("k").json("{}").send().status, 201);

        gate.open();
        gateway.expect_metric("selfsame_abandoned_requests", 0.0);
        for number in 1..=3 {
            let key = format!("left-{number}");
            let retry = client.send(post(&key).body("").expect("a request")).await;
            assert_eq!(retry.header("idempotent-replayed"), Some("true"), "{setting} {key}");
            assert_eq!(ledger.effects(&key), 1);
        }
    }
}

#[test]
fn clients_behind_a_trusted_proxy_are_told_apart() {
    let (ledger, gate) = slow_at_one_path();
    // A quarter of it is the share of one address; connections of the proxy are not counted.
    let settings = "trusted_proxies = [\"127.0.0.1\"]\n\
                    [limits]\nmax_requests = 8\nmax_connections_per_address = 1\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let of =
        |target: &str, name: &str, value: &str| gateway.request("GET", target).header(name, value);
    let for_header = "X-Forwarded-For";
    let slow = ["192.0.2.1", "2001:db8:1:2::1"].map(|client| {
        [of("/slow", for_header, client).begin(), of("/slow", for_header, client).begin()]
    });
    eventually("all are there", || (ledger.all().len() == 4).then_some(()));
    let refused = [
        (for_header, "192.0.2.1"),
        (for_header, "192.0.2.1:4711"),
        // Everything but the last may be invented.
        (for_header, "198.51.100.7, 192.0.2.1"),
        (for_header, "192.0.2.1, 127.0.0.1"),
        (for_header, "2001:db8:1:2:ffff::1"),
        ("Forwarded", "for=192.0.2.1;proto=https"),
    ];
    for (name, value) in refused {
        of("/", name, value).send().refused("too-many-requests");
    }
    for client in ["192.0.2.2", "192.0.2.1, 192.0.2.2", "2001:db8:1:3::1"] {
        assert_eq!(of("/", for_header, client).send().status, 201, "{client}");
    }
    assert_eq!(gateway.request("GET", "/").send().status, 201);
    gate.open();
    drop(slow);
}

#[test]
fn requests_whose_headers_disagree_do_not_count_for_the_proxy() {
    let (ledger, gate) = slow_at_one_path();
    // A quarter of it is the share of one address.
    let settings = "trusted_proxies = [\"127.0.0.1\"]\n[limits]\nmax_requests = 8\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let invented = |target: &str, number: usize| {
        let request = gateway.request("GET", target).header("X-Forwarded-For", "192.0.2.1");
        request.header("Forwarded", &format!("for=198.51.100.{number}"))
    };
    let slow = [1, 2].map(|number| invented("/slow", number).begin());
    eventually("both are there", || (ledger.all().len() == 2).then_some(()));
    invented("/", 3).send().refused("too-many-requests");
    // The proxy asks whether we serve, and its clients are served.
    assert_eq!(gateway.request("GET", "/").send().status, 201);
    let honest = gateway.request("GET", "/").header("X-Forwarded-For", "192.0.2.1");
    assert_eq!(honest.send().status, 201);
    gateway.expect_log("two different ones in X-Forwarded-For and Forwarded");
    gate.open();
    drop(slow);
}

#[test]
fn a_client_cannot_claim_another_address() {
    let (ledger, gate) = slow_at_one_path();
    let gateway = Gateway::in_front_of(&ledger).with("[limits]\nmax_requests = 8\n").start();
    let of = |target: &str, client: &str| {
        gateway.request("GET", target).header("X-Forwarded-For", client)
    };
    let slow = [of("/slow", "192.0.2.1").begin(), of("/slow", "192.0.2.2").begin()];
    eventually("both are there", || (ledger.all().len() == 2).then_some(()));
    of("/", "192.0.2.3").send().refused("too-many-requests");
    gateway.expect_log("name it in trusted_proxies");
    gate.open();
    drop(slow);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_a_share_of_the_connections() {
    let ledger = Ledger::start();
    // Half of it is the share of one address.
    let gateway = Gateway::in_front_of(&ledger).with("[limits]\nmax_connections = 4\n").start();
    let request = gateway.request("GET", "/");
    let mut open = [attack(gateway.address).await, attack(gateway.address).await];
    for connection in &mut open {
        assert_eq!(request.send_on(connection).expect("an answer").status, 201);
    }
    for _ in 0..5 {
        assert!(request.send_on(&mut attack(gateway.address).await).is_err());
    }
    let refused = r#"selfsame_refused_connections_total{reason="max_connections_per_address"}"#;
    gateway.expect_metric(refused, 5.0);
    assert_eq!(request.send().status, 201);
    for connection in &mut open {
        assert_eq!(request.send_on(connection).expect("an answer").status, 201);
    }
    drop(open);
    is_served_again(&gateway).await;
    gateway.expect_log(r#""setting":"max_connections_per_address""#);
}

const SLOW: &str = "[limits]\nbody_timeout = \"1500ms\"\nmin_body_rate = \"1KiB\"\n";

/// Writes a byte now and then, until the connection is closed.
fn drip(mut connection: TcpStream, request: &Request) {
    connection.write_all(&request.bytes()).expect("written");
    for _ in 0..500 {
        if connection.write_all(b"x").is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("nobody minded");
}

/// As [`drip`], until the stream is answered.
async fn drip_over_http2(client: &Http2, request: http::Request<()>) -> Answer {
    let (answer, mut stream) = client.begin(request, false).await;
    let dripping = async {
        for _ in 0..500 {
            let _closed = stream.send_data(Bytes::from_static(b"x"), false);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("nobody minded");
    };
    tokio::select! {
        answer = read(answer) => answer.expect("an answer"),
        () = dripping => unreachable!("it panics"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_too_slowly_is_cut_off() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(SLOW).start();
    let slow = || gateway.post("/charges").header("Content-Length", "100000");
    let waits_for_word = slow().header("Expect", "100-continue");
    let over_http1: Vec<_> = [slow(), slow().key("k"), waits_for_word]
        .into_iter()
        .map(|request| {
            let connection = request.connect().expect("a connection");
            std::thread::spawn(move || drip(connection, &request))
        })
        .collect();
    // A request that is sent ahead does not excuse the next one, whatever its own body was.
    let large = gateway.post("/charges").body(&vec![b'x'; 100_000]);
    let after_another = [gateway.request("GET", "/"), large].map(|ahead| {
        let mut connection = slow().connect().expect("a connection");
        connection.write_all(&ahead.bytes()).expect("written");
        let after_another = slow();
        std::thread::spawn(move || drip(connection, &after_another))
    });

    let client = Http2::connect(gateway.address).await;
    let unkeyed = http::Request::post("http://a/charges").body(()).expect("a request");
    let keyed = post("k").body(()).expect("a request");
    let (unkeyed, keyed) =
        tokio::join!(drip_over_http2(&client, unkeyed), drip_over_http2(&client, keyed));
    assert_eq!((unkeyed.status, keyed.status), (408, 408));
    // The connection goes on.
    assert_eq!(client.send(post("k").body("{}").expect("a request")).await.status, 201);
    for dripping in over_http1.into_iter().chain(after_another) {
        dripping.join().expect("cut off");
    }
    gateway.expect_metric(r#"selfsame_connections_cut_total{reason="body_rate"}"#, 7.0);
    assert_eq!(ledger.effects("k"), 1);
    assert_eq!(ledger.of("k")[0].header("selfsame-attempt"), Some("1"));
}

/// An upstream that begins its answer before it has read the body, and ends it after that.
fn answers_first() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            std::thread::spawn(move || {
                read_up_to(&mut connection, "\r\n\r\n");
                let begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n";
                connection.write_all(begun).expect("written");
                read_up_to(&mut connection, "0\r\n\r\n");
                connection.write_all(b"5\r\nended\r\n0\r\n\r\n").expect("written");
            });
        }
    });
    address
}

/// Sends a little for longer than a body may take that is not answered.
async fn trickle(mut send: impl FnMut()) {
    for _ in 0..100 {
        send();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_answer_has_begun_may_be_slow() {
    let gateway = Gateway::before(answers_first()).with(SLOW).start();
    let client = Http2::connect(gateway.address).await;
    let request = http::Request::post("http://a/stream").body(()).expect("a request");
    let (answer, mut stream): (_, SendStream<Bytes>) = client.begin(request, false).await;
    let answer = answer.await.expect("a head");
    assert_eq!(answer.status(), 200);
    trickle(|| stream.send_data(Bytes::from_static(b"x"), false).expect("sent")).await;
    stream.send_data(Bytes::new(), true).expect("sent");
    let (mut body, mut text) = (answer.into_body(), Vec::new());
    while let Some(data) = body.data().await {
        text.extend_from_slice(&data.expect("more of the answer"));
    }
    assert_eq!(String::from_utf8_lossy(&text), "begunended");

    let request = gateway.post("/stream").header("Transfer-Encoding", "chunked");
    let mut connection = request.connect().expect("a connection");
    connection.write_all(&request.bytes()).expect("written");
    read_up_to(&mut connection, "begun");
    trickle(|| connection.write_all(b"1\r\nx\r\n").expect("written")).await;
    connection.write_all(b"0\r\n\r\n").expect("written");
    read_up_to(&mut connection, "ended");
    assert_eq!(gateway.metric(r#"selfsame_connections_cut_total{reason="body_rate"}"#), 0.0);
}

#[test]
fn one_connection_too_many_to_the_upstream_leaves_the_key_free() {
    let (ledger, gate) = slow_at_one_path();
    let settings = "[limits]\nmax_upstream_connections = 1\n\
                    [idempotency]\nrecover = \"hold\"\nserver_errors = \"hold\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let slow = gateway.request("GET", "/slow").begin();
    eventually("it is there", || (ledger.all().len() == 1).then_some(()));
    let charge = gateway.post("/charges").key("k").json("{}");
    for _ in 0..3 {
        charge.send().refused("overloaded");
    }
    gateway.request("GET", "/").send().refused("overloaded");
    assert_eq!(shed(&gateway, "max_upstream_connections"), 4.0);
    assert_eq!(ledger.all().len(), 1);

    gate.open();
    assert_eq!(Answer::read(&mut BufReader::new(slow)).expect("an answer").status, 201);
    // A connection to the upstream counts until it is closed, and no longer.
    let served = eventually("there is room", || {
        let answer = charge.send();
        (answer.status == 201).then_some(answer)
    });
    assert_eq!(ledger.of("k")[0].header("selfsame-attempt"), Some("1"));
    charge.send().replays(&served);
    assert_eq!(ledger.effects("k"), 1);
    gateway.expect_log(r#""setting":"max_upstream_connections""#);
}
