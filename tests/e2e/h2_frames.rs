//! Malformed and abusive sequences of HTTP/2 frames, each with what RFC 9113 says about it.
//!
//! `deviations` lists what happens otherwise, and why that does no harm.

mod deviations;
mod frames;
mod heads;
mod hpack;
mod state;

use std::io::{self, Write};
use std::net::TcpStream;

use crate::harness::{Frame, GOAWAY, Gateway, Ledger, PATIENCE, PREFACE, RST_STREAM, reply};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 32;

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;

const PROBE: [u8; 8] = *b"alive?!!";

/// Reaction to a sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expected {
    /// GOAWAY with this code; the connection is closed.
    ConnectionError(u32),
    /// The connection is closed, with or without a GOAWAY.
    Closed,
    /// RST_STREAM of stream 1 with this code; the connection lives.
    StreamError(u32),
    /// Response on stream 1; the connection lives.
    Status(u16),
    /// Nothing; the connection lives.
    Ignored,
}

/// A sequence that a client sends after its preface and settings.
struct Case {
    name: &'static str,
    section: &'static str,
    /// Sent instead of the preface and settings.
    beginning: Option<Vec<u8>>,
    bytes: Vec<u8>,
    /// Sent once the response on stream 1 has ended.
    after_response: Vec<u8>,
    expected: Expected,
}

impl Case {
    fn new(
        name: &'static str,
        section: &'static str,
        frames: &[Vec<u8>],
        expected: Expected,
    ) -> Self {
        let (bytes, after_response) = (frames.concat(), Vec::new());
        Self { name, section, beginning: None, bytes, after_response, expected }
    }

    fn beginning(self, bytes: &[&[u8]]) -> Self {
        Self { beginning: Some(bytes.concat()), ..self }
    }

    fn after_response(self, frames: &[Vec<u8>]) -> Self {
        Self { after_response: frames.concat(), ..self }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    Frame { kind, flags, stream, payload: payload.into() }.bytes()
}

/// A field that is packed letter by letter.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| {
        let length = text.len();
        match u8::try_from(length) {
            Ok(short @ 0..127) => vec![short],
            // An integer with a prefix of seven bits.
            _ => {
                let mut rest = length - 127;
                let mut bytes = vec![127];
                while rest >= 128 {
                    bytes.push(u8::try_from(rest % 128).expect("small") | 128);
                    rest /= 128;
                }
                bytes.push(u8::try_from(rest).expect("small"));
                bytes
            }
        }
    };
    [vec![0], length(name), name.into(), length(value), value.into()].concat()
}

/// Fields of a valid `POST /` to the host `a`.
fn post() -> Vec<u8> {
    [&[0x83, 0x86, 0x84][..], &field(":authority", "a")].concat()
}

/// A valid head with more fields behind.
fn post_with(more: &[(&str, &str)]) -> Vec<u8> {
    let more = more.iter().map(|(name, value)| field(name, value));
    [vec![post()], more.collect()].concat().concat()
}

/// Fields one by one, packed letter by letter.
fn fields(list: &[(&str, &str)]) -> Vec<u8> {
    list.iter().flat_map(|(name, value)| field(name, value)).collect()
}

/// HEADERS that end the request.
fn head(stream: u32, fields: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, fields)
}

/// HEADERS before a body.
fn open(stream: u32, fields: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, fields)
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// Events that a client saw, as far as they matter here.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Goaway(u32),
    Closed,
    Reset(u32),
    Response(u16),
    Ended,
    Alive,
}

struct Client {
    connection: TcpStream,
    seen: Vec<Event>,
}

