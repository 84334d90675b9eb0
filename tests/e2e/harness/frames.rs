//! Frames of HTTP/2 on a raw socket, and an upstream that says exactly what it is told to.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a client begins with.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// One frame as it goes over the wire.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// A client's or server's settings, with none set.
    pub(crate) fn settings() -> Self {
        Self { kind: SETTINGS, flags: 0, stream: 0, payload: Vec::new() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).expect("short").to_be_bytes();
        let stream = self.stream.to_be_bytes();
        [&length[1..], &[self.kind, self.flags], &stream, &self.payload].concat()
    }

    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; 9];
        from.read_exact(&mut head)?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        from.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Ok(Self { kind: head[3], flags: head[4], stream, payload })
    }

    fn ends_a_request(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// A whole head in packed fields.
pub(crate) fn headers(stream: u32, fields: &[u8], ends: bool) -> Frame {
    let flags = if ends { END_HEADERS | END_STREAM } else { END_HEADERS };
    Frame { kind: HEADERS, flags, stream, payload: fields.into() }
}

/// Fields packed as literals that no table remembers.
pub(crate) fn packed(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            let length = u8::try_from(text.len()).ok().filter(|length| *length < 127);
            bytes.push(length.expect("a short text"));
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// `RST_STREAM`, for this reason.
pub(crate) fn reset(stream: u32, reason: u32) -> Frame {
    Frame { kind: RST_STREAM, flags: 0, stream, payload: reason.to_be_bytes().into() }
}

/// `GOAWAY` after this last stream, for no reason.
pub(crate) fn goaway(last: u32) -> Frame {
    let payload = [last.to_be_bytes(), 0_u32.to_be_bytes()].concat();
    Frame { kind: GOAWAY, flags: 0, stream: 0, payload }
}

type Behaviour = dyn Fn(Arrived, &mut TcpStream) + Send + Sync;

/// A request that has arrived whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    /// How many came before it, over all connections, and itself.
    pub(crate) number: usize,
    pub(crate) stream: u32,
}

/// An upstream that answers each request with raw bytes. Its connection is closed when the
/// behaviour shuts it down.
pub(crate) struct RawUpstream {
    pub(crate) address: SocketAddr,
    arrived: Arc<Mutex<usize>>,
}

impl RawUpstream {
    pub(crate) fn start(behave: impl Fn(Arrived, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let arrived = Arc::new(Mutex::new(0));
        let (counted, behave): (_, Arc<Behaviour>) = (arrived.clone(), Arc::new(behave));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (counted, behave) = (counted.clone(), behave.clone());
                std::thread::spawn(move || serve(connection, &counted, &*behave));
            }
        });
        Self { address, arrived }
    }

    /// How many requests have arrived.
    pub(crate) fn arrived(&self) -> usize {
        *self.arrived.lock().expect("no panic holds it")
    }
}

fn serve(mut connection: TcpStream, counted: &Mutex<usize>, behave: &Behaviour) {
    let mut preface = [0; PREFACE.len()];
    let begun = connection.read_exact(&mut preface);
    if begun.is_err() || connection.write_all(&Frame::settings().bytes()).is_err() {
        return;
    }
    while let Ok(frame) = Frame::read(&mut connection) {
        if frame.ends_a_request() {
            let number = {
                let mut arrived = counted.lock().expect("no panic holds it");
                *arrived += 1;
                *arrived
            };
            behave(Arrived { number, stream: frame.stream }, &mut connection);
        }
    }
}
