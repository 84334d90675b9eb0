//! Bodies with keys, and responses that nobody takes, hold so much memory and no more: of one address, and of all.

use std::io::{BufReader, Write};
use std::net::TcpStream;

use bytes::Bytes;
use h2::Reason;

use crate::address_limits::{ATTACKER, attack};
use crate::harness::{Answer, Gate, Gateway, Http2, Ledger, Request, eventually, read, reply};

const KIB: usize = 1024;
const BUFFERED: &str = "selfsame_buffered_bytes";
/// Four bodies of 256 KiB for one address, six for all.
const LIMITS: &str = "[limits]\nmax_buffered_bytes_per_address = \"1MiB\"\nmax_buffered_bytes = \"1536KiB\"\n\
                      [idempotency]\nmax_request_body = \"256KiB\"\nmax_response_body = \"2MiB\"\n";

fn shed(gateway: &Gateway, setting: &str) -> f64 {
    gateway.metric(&format!(r#"selfsame_shed_requests_total{{reason="{setting}"}}"#))
}

/// A request with a body of 256 KiB.
fn large(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).body(&vec![b'x'; 256 * KIB])
}

/// Sends all but the last byte of a large body over each of these connections, and waits until they are counted.
fn send_most(gateway: &Gateway, connections: &mut [TcpStream], name: &str) {
    let before = gateway.metric(BUFFERED);
    for (number, connection) in connections.iter_mut().enumerate() {
        let bytes = large(gateway, &format!("{name}-{number}")).bytes();
        connection.write_all(&bytes[..bytes.len() - 1]).expect("sent");
    }
    let more = connections.len() * 255 * KIB;
    eventually("the bodies are counted", || {
        (gateway.metric(BUFFERED) >= before + more as f64).then_some(())
    });
}

/// Sends the head of a large request, whose length says that it has no room, and reads the refusal.
fn ask(request: &Request, connection: &mut BufReader<TcpStream>) -> Answer {
    let bytes = request.bytes();
    connection.get_mut().write_all(&bytes[..bytes.len() - 256 * KIB]).expect("sent");
    Answer::read(connection).expect("an answer")
}

/// Sends a large request from the attacker's address.
async fn send(gateway: &Gateway, key: &str) -> Answer {
    let mut connection = attack(gateway.address).await;
    large(gateway, key).send_on(&mut connection).expect("an answer")
}

async fn connections<const N: usize>(gateway: &Gateway) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for _ in 0..N {
        connections.push(attack(gateway.address).await.into_inner());
    }
    connections
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_holds_its_share_gets_no_more_and_others_are_served() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(LIMITS).start();
    let mut half = connections::<4>(&gateway).await;
    send_most(&gateway, &mut half, "half");

    let request = large(&gateway, "k");
    for _ in 0..2 {
        let refused = ask(&request, &mut attack(gateway.address).await);
        refused.refused("too-many-requests");
        assert!(refused.text().contains("max_buffered_bytes_per_address"), "{}", refused.text());
    }
    assert_eq!((shed(&gateway, "max_buffered_bytes_per_address"), ledger.all().len()), (2.0, 0));
    // What is small needs no room.
    let small = gateway.post("/charges").key("small").body(&vec![b'x'; 8 * KIB]);
    let mut connection = attack(gateway.address).await;
    assert_eq!(small.send_on(&mut connection).expect("an answer").status, 201);
    assert_eq!(large(&gateway, "other").send().status, 201);

    drop(half);
    gateway.expect_metric(BUFFERED, 0.0);
    let mut connection = attack(gateway.address).await;
    let first = request.send_on(&mut connection).expect("an answer");
    assert_eq!(first.status, 201);
    request.send_on(&mut connection).expect("an answer").replays(&first);
    assert_eq!((ledger.effects("k"), ledger.all().len()), (1, 3));
    assert_eq!(ledger.of("k")[0].header("selfsame-attempt"), Some("1"));
    gateway.expect_metric(BUFFERED, 0.0);
    let outcome = r#"selfsame_requests_total{route="default",outcome="too_many_bytes"}"#;
    assert_eq!(gateway.metric(outcome), 2.0);
    let log = gateway.whole_log();
    let warnings: Vec<_> =
        log.lines().filter(|line| line.contains("hold too many bytes")).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for named in [r#""address":"127.0.0.2""#, r#""setting":"max_buffered_bytes_per_address""#] {
        assert!(warnings[0].contains(named), "{warnings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_whole_everybody_is_refused_until_there_is_room() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(LIMITS).start();
    let mut half = connections::<4>(&gateway).await;
    send_most(&gateway, &mut half, "half");
    let mut own: Vec<_> =
        (0..2).map(|_| large(&gateway, "").connect().expect("a connection")).collect();
    send_most(&gateway, &mut own, "own");

    let request = large(&gateway, "k");
    let refused = ask(&request, &mut request.open());
    refused.refused("overloaded");
    assert!(refused.text().contains("(max_buffered_bytes)"), "{}", refused.text());
    assert_eq!((shed(&gateway, "max_buffered_bytes"), ledger.all().len()), (1.0, 0));
    assert_eq!(gateway.post("/charges").key("small").json("{}").send().status, 201);
    // Without a key nothing is buffered.
    let unkeyed = gateway.post("/charges").body(&vec![b'x'; 256 * KIB]);
    assert_eq!(unkeyed.send().status, 201);

    // One of them comes to its end.
    let mut connection = own.remove(0);
    connection.write_all(b"x").expect("sent");
    let served = Answer::read(&mut BufReader::new(connection)).expect("an answer");
    assert_eq!(served.status, 201);
    let first = eventually("there is room", || {
        request.try_send().ok().filter(|answer| answer.status == 201)
    });
    request.send().replays(&first);
    assert_eq!(ledger.effects("k"), 1);
    drop((half, own));
    gateway.expect_metric(BUFFERED, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_one_connection_share_what_their_address_has() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(LIMITS).start();
    let client = Http2::connect_from(ATTACKER, gateway.address).await;
    let post = |key: &str| {
        let request = http::Request::post("http://a/charges").header("idempotency-key", key);
        request.body(()).expect("a request")
    };
    let mut half = Vec::new();
    for number in 0..4 {
        let (answer, mut stream) = client.begin(post(&format!("half-{number}")), false).await;
        stream.send_data(Bytes::from(vec![b'x'; 255 * KIB]), false).expect("sent");
        half.push((answer, stream));
    }
    eventually("they are counted", || {
        (gateway.metric(BUFFERED) >= 4.0 * 255.0 * 1024.0).then_some(())
    });
    let body = "x".repeat(200 * KIB);
    let refused = async || {
        let (answer, mut stream) = client.begin(post("k"), false).await;
        let _refused = stream.send_data(Bytes::from(body.clone()), true);
        read(answer).await.expect("an answer")
    };
    refused().await.refused("too-many-requests");
    // The connection goes on.
    let small = http::Request::post("http://a/charges").header("idempotency-key", "small");
    assert_eq!(client.send(small.body("{}").expect("a request")).await.status, 201);

    for (_, stream) in &mut half[1..] {
        stream.send_reset(Reason::CANCEL);
    }
    eventually("the streams are gone", || {
        (gateway.metric(BUFFERED) < 300.0 * 1024.0).then_some(())
    });
    assert_eq!(refused().await.status, 201);
    assert_eq!((ledger.effects("k"), ledger.all().len()), (1, 2));
    drop((client, half));
    gateway.expect_metric(BUFFERED, 0.0);
}

/// An upstream that answers with a mebibyte at `/large`.
fn with_large_responses() -> Ledger {
    let ledger = Ledger::start();
    let response = "x".repeat(1024 * KIB);
    ledger.behave(move |effect, client| match &*effect.target {
        "/large" => reply(client, 201, &[], &response),
        _ => reply(client, 201, &[], ""),
    });
    ledger
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_that_nobody_takes_are_kept_and_leave_no_room_for_more() {
    let ledger = with_large_responses();
    let gateway = Gateway::in_front_of(&ledger).with(LIMITS).start();
    // Each has a connection of its own, whose window the others do not use up.
    let connect = async || Http2::connect_from(ATTACKER, gateway.address).await;
    let clients = [connect().await, connect().await, connect().await];
    let begin = async |client: &Http2, key: &str| {
        let request = http::Request::post("http://a/large").header("idempotency-key", key);
        let (answer, _) = client.begin(request.body(()).expect("a request"), true).await;
        answer.await.expect("a head")
    };
    // The first one takes all that there is. The client takes 64 KiB of each.
    let unread = [begin(&clients[0], "a").await, begin(&clients[1], "b").await];
    assert_eq!(unread.each_ref().map(|answer| answer.status().as_u16()), [201, 201]);
    eventually("they are counted", || (gateway.metric(BUFFERED) > 1024.0 * 1024.0).then_some(()));
    for key in ["a", "new"] {
        let refused = http::Request::post("http://a/large").header("idempotency-key", key);
        let refused = clients[2].send(refused.body("").expect("a request")).await;
        refused.refused("too-many-requests");
    }
    // They take no more than its share from others.
    assert_eq!(large(&gateway, "other").send().status, 201);
    for answer in unread {
        let (mut body, mut read) = (answer.into_body(), 0);
        while let Some(data) = body.data().await {
            let data = data.expect("the whole answer");
            body.flow_control().release_capacity(data.len()).expect("released");
            read += data.len();
        }
        assert_eq!(read, 1024 * KIB);
    }
    gateway.expect_metric(BUFFERED, 0.0);
    for key in ["a", "b"] {
        let replay = gateway.post("/large").host("a").key(key).send();
        assert_eq!(
            (replay.header("idempotent-replayed"), replay.body.len()),
            (Some("true"), 1024 * KIB)
        );
        assert_eq!(ledger.effects(key), 1);
    }
    assert_eq!(ledger.effects("new"), 0);
    gateway.expect_metric(BUFFERED, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_counted_for_a_client_that_leaves_its_run() {
    let (ledger, gate) = (Ledger::start(), Gate::shut());
    let at_gate = gate.clone();
    ledger.behave(move |_, client| {
        at_gate.pass();
        reply(client, 201, &[], "")
    });
    let gateway = Gateway::in_front_of(&ledger).with(LIMITS).start();
    let abandoned = large(&gateway, "abandoned").begin();
    ledger.wait_for("abandoned", 1);
    drop(abandoned);
    gate.open();
    gateway.expect_metric(BUFFERED, 0.0);
    let retry = eventually("the run ends", || {
        let answer = large(&gateway, "abandoned").send();
        (answer.status == 201).then_some(answer)
    });
    assert_eq!(
        (retry.header("idempotent-replayed"), ledger.effects("abandoned")),
        (Some("true"), 1)
    );
    gateway.expect_metric(BUFFERED, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_limits_count_at_once() {
    let ledger = Ledger::start();
    let mut gateway = Gateway::in_front_of(&ledger).with(LIMITS).start();
    let mut half = connections::<2>(&gateway).await;
    send_most(&gateway, &mut half, "half");
    assert_eq!(send(&gateway, "before").await.status, 201);
    let lower = LIMITS.replace("\"1MiB\"", "\"512KiB\"");
    gateway.rewrite(&lower);
    assert_eq!(gateway.reload().status, 200);
    let refused = ask(&large(&gateway, "lower"), &mut attack(gateway.address).await);
    refused.refused("too-many-requests");
    // Less than a body is a mistake, and changes nothing.
    gateway.rewrite(&LIMITS.replace("\"1MiB\"", "\"255KiB\""));
    let wrong = gateway.reload();
    assert!(wrong.status >= 400 && wrong.text().contains("max_request_body"), "{}", wrong.text());
    gateway.rewrite(LIMITS);
    gateway.signal("HUP");
    gateway.expect_metric(r#"selfsame_reloads_total{result="taken"}"#, 2.0);
    assert_eq!(send(&gateway, "higher").await.status, 201);
    drop(half);
    gateway.expect_metric(BUFFERED, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_observes_refuses_nothing() {
    let ledger = Ledger::start();
    let settings = format!("{LIMITS}[[route]]\nmatch = \"/observed\"\nmode = \"observe\"\n");
    let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
    let mut half = connections::<4>(&gateway).await;
    send_most(&gateway, &mut half, "half");
    let mut connection = attack(gateway.address).await;
    let observed = gateway.post("/observed").key("k").body(&vec![b'x'; 256 * KIB]);
    assert_eq!(observed.send_on(&mut connection).expect("an answer").status, 201);
    assert_eq!(shed(&gateway, "max_buffered_bytes_per_address"), 0.0);
}
