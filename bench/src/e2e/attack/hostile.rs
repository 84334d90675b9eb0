//! Hostile clients: a process that attacks the gateway from one address until it is stopped.
//!
//! Every connection does as much as the gateway lets it. One that ends is opened again.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use super::super::heads::gzip;
use super::frames;

/// Path of the route whose upstream never answers.
pub(super) const SILENT_PATH: &str = "/silent";
/// Path of the route that hostile requests go to, so that its metrics count nobody else's.
pub(super) const HOSTILE_PATH: &str = "/hostile";
/// Path of a large response.
pub(super) const LARGE_PATH: &str = "/v1/large";
/// Address from which all attackers come.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Number of streams that a connection of HTTP/2 opens.
const STREAMS: u32 = 25;
/// Size of a body that is announced and never comes to its end.
const NEVER_SENT: usize = 1_000_000;
/// Size of a frame that every server takes.
const FRAME_BYTES: usize = 16 * 1024;
/// Bytes of a body that are sent at once: fewer than the window of a stream.
const WINDOW_BYTES: usize = 12 * FRAME_BYTES;
/// Size that a packed body has once it is unpacked.
const UNPACKED_BYTES: usize = 1_000_000;
const CHUNKED_BYTES: usize = 20_000;
/// Requests that are written at once, where they are small.
const PIPELINED: usize = 16;
/// Pause between two steps of an attack that is slow by its nature.
const SLOW_STEP: Duration = Duration::from_secs(1);
/// Pause before an abandoned request is reset: it must have begun to run.
const RUNS_AFTER: Duration = Duration::from_millis(5);
/// Pause in which the gateway takes a part of a request and grants a window for the next one.
const WINDOW_AFTER: Duration = Duration::from_millis(500);
/// Pause before a connection is opened again that the gateway closed or refused.
const REOPEN_AFTER: Duration = Duration::from_millis(100);

/// A way to attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attack {
    SlowHeads,
    SlowBodies,
    SlowStreams,
    UnfinishedBodies,
    UnfinishedStreams,
    AbandonedRuns,
    ControlFrames,
    UnreadResponses,
    UnreadFirstResponses,
    UnfinishedHeads,
    LargeHeads,
    PackedBodies,
    TinyChunks,
    NewKeys,
    Replays,
    Reconnects,
}

/// A metric of the gateway that shows that an attack had the effect it was meant to have.
pub(super) struct Evidence {
    /// Parts of the lines in which the metric is.
    pub(super) line: [&'static str; 2],
    /// Growth during the measurement, below which the attack had no effect.
    pub(super) least: f64,
}

impl Attack {
    /// Its name in a command.
    pub(super) fn argument(self) -> String {
        self.to_possible_value().expect("none is skipped").get_name().to_owned()
    }

    /// Its name in a table.
    pub(super) fn name(self) -> String {
        self.argument().replace('-', " ")
    }

    fn connections(self) -> usize {
        match self {
            // Each has one request under way, and one address may have 2,500.
            Self::SlowBodies => 3000,
            _ => 1000,
        }
    }

