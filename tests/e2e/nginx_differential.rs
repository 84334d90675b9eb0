//! Odd requests of HTTP/1.1, sent to nginx and to the gateway before the same kind of upstream: what nginx
//! refuses and the gateway passes on is listed here, with its reason.

mod requests;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use futures_util::stream::{self, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use crate::harness::{Balancer, Gateway, Ledger, PATIENCE, reply};
use requests::Odd;

/// Time limits shorter than those of the nginx.
const SETTINGS: &str =
    "[limits]\nhead_timeout = \"1s\"\nbody_timeout = \"1s\"\nidle_timeout = \"1s\"\n";

/// Requests that the gateway passes on and nginx does not, by the beginning of their names.
const ACCEPTED: &[(&str, &str)] = &[
    ("method \"A.B\"", "a valid method (RFC 9110, 9.1); no server reads it as another"),
    ("method \"A!B\"", "the same"),
    ("method \"1\"", "the same"),
    (
        "coding with byte 0x09",
        "a tab around a value is no part of it (RFC 9110, 5.5), and not passed on",
    ),
    ("length \"5\\t\"", "the same"),
    ("length \"\\t5\"", "the same"),
    (
        "two of Expect",
        "an unknown expectation may be ignored (RFC 9110, 10.1.1), and none is passed on",
    ),
];

/// Connections at once to each server.
const AT_ONCE: usize = 128;

/// Address of the client that sends the request with this index.
fn client(index: usize) -> Ipv4Addr {
    let [high, low] = u16::try_from(index).expect("few").to_be_bytes();
    Ipv4Addr::new(127, 7, high, low)
}

/// Sends a request from an address of its own, and reads until the server closes.
async fn exchange(to: SocketAddr, index: usize, bytes: &[u8]) -> Vec<u8> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((client(index), 0))).expect("a loopback address");
    let mut connection = socket.connect(to).await.expect("a connection");
    let mut answer = Vec::new();
    // A server that refuses may reset the connection.
    let exchanged = async {
        connection.write_all(bytes).await?;
        connection.read_to_end(&mut answer).await
    };
    let _reset = timeout(PATIENCE, exchanged).await.expect("the server closes the connection");
    answer
}

/// Numbers of requests that reached the upstream, by the index of what was sent.
async fn passed_on(to: SocketAddr, upstream: &Ledger, odd: &[Odd]) -> Vec<usize> {
    let exchanges = odd.iter().enumerate().map(|(index, odd)| exchange(to, index, &odd.bytes));
    let answers: Vec<Vec<u8>> = stream::iter(exchanges).buffered(AT_ONCE).collect().await;
    let mut counts: HashMap<String, usize> = HashMap::new();
    for effect in upstream.all() {
        let from = effect.header("x-forwarded-for").expect("both servers name the client");
        *counts.entry(from.to_owned()).or_default() += 1;
    }
    let count = |index| counts.get(&client(index).to_string()).copied().unwrap_or_default();
    (0..answers.len()).map(count).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nginx_refuses_is_refused_or_listed_with_a_reason() {
    let odd = requests::all();
    assert!(odd.len() >= 500, "{}", odd.len());
    let upstreams = [Ledger::start(), Ledger::start()];
    for upstream in &upstreams {
        upstream.behave(|_, client| reply(client, 200, &[], "done"));
    }
    let [behind_nginx, behind_us] = &upstreams;
    let nginx = Balancer::proxy(behind_nginx.address());
    let gateway = Gateway::in_front_of(behind_us).with(SETTINGS).start();
    let (theirs, ours) = tokio::join!(
        passed_on(nginx.address(), behind_nginx, &odd),
        passed_on(gateway.address, behind_us, &odd)
    );
    let mut unlisted = Vec::new();
    let (mut stricter, mut alike) = (0, 0);
    for ((odd, theirs), ours) in odd.iter().zip(theirs).zip(ours) {
        match ours.cmp(&theirs) {
            std::cmp::Ordering::Less => stricter += 1,
            std::cmp::Ordering::Equal => alike += 1,
            std::cmp::Ordering::Greater => {
                if !ACCEPTED.iter().any(|(name, _)| odd.name.starts_with(name)) {
                    let text = odd.bytes.escape_ascii();
                    unlisted.push(format!("{} ({ours} to {theirs}): {text}", odd.name));
                }
            }
        }
    }
    let count = unlisted.len();
    let list = unlisted.join("\n");
    assert!(
        unlisted.is_empty(),
        "{alike} alike, {stricter} refused by us alone, {count} by nginx alone:\n{list}"
    );
    assert!(alike > 200, "most are treated alike: {alike}");
}
