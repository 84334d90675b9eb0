//! Row 15: clients that hold connections of the admin and checkpoint listeners, and file descriptors that
//! run out. The public listener and the store do not notice.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Gateway, Ledger, PATIENCE, Request, Setup, binary, connect_from, eventually};
use crate::upgrade;

/// Starts a gateway below these limits, as `ulimit` takes them.
fn start_below(setup: Setup, limits: &str) -> Gateway {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limits} && exec \"$0\" serve --config \"$1\"")]);
    command.arg(binary().get_program()).arg(setup.write_config());
    setup.start_as(command)
}

/// Connections that begin a head, and leave it at that.
fn half_heads(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let begin = |_| {
        let mut connection = TcpStream::connect(to).expect("a connection");
        connection.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // One that was turned away already cannot be written to.
        let _turned_away = connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: ");
        connection
    };
    (0..count).map(begin).collect()
}

/// Waits until each was closed by the gateway.
fn expect_closed(connections: Vec<TcpStream>) {
    for mut connection in connections {
        match connection.read(&mut [0; 64]) {
            Ok(read) => assert_eq!(read, 0, "an answer to half a head"),
            // A reset is as good an end as any.
            Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "it is still open"),
        }
    }
}

const SOON: &str = "[limits]\nhead_timeout = \"300ms\"\n";
const CHECKPOINTS: &str = "[checkpoints]\nlisten = \"127.0.0.1:0\"\n";

#[test]
fn half_heads_on_internal_listeners_are_cut_and_the_public_one_serves_on() {
    let ledger = Ledger::start();
    let setup = Gateway::in_front_of(&ledger).with(SOON).with(CHECKPOINTS);
    let gateway = start_below(setup, "-n 1024");
    let mut crowd = half_heads(gateway.admin, 1100);
    crowd.extend(half_heads(gateway.checkpoints(), 300));
    let charge = gateway.post("/charges").key("k").json("{}");
    let first = charge.send();
    assert_eq!(first.status, 201);
    charge.send().replays(&first);
    expect_closed(crowd);
    assert_eq!(gateway.admin("GET", "/healthz").send().status, 200);
    for (listener, held) in [("admin", 1100.0), ("checkpoints", 300.0)] {
        let count = |name: &str, labels: &str| {
            gateway.metric(&format!("{name}{{listener=\"{listener}\"{labels}}}"))
        };
        let refused = || count("selfsame_internal_connections_refused_total", "");
        let cut = || count("selfsame_internal_connections_cut_total", ",reason=\"head\"");
        eventually("all are counted", || (refused() + cut() == held).then_some(()));
        assert!(cut() >= 64.0, "{}", cut());
        assert!(refused() > 0.0, "{listener} has no limit");
    }
}

#[test]
fn internal_connections_without_a_request_are_closed() {
    let ledger = Ledger::start();
    let idle = "[limits]\nidle_timeout = \"300ms\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(idle).start();
    let request = gateway.admin("GET", "/healthz");
    let mut used = request.open();
    assert_eq!(request.send_on(&mut used).expect("an answer").status, 200);
    assert_eq!(used.get_mut().read(&mut [0]).expect("a graceful end"), 0);
}

#[test]
fn internal_listeners_refuse_heads_as_the_public_one_does() {
    let ledger = Ledger::start();
    let setup = Gateway::in_front_of(&ledger).with(CHECKPOINTS);
    let gateway = setup.with("[limits]\nmax_headers = 20\nmax_header_bytes = \"4KiB\"\n").start();
    for to in [gateway.admin, gateway.checkpoints()] {
        let request = || Request::new(to, "GET", "/healthz");
        let many =
            (0..30).fold(request(), |request, number| request.header(&format!("X-{number}"), "x"));
        assert_eq!(many.send().status, 431);
        assert_eq!(request().header("X-Large", &"x".repeat(5000)).send().status, 431);
        let unclear = request().header("Content-Length", "0");
        assert_eq!(unclear.header("Transfer-Encoding", "chunked").send().status, 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_leave_descriptors_to_the_store_and_to_upstreams() {
    let ledger = Ledger::start();
    let gateway = start_below(Gateway::in_front_of(&ledger), "-n 64");
    gateway.expect_log("there are too few file descriptors");
    let charge = |key: &str| gateway.post("/charges").key(key).json("{}");
    // Those that were let in before the crowd have all that they need.
    let mut open: Vec<_> = (0..4).map(|_| charge("k").open()).collect();
    for (number, connection) in open.iter_mut().enumerate() {
        let answer = charge(&format!("before-{number}")).send_on(connection);
        assert_eq!(answer.expect("an answer").status, 201);
    }
    // From several addresses: the share of one is not what keeps them out.
    let mut crowd = Vec::new();
    for number in 0..100 {
        let source = Ipv4Addr::new(127, 0, 0, 2 + number % 10);
        crowd.push(connect_from(source, gateway.address).await);
    }
    let refused = || -> f64 {
        let reasons = ["max_connections", "max_connections_per_address"];
        let count = |reason| {
            gateway.metric(&format!("selfsame_refused_connections_total{{reason=\"{reason}\"}}"))
        };
        reasons.map(count).iter().sum()
    };
    eventually("others are turned away", || (refused() >= 50.0).then_some(()));
    for (number, connection) in open.iter_mut().enumerate() {
        let answer = charge(&format!("during-{number}")).send_on(connection);
        assert_eq!(answer.expect("an answer").status, 201);
    }
    drop(crowd);
    eventually("there is room", || charge("after").try_send().ok());
    let log = gateway.whole_log();
    assert!(!log.contains("connections cannot be accepted"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnels_leave_descriptors_to_the_store_and_to_upstreams() {
    let (upstream, _told) = upgrade::echo();
    let gateway = start_below(Gateway::before(upstream), "-n 128");
    let mut tunnels = Vec::new();
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    for number in 0..100 {
        let source = Ipv4Addr::new(127, 0, 0, 2 + number % 10);
        let mut tunnel = connect_from(source, gateway.address).await;
        // One that was refused already cannot be written to.
        let _refused = tunnel.write_all(head).await;
        // The first bytes of a status line.
        let mut begun = [0; 12];
        if tunnel.read_exact(&mut begun).await.is_ok() && begun.ends_with(b"101") {
            tunnels.push(tunnel);
        }
    }
    assert!(tunnels.len() >= 10, "{}", tunnels.len());
    let keyed = gateway.post("/charges").key("k").json("{}");
    assert_eq!(keyed.send().status, 503, "refused, and not tried in vain");
    drop(tunnels);
    eventually("there is room", || Some(keyed.send()).filter(|answer| answer.status == 200));
    let log = gateway.whole_log();
    assert!(!log.contains("connections cannot be accepted"), "{log}");
}

#[test]
fn the_soft_limit_on_descriptors_is_raised() {
    let ledger = Ledger::start();
    let few = "[limits]\nmax_connections = 200\nmax_requests = 200\n";
    let gateway = start_below(Gateway::in_front_of(&ledger).with(few), "-Hn 1024; ulimit -Sn 64");
    let request = gateway.request("GET", "/");
    let mut open: Vec<_> = (0..100).map(|_| request.open()).collect();
    for connection in &mut open {
        assert_eq!(request.send_on(connection).expect("an answer").status, 201);
    }
    assert!(!gateway.whole_log().contains("too few file descriptors"));
}
