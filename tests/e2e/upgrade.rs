//! Connections that leave HTTP, as WebSockets do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::{Gateway, PATIENCE, Request, eventually, read_up_to};

const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// An upstream that changes the protocol for each client, and then gives back what it is sent. It tells
/// in the channel what each request was.
pub(crate) fn echo() -> (SocketAddr, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let head = read_up_to(&mut client, "\r\n\r\n").to_lowercase();
                let asks = head.contains("\r\nupgrade: ");
                tell.send(head).expect("the test listens");
                if !asks {
                    let answer =
                        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    return client.write_all(answer.as_bytes()).expect("written");
                }
                client.write_all(SWITCHED.as_bytes()).expect("written");
                let mut other = client.try_clone().expect("a second handle");
                let _gone = std::io::copy(&mut client, &mut other);
            });
        }
    });
    (address, told)
}

fn websocket(gateway: &Gateway) -> Request {
    gateway
        .request("GET", "/socket")
        .header("Connection", "keep-alive, Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("Sec-WebSocket-Version", "13")
}

#[track_caller]
fn assert_echoes(socket: &mut TcpStream, said: &[u8]) {
    socket.write_all(said).expect("sent");
    let mut heard = vec![0; said.len()];
    socket.read_exact(&mut heard).expect("given back");
    assert_eq!(heard, said);
}

#[test]
fn a_tunnel_that_is_silent_for_too_long_is_closed() {
    let (upstream, _told) = echo();
    let limits = "[limits]\ntunnel_idle_timeout = \"1s\"\n";
    let gateway = Gateway::before(upstream).with(limits).start();
    let mut socket = websocket(&gateway).begin();
    read_up_to(&mut socket, "\r\n\r\n");
    assert_echoes(&mut socket, b"hello");
    assert_eq!(socket.read(&mut [0]).expect("a goodbye"), 0);
    gateway.expect_metric(r#"selfsame_connections_cut_total{reason="tunnel_idle"}"#, 1.0);
}

#[test]
fn a_tunnel_counts_as_a_connection_of_its_client() {
    let (upstream, _told) = echo();
    let limits = "[limits]\nmax_connections_per_address = 1\n";
    let gateway = Gateway::before(upstream).with(limits).start();
    let mut socket = websocket(&gateway).begin();
    read_up_to(&mut socket, "\r\n\r\n");
    assert_echoes(&mut socket, b"hello");
    let request = gateway.request("GET", "/");
    for _ in 0..3 {
        assert!(request.try_send().is_err());
    }
    assert_echoes(&mut socket, b"hello again");
    drop(socket);
    let answer = eventually("the next one is served", || request.try_send().ok());
    assert_eq!(answer.status, 200);
}

#[test]
fn a_tunnel_counts_as_a_request_until_it_ends() {
    for (limits, refusal) in [
        ("max_requests = 1\nmax_requests_per_address = 10", 503),
        ("max_requests_per_address = 1", 429),
    ] {
        let (upstream, _told) = echo();
        let gateway = Gateway::before(upstream).with(&format!("[limits]\n{limits}\n")).start();
        let mut socket = websocket(&gateway).begin();
        read_up_to(&mut socket, "\r\n\r\n");
        assert_echoes(&mut socket, b"hello");
        let request = gateway.request("GET", "/");
        assert_eq!(request.send().status, refusal, "{limits}");
        assert_echoes(&mut socket, b"hello again");
        drop(socket);
        let served = || Some(request.send()).filter(|answer| answer.status == 200);
        eventually("the next one is served", served);
    }
}

#[test]
fn bytes_pass_both_ways_until_an_end_closes() {
    let (upstream, told) = echo();
    let gateway = Gateway::before(upstream).start();
    let mut socket = websocket(&gateway).begin();
    let head = read_up_to(&mut socket, "\r\n\r\n").to_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in ["connection: upgrade", "upgrade: websocket", "sec-websocket-accept: s3pp"] {
        assert!(head.contains(&format!("\r\n{line}")), "{line} in {head}");
    }
    let told = told.recv_timeout(PATIENCE).expect("a request");
    for line in ["connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13"] {
        assert!(told.contains(&format!("\r\n{line}\r\n")), "{line} in {told}");
    }
    assert_echoes(&mut socket, b"\x81\x05hello");
    // Neither the framing of HTTP nor its limits count any more.
    assert_echoes(
        &mut socket,
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    assert_echoes(&mut socket, &vec![7; 100_000]);
    socket.shutdown(std::net::Shutdown::Write).expect("open");
    assert_eq!(socket.read_to_end(&mut Vec::new()).expect("a goodbye"), 0);
    let passed = r#"selfsame_requests_total{route="default",outcome="passed"}"#;
    gateway.expect_metric(passed, 1.0);
}

#[test]
fn no_other_http_is_upgraded_to_and_no_claimed_work_is() {
    let (upstream, told) = echo();
    let gateway = Gateway::before(upstream).start();
    for protocol in ["h2c", "HTTP/2.0", "websocket, h2c", "TLS/1.0"] {
        let asks = gateway.request("GET", "/").header("Connection", "Upgrade");
        assert_eq!(asks.header("Upgrade", protocol).send().status, 200, "{protocol}");
    }
    let keyed = gateway.post("/charges").key("k").header("Connection", "Upgrade");
    let keyed = keyed.header("Upgrade", "websocket").json("{}");
    let first = keyed.send();
    assert_eq!(first.status, 200);
    keyed.send().replays(&first);
    let told: Vec<String> = told.try_iter().collect();
    assert_eq!(told.len(), 5, "{told:?}");
    assert!(told.iter().all(|head| !head.contains("upgrade")), "{told:?}");
}

#[test]
fn a_wish_that_connection_does_not_list_goes_no_further() {
    let (upstream, told) = echo();
    let gateway = Gateway::before(upstream).start();
    for listed in ["keep-alive", "close, X-Upgrade"] {
        let asks = gateway.request("GET", "/").header("Connection", listed);
        assert_eq!(asks.header("Upgrade", "websocket").send().status, 200, "{listed}");
        let head = told.try_recv().expect("it was sent on");
        assert!(!head.contains("upgrade"), "{head}");
    }
}

#[test]
fn an_upstream_that_does_not_upgrade_is_heard_as_usual() {
    let ledger = crate::harness::Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let answer = websocket(&gateway).send();
    assert_eq!((answer.status, answer.header("upgrade")), (201, None));
}

#[test]
fn a_stop_waits_for_them_as_long_as_for_work() {
    let (upstream, _told) = echo();
    let gateway = Gateway::before(upstream).with("drain_timeout = \"2s\"\n").start();
    let [mut staying, mut going] = [(); 2].map(|()| {
        let mut socket = websocket(&gateway).begin();
        read_up_to(&mut socket, "\r\n\r\n");
        socket
    });
    assert_echoes(&mut staying, b"before");
    #[expect(
        clippy::disallowed_methods,
        reason = "the gateway is another process: its time is real"
    )]
    let begun = Instant::now();
    gateway.signal("TERM");
    eventually("newcomers are refused", || TcpStream::connect(gateway.address).err());
    assert_echoes(&mut going, b"after");
    drop(going);
    let (status, _) = gateway.wait();
    assert_eq!(status.code(), Some(0));
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    let cut = staying.read_to_end(&mut Vec::new());
    assert!(matches!(cut, Ok(0) | Err(_)), "{cut:?}");
}