    pub(super) fn evidence(self) -> Evidence {
        const CUT: &str = "selfsame_connections_cut_total";
        const SHED: &str = "selfsame_shed_requests_total";
        const REQUESTS: &str = "selfsame_requests_total";
        const REPLAYED: &str = r#"/hostile",outcome="replayed""#;
        let (line, least) = match self {
            Self::SlowHeads | Self::UnfinishedHeads => ([CUT, r#""head""#], 500.0),
            Self::SlowBodies | Self::SlowStreams => {
                ([SHED, r#""max_requests_per_address""#], 100.0)
            }
            Self::UnfinishedBodies | Self::UnfinishedStreams | Self::UnreadFirstResponses => {
                ([SHED, r#""max_buffered_bytes_per_address""#], 100.0)
            }
            Self::AbandonedRuns => (["selfsame_abandoned_requests", ""], 1000.0),
            // A busy address gets the answers late, or none in time.
            Self::ControlFrames | Self::TinyChunks => {
                (["selfsame_deferred_tasks_total", ""], 1000.0)
            }
            Self::UnreadResponses => ([REQUESTS, r#"/v1/large",outcome="replayed""#], 1000.0),
            // Nobody else sends requests without a key.
            Self::LargeHeads | Self::Reconnects => ([REQUESTS, r#"outcome="passed""#], 5000.0),
            Self::PackedBodies | Self::Replays => ([REQUESTS, REPLAYED], 200.0),
            Self::NewKeys => ([SHED, r#""max_new_keys_per_address""#], 1000.0),
        };
        Evidence { line, least }
    }
}

/// Attacks until the process is stopped, and says when every connection was opened once.
pub(crate) fn serve(attack: Attack, gateway: SocketAddr) -> Result<()> {
    let target = Arc::new(Target::new(gateway)?);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        prepare(attack, &target).await?;
        let (attackers, begun) = (TaskTracker::new(), Arc::<AtomicUsize>::default());
        for number in 0..attack.connections() {
            let (target, begun) = (target.clone(), begun.clone());
            attackers.spawn(async move {
                begun.fetch_add(1, Ordering::Relaxed);
                loop {
                    let _ended = connection(attack, &target, number as u64).await;
                    if attack != Attack::Reconnects {
                        sleep(REOPEN_AFTER).await;
                    }
                }
            });
        }
        while begun.load(Ordering::Relaxed) < attack.connections() {
            sleep(Duration::from_millis(10)).await;
        }
        println!("begun");
        attackers.close();
        attackers.wait().await;
        Ok(())
    })
}

/// Makes the records that an attack asks for again.
async fn prepare(attack: Attack, target: &Target) -> io::Result<()> {
    let request = match attack {
        Attack::UnreadResponses => post(LARGE_PATH, "large", "", b"{}"),
        Attack::PackedBodies => target.packed_request(),
        Attack::TinyChunks => target.chunked_request(),
        Attack::Replays => post(HOSTILE_PATH, "replayed", "", b"{}"),
        _ => return Ok(()),
    };
    let (mut from, mut to) = target.open().await?;
    to.write_all(&request).await?;
    let mut status = [0; 12];
    from.read_exact(&mut status).await?;
    match status.ends_with(b"200") {
        true => Ok(()),
        false => Err(io::Error::other("the gateway did not take the first request")),
    }
}

/// The gateway, and bytes that are costly to make.
struct Target {
    gateway: SocketAddr,
    packed: Vec<u8>,
    numbers: AtomicU64,
}

impl Target {
    fn new(gateway: SocketAddr) -> Result<Self> {
        let text = format!("[{}0]", "0,".repeat(UNPACKED_BYTES / 2));
        Ok(Self { gateway, packed: gzip(text.as_bytes())?, numbers: AtomicU64::default() })
    }

    fn next_key(&self) -> String {
        format!("hostile-{}", self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    async fn open(&self) -> io::Result<(OwnedReadHalf, OwnedWriteHalf)> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((ADDRESS, 0)).into())?;
        socket.set_nonblocking(true)?;
        // A closed connection must not keep its port.
        socket.set_linger(Some(Duration::ZERO))?;
        let socket = tokio::net::TcpSocket::from_std_stream(socket.into());
        let stream: TcpStream = socket.connect(self.gateway).await?;
        stream.set_nodelay(true)?;
        Ok(stream.into_split())
    }

    fn packed_request(&self) -> Vec<u8> {
        post(HOSTILE_PATH, "packed", "Content-Encoding: gzip\r\n", &self.packed)
    }

    fn chunked_request(&self) -> Vec<u8> {
        let head = format!(
            "POST {HOSTILE_PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n\
             Idempotency-Key: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        [head.as_bytes(), &b"1\r\nx\r\n".repeat(CHUNKED_BYTES), b"0\r\n\r\n"].concat()
    }
}

/// A keyed request of HTTP/1.1, with these further header lines. Every key has a made-up credential, so that no limit of a
/// tenant stops it.
fn post(path: &str, key: &str, lines: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    [head(path, key, lines, length).as_bytes(), body].concat()
}

fn head(path: &str, key: &str, lines: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
         Authorization: Bearer {key}\r\nIdempotency-Key: {key}\r\n{lines}\
         Content-Length: {length}\r\n\r\n"
    )
}

/// The life of one hostile connection.
async fn connection(attack: Attack, target: &Target, number: u64) -> io::Result<()> {
    let (from, to) = target.open().await?;
    match attack {
        Attack::SlowHeads => {
            let begun = format!("POST {HOSTILE_PATH} HTTP/1.1\r\nHost: a\r\nX-Slow: ");
            drip(from, to, begun.as_bytes(), b"x").await
        }
        Attack::SlowBodies => {
            let head = head(HOSTILE_PATH, &target.next_key(), "", NEVER_SENT);
            drip(from, to, head.as_bytes(), b"0").await
        }
        Attack::SlowStreams => {
            let mut first = frames::preface(&[]);
            for stream in streams() {
                let key = target.next_key();
                first.extend(frames::post(stream, HOSTILE_PATH, &key, NEVER_SENT));
            }
            let rest: Vec<u8> =
                streams().flat_map(|stream| frames::data(stream, b"0", false)).collect();
            drip(from, to, &first, &rest).await
        }
        Attack::UnfinishedBodies => {
            let mut request = post(HOSTILE_PATH, &target.next_key(), "", &[b'0'; NEVER_SENT]);
            request.pop();
            send_and_wait(from, to, [request]).await
        }
        Attack::UnfinishedStreams => {
            let mut first = frames::preface(&[]);
            first.extend(frames::post(1, HOSTILE_PATH, &target.next_key(), NEVER_SENT));
            let body = [b'0'; NEVER_SENT - 1];
            let parted = |part: &[u8]| {
                part.chunks(FRAME_BYTES).flat_map(|part| frames::data(1, part, false)).collect()
            };
            let parts = [first, frames::settings_taken()].into_iter();
            let parts = parts.chain(body.chunks(WINDOW_BYTES).map(parted));
            send_and_wait(from, to, parts).await
        }
        Attack::UnreadFirstResponses => {
            let mut request = frames::preface(&frames::initial_window(0));
            request.extend(frames::post(1, LARGE_PATH, &target.next_key(), 2));
            request.extend(frames::data(1, b"{}", true));
            send_and_wait(from, to, [request]).await
        }
        Attack::UnfinishedHeads => {
            let mut request = large_head();
            request.pop();
            send_and_wait(from, to, [request]).await
        }
        Attack::AbandonedRuns => abandon(target, from, to).await,
        Attack::ControlFrames => {
            flood(from, to, frames::preface(&[]), || frames::ping().repeat(100)).await
        }
        Attack::UnreadResponses => {
            let mut first = frames::preface(&frames::initial_window(0));
            for stream in streams() {
                first.extend(frames::post(stream, LARGE_PATH, "large", 2));
                first.extend(frames::data(stream, b"{}", true));
            }
            drip(from, to, &first, &frames::ping()).await
        }
        Attack::LargeHeads => {
            let request = large_head();
            flood(from, to, Vec::new(), || request.clone()).await
        }
        Attack::PackedBodies => {
            let requests = target.packed_request().repeat(PIPELINED);
            flood(from, to, Vec::new(), || requests.clone()).await
        }
        Attack::TinyChunks => {
            let request = target.chunked_request();
            flood(from, to, Vec::new(), || request.clone()).await
        }
        Attack::NewKeys => {
            let request = || post(HOSTILE_PATH, &target.next_key(), "", b"{}");
            flood(from, to, Vec::new(), || (0..PIPELINED).flat_map(|_| request()).collect()).await
        }
        Attack::Replays => {
            let requests = post(HOSTILE_PATH, "replayed", "", b"{}").repeat(PIPELINED);
            flood(from, to, Vec::new(), || requests.clone()).await
        }
        Attack::Reconnects => ask_once(from, to, number).await,
    }
}

fn streams() -> impl Iterator<Item = u32> {
    (0..STREAMS).map(|number| 2 * number + 1)
}

/// Sends `first`, then `rest` once a second, and reads until the gateway closes.
async fn drip(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    first: &[u8],
    rest: &[u8],
) -> io::Result<()> {
    let write = async {
        to.write_all(first).await?;
        loop {
            sleep(SLOW_STEP).await;
            to.write_all(rest).await?;
        }
    };
    tokio::select! {
        ended = write => ended,
        ended = drain(from) => ended,
    }
}

/// Sends a request in parts, and reads until the gateway closes.
async fn send_and_wait(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    parts: impl IntoIterator<Item = Vec<u8>>,
) -> io::Result<()> {
    let write = async {
        for part in parts {
            to.write_all(&part).await?;
            sleep(WINDOW_AFTER).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        ended = write => ended,
        ended = drain(from) => ended,
    }
}

/// Sends `first`, then what `next` returns for as long as the gateway takes it.
async fn flood(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    first: Vec<u8>,
    mut next: impl FnMut() -> Vec<u8>,
) -> io::Result<()> {
    let write = async {
        to.write_all(&first).await?;
        loop {
            to.write_all(&next()).await?;
        }
    };
    tokio::select! {
        ended = write => ended,
        ended = drain(from) => ended,
    }
}

/// Reads until the gateway closes.
async fn drain(mut from: OwnedReadHalf) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    while from.read(&mut buffer).await? > 0 {}
    Ok(())
}

/// Begins one run after the other at an upstream that does not answer, and resets each.
async fn abandon(target: &Target, from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
    let write = async {
        to.write_all(&frames::preface(&[])).await?;
        for stream in (1..).step_by(2) {
            let mut request = frames::post(stream, SILENT_PATH, &target.next_key(), 2);
            request.extend(frames::data(stream, b"{}", true));
            to.write_all(&request).await?;
            sleep(RUNS_AFTER).await;
            to.write_all(&frames::reset(stream)).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = write => ended,
        ended = drain(from) => ended,
    }
}

/// A head as large as the limits allow, with as many names in `Connection` as are taken.
fn large_head() -> Vec<u8> {
    let mut request = format!("GET {HOSTILE_PATH} HTTP/1.1\r\nHost: a\r\nConnection: ");
    let names: Vec<String> = (0..10).map(|number| format!("x-{number}")).collect();
    request += &names.join(", ");
    request += "\r\n";
    for number in 0..95 {
        request += &format!("X_{number}: {}\r\n", "x".repeat(310));
    }
    request += "\r\n";
    request.into_bytes()
}

/// Sends one request, reads the beginning of its response and closes.
async fn ask_once(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, number: u64) -> io::Result<()> {
    let request = format!("GET {HOSTILE_PATH}?{number} HTTP/1.1\r\nHost: a\r\n\r\n");
    to.write_all(request.as_bytes()).await?;
    let mut buffer = [0; 1024];
    from.read(&mut buffer).await.map(drop)
}
