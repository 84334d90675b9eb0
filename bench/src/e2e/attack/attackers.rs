//! The attacks. Each keeps a thousand connections from one address, which take a step a second.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use socket2::{Domain, Socket, Type};

use super::super::heads::gzip;
use super::frames;

/// Path of the route whose upstream never answers.
pub(super) const SILENT_PATH: &str = "/silent";
/// Address from which all attackers come.
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of streams that a connection of HTTP/2 opens.
const STREAMS: u32 = 25;
/// Number of control frames that a connection sends in one step.
const PINGS: usize = 40;
/// Size of a body that never comes to its end.
const NEVER_SENT: usize = 1_000_000;
/// Size that a packed body has once it is unpacked.
const UNPACKED_BYTES: usize = 1_000_000;
/// One connection in this many sends a request in each step, where requests are costly.
const SENDS_ONE_IN: u64 = 10;

/// A way to attack.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) connect: fn(&Target) -> io::Result<Box<dyn Attacker>>,
}

/// One hostile connection.
pub(super) trait Attacker {
    /// Does a little more harm. An error says that the connection is gone.
    fn step(&mut self) -> io::Result<()>;
}

/// All of them.
pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "slow heads", connect: slow_head },
    Attack { name: "slow bodies", connect: slow_body },
    Attack { name: "slow bodies over HTTP/2", connect: slow_streams },
    Attack { name: "runs whose client is gone", connect: abandoned },
    Attack { name: "control frames", connect: pings },
    Attack { name: "responses that nobody reads", connect: unread },
    Attack { name: "large heads", connect: large_heads },
    Attack { name: "packed bodies", connect: packed_bodies },
    Attack { name: "new keys", connect: new_keys },
];

/// The gateway, and bytes that are costly to make.
pub(super) struct Target {
    gateway: SocketAddr,
    packed: Vec<u8>,
    numbers: AtomicU64,
}

impl Target {
    pub(super) fn new(gateway: SocketAddr) -> Result<Self> {
        let text = format!("[{}0]", "0,".repeat(UNPACKED_BYTES / 2));
        Ok(Self { gateway, packed: gzip(text.as_bytes())?, numbers: AtomicU64::default() })
    }

    fn next(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Connects, and sends `bytes`.
    fn open(&self, bytes: &[u8]) -> io::Result<Connection> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((HOSTILE, 0)).into())?;
        socket.connect_timeout(&self.gateway.into(), CONNECT_TIMEOUT)?;
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true)?;
        let mut connection = Connection { stream };
        connection.send(bytes)?;
        Ok(connection)
    }
}

struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// Sends what fits, and forgets the rest: a full connection is part of the attack.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.stream.write(bytes) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads what has come, and fails once the other end is closed.
    fn drain(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// An attacker that sends the same bytes in each step.
struct Repeats {
    connection: Connection,
    bytes: Vec<u8>,
}

impl Attacker for Repeats {
    fn step(&mut self) -> io::Result<()> {
        self.connection.drain()?;
        self.connection.send(&self.bytes)
    }
}

fn repeats(
    target: &Target,
    first: &[u8],
    bytes: impl Into<Vec<u8>>,
) -> io::Result<Box<dyn Attacker>> {
    Ok(Box::new(Repeats { connection: target.open(first)?, bytes: bytes.into() }))
}

fn slow_head(target: &Target) -> io::Result<Box<dyn Attacker>> {
    repeats(target, b"POST /v1/charges HTTP/1.1\r\nHost: a\r\nX-Slow: ", "x")
}

fn head(key: &str, more: &str, length: usize) -> String {
    format!(
        "POST /v1/charges HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
         Idempotency-Key: {key}\r\n{more}Content-Length: {length}\r\n\r\n"
    )
}

fn slow_body(target: &Target) -> io::Result<Box<dyn Attacker>> {
    let key = format!("slow-{}", target.next());
    repeats(target, head(&key, "", NEVER_SENT).as_bytes(), "0")
}

fn streams() -> impl Iterator<Item = u32> {
    (0..STREAMS).map(|number| 2 * number + 1)
}

fn slow_streams(target: &Target) -> io::Result<Box<dyn Attacker>> {
    let mut first = frames::preface(&[]);
    for stream in streams() {
        let key = format!("slow-h2-{}", target.next());
        first.extend(frames::post(stream, "/v1/charges", &key, NEVER_SENT));
    }
    let bytes: Vec<u8> = streams().flat_map(|stream| frames::data(stream, b"0", false)).collect();
    repeats(target, &first, bytes)
}

/// Sends a keyed request to an upstream that does not answer, and takes it back.
struct Abandons {
    connection: Connection,
    stream: u32,
    name: u64,
}

impl Attacker for Abandons {
    fn step(&mut self) -> io::Result<()> {
        self.connection.drain()?;
        if self.stream > 1 {
            self.connection.send(&frames::reset(self.stream - 2))?;
        }
        let key = format!("gone-{}-{}", self.name, self.stream);
        let mut request = frames::post(self.stream, SILENT_PATH, &key, 2);
        request.extend(frames::data(self.stream, b"{}", true));
        self.stream += 2;
        self.connection.send(&request)
    }
}

fn abandoned(target: &Target) -> io::Result<Box<dyn Attacker>> {
    let connection = target.open(&frames::preface(&[]))?;
    Ok(Box::new(Abandons { connection, stream: 1, name: target.next() }))
}

fn pings(target: &Target) -> io::Result<Box<dyn Attacker>> {
    repeats(target, &frames::preface(&[]), frames::ping().repeat(PINGS))
}

/// Asks for responses without a window to send them in.
fn unread(target: &Target) -> io::Result<Box<dyn Attacker>> {
    let mut first = frames::preface(&frames::initial_window(0));
    for stream in streams() {
        first.extend(frames::post(stream, "/v1/large", "large", 2));
        first.extend(frames::data(stream, b"{}", true));
    }
    repeats(target, &first, frames::ping())
}

/// A connection that sends a costly request now and then.
struct Seldom {
    connection: Connection,
    request: Vec<u8>,
    steps: u64,
}

impl Attacker for Seldom {
    fn step(&mut self) -> io::Result<()> {
        self.connection.drain()?;
        self.steps += 1;
        match self.steps.is_multiple_of(SENDS_ONE_IN) {
            true => self.connection.send(&self.request),
            false => Ok(()),
        }
    }
}

fn seldom(target: &Target, request: Vec<u8>) -> io::Result<Box<dyn Attacker>> {
    let connection = target.open(&[])?;
    Ok(Box::new(Seldom { connection, request, steps: target.next() }))
}

/// Heads as large as the limits allow, with as many names in `Connection` as are taken.
fn large_heads(target: &Target) -> io::Result<Box<dyn Attacker>> {
    let mut request = "GET /v1/charges HTTP/1.1\r\nHost: a\r\nConnection: ".to_owned();
    let names: Vec<String> = (0..10).map(|number| format!("x-{number}")).collect();
    request += &names.join(", ");
    request += "\r\n";
    for number in 0..95 {
        request += &format!("X_{number}: {}\r\n", "x".repeat(310));
    }
    request += "\r\n";
    seldom(target, request.into_bytes())
}

fn packed_bodies(target: &Target) -> io::Result<Box<dyn Attacker>> {
    let key = format!("packed-{}", target.next());
    let mut request = head(&key, "Content-Encoding: gzip\r\n", target.packed.len()).into_bytes();
    request.extend(&target.packed);
    seldom(target, request)
}

/// Has a response recorded for a new key in each step.
struct NewKeys {
    connection: Connection,
    name: u64,
    steps: u64,
}

impl Attacker for NewKeys {
    fn step(&mut self) -> io::Result<()> {
        self.connection.drain()?;
        self.steps += 1;
        let key = format!("new-{}-{}", self.name, self.steps);
        self.connection.send((head(&key, "", 2) + "{}").as_bytes())
    }
}

fn new_keys(target: &Target) -> io::Result<Box<dyn Attacker>> {
    Ok(Box::new(NewKeys { connection: target.open(&[])?, name: target.next(), steps: 0 }))
}