impl Client {
    fn begin(gateway: &Gateway, case: &Case) -> Self {
        let mut connection = TcpStream::connect(gateway.address).expect("a connection");
        connection.set_read_timeout(Some(PATIENCE)).expect("it is open");
        let settings = Frame::settings().bytes();
        let usual = [PREFACE, &settings].concat();
        let beginning = case.beginning.as_deref().unwrap_or(&usual);
        let probe = frame(PING, 0, 0, &PROBE);
        // A gateway that closes early may refuse the rest.
        let _closed = connection.write_all(&[beginning, &case.bytes, &probe].concat());
        Self { connection, seen: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        let _closed = self.connection.write_all(bytes);
    }

    /// Reads until an event was seen, or the connection has ended.
    fn wait_for(&mut self, is_it: impl Fn(&Event) -> bool) {
        while !self.seen.iter().any(&is_it) && !self.seen.contains(&Event::Closed) {
            match Frame::read(&mut self.connection) {
                Ok(frame) => self.note(&frame),
                Err(error) => {
                    let is_late =
                        matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                    assert!(!is_late, "nothing more came within {PATIENCE:?}: {:?}", self.seen);
                    self.seen.push(Event::Closed);
                }
            }
        }
    }

    fn note(&mut self, frame: &Frame) {
        let number = |at: usize| {
            let bytes = frame.payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            u32::from_be_bytes(bytes.unwrap_or_default())
        };
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => self.send(&self::frame(SETTINGS, ACK, 0, &[])),
            PING if frame.flags & ACK != 0 && frame.payload == PROBE => {
                self.seen.push(Event::Alive)
            }
            GOAWAY => self.seen.push(Event::Goaway(number(4))),
            RST_STREAM if frame.stream == 1 => self.seen.push(Event::Reset(number(0))),
            HEADERS | DATA if frame.stream == 1 => {
                if frame.kind == HEADERS {
                    self.seen.push(Event::Response(status(&frame.payload)));
                }
                if frame.flags & END_STREAM != 0 {
                    self.seen.push(Event::Ended);
                }
            }
            _ => {}
        }
    }
}

/// Status of a packed head, which begins with it; 0 for one that is not in the static table.
fn status(payload: &[u8]) -> u16 {
    // A new size of the table may stand before it.
    match payload.iter().find(|byte| **byte & 0xe0 != 0x20) {
        Some(0x88) => 200,
        Some(0x8c) => 400,
        _ => 0,
    }
}

/// Runs a case; the complaint if something else happened than expected.
fn run(gateway: &Gateway, case: &Case, expected: Expected) -> Result<(), String> {
    let mut client = Client::begin(gateway, case);
    if !case.after_response.is_empty() {
        client.wait_for(|event| *event == Event::Ended);
        client.wait_for(|event| *event == Event::Alive);
        client.seen.clear();
        let probe = frame(PING, 0, 0, &PROBE);
        client.send(&[&case.after_response[..], &probe].concat());
    }
    let is_fine = match expected {
        Expected::ConnectionError(code) => {
            client.wait_for(|event| matches!(event, Event::Goaway(_) | Event::Alive));
            let is_told = client.seen.contains(&Event::Goaway(code));
            if is_told {
                client.wait_for(|event| *event == Event::Closed);
            }
            is_told && !client.seen.contains(&Event::Alive)
        }
        Expected::Closed => {
            client.wait_for(|event| matches!(event, Event::Closed | Event::Alive));
            client.seen.contains(&Event::Closed)
        }
        Expected::StreamError(code) => {
            client.wait_for(|event| matches!(event, Event::Reset(_) | Event::Response(_)));
            client.wait_for(|event| *event == Event::Alive);
            client.seen.contains(&Event::Reset(code)) && client.seen.contains(&Event::Alive)
        }
        Expected::Status(status) => {
            client.wait_for(|event| matches!(event, Event::Reset(_) | Event::Response(_)));
            client.wait_for(|event| *event == Event::Alive);
            client.seen.contains(&Event::Response(status)) && client.seen.contains(&Event::Alive)
        }
        Expected::Ignored => {
            client.wait_for(|event| *event == Event::Alive);
            client.seen == [Event::Alive]
        }
    };
    let Case { name, section, .. } = case;
    match is_fine {
        true => Ok(()),
        false => Err(format!("{name} ({section}): expected {expected:?}, saw {:?}", client.seen)),
    }
}

#[test]
fn every_sequence_of_frames_gets_what_the_standard_says() {
    let ledger = Ledger::start();
    ledger.behave(|_, client| reply(client, 200, &[], "done"));
    let gateway = Gateway::in_front_of(&ledger).start();
    let cases = [frames::cases(), state::cases(), hpack::cases(), heads::cases()];
    let cases: Vec<Case> = cases.into_iter().flatten().collect();
    assert!(cases.len() >= 100, "{}", cases.len());
    let deviations = deviations::all();
    for (name, expected, _) in &deviations {
        let is_one = |case: &&Case| case.name == *name && case.expected != *expected;
        assert!(cases.iter().any(|case| is_one(&case)), "{name} is no case that deviates so");
    }
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let deviation = deviations.iter().find(|(name, _, _)| *name == case.name);
            let expected = deviation.map_or(case.expected, |(_, expected, _)| *expected);
            run(&gateway, case, expected).err()
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));

    let malformed = ledger.all().into_iter().filter(|effect| effect.target != "/");
    assert_eq!(malformed.count(), 0, "no malformed request reaches the upstream");
}
