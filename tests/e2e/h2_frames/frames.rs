//! Prefaces, sizes, streams and settings of frames.

use super::Expected::{Closed, ConnectionError, Ignored, Status, StreamError};
use super::*;

pub(super) fn cases() -> Vec<Case> {
    [prefaces(), sizes(), streams(), settings(), padding(), unknown()]
        .into_iter()
        .flatten()
        .collect()
}

fn prefaces() -> Vec<Case> {
    let none = &[][..];
    vec![
        Case::new("another preface", "3.4", none, Closed)
            .beginning(&[b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"]),
        Case::new("a preface of HTTP/2.1", "3.4", none, Closed)
            .beginning(&[b"PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n", &Frame::settings().bytes()]),
        Case::new("PING before SETTINGS", "3.4", none, ConnectionError(PROTOCOL_ERROR))
            .beginning(&[PREFACE, &frame(PING, 0, 0, &[0; 8]), &Frame::settings().bytes()]),
        Case::new("HEADERS before SETTINGS", "3.4", none, ConnectionError(PROTOCOL_ERROR))
            .beginning(&[PREFACE, &head(1, &post()), &Frame::settings().bytes()]),
        Case::new("ACK as the first SETTINGS", "3.4", none, ConnectionError(PROTOCOL_ERROR))
            .beginning(&[PREFACE, &frame(SETTINGS, ACK, 0, &[])]),
    ]
}

fn sizes() -> Vec<Case> {
    let size = ConnectionError(FRAME_SIZE_ERROR);
    let large = vec![0; 16_385];
    let priority = StreamError(FRAME_SIZE_ERROR);
    vec![
        Case::new("large DATA", "4.2", &[open(1, &post()), frame(DATA, 0, 1, &large)], size),
        Case::new("large HEADERS", "4.2", &[head(1, &large)], size),
        Case::new("large unknown frame", "4.2", &[frame(0xbe, 0, 0, &large)], size),
        Case::new("large SETTINGS", "4.2", &[frame(SETTINGS, 0, 0, &vec![0; 16_386])], size),
        Case::new("SETTINGS of 5 bytes", "6.5", &[frame(SETTINGS, 0, 0, &[0; 5])], size),
        Case::new("SETTINGS of 7 bytes", "6.5", &[frame(SETTINGS, 0, 0, &[0; 7])], size),
        Case::new("ACK with a payload", "6.5", &[frame(SETTINGS, ACK, 0, &[0; 6])], size),
        Case::new("PING of 7 bytes", "6.7", &[frame(PING, 0, 0, &[0; 7])], size),
        Case::new("PING of 9 bytes", "6.7", &[frame(PING, 0, 0, &[0; 9])], size),
        Case::new("empty PING", "6.7", &[frame(PING, 0, 0, &[])], size),
        Case::new(
            "RST_STREAM of 3 bytes",
            "6.4",
            &[open(1, &post()), frame(RST_STREAM, 0, 1, &[0; 3])],
            size,
        ),
        Case::new(
            "RST_STREAM of 5 bytes",
            "6.4",
            &[open(1, &post()), frame(RST_STREAM, 0, 1, &[0; 5])],
            size,
        ),
        Case::new("WINDOW_UPDATE of 3 bytes", "6.9", &[frame(WINDOW_UPDATE, 0, 0, &[0; 3])], size),
        Case::new("WINDOW_UPDATE of 5 bytes", "6.9", &[frame(WINDOW_UPDATE, 0, 0, &[0; 5])], size),
        Case::new("GOAWAY of 7 bytes", "6.8", &[frame(GOAWAY, 0, 0, &[0; 7])], size),
        Case::new(
            "PRIORITY of 4 bytes",
            "6.3",
            &[open(1, &post()), frame(PRIORITY, 0, 1, &[0; 4])],
            priority,
        ),
        Case::new(
            "HEADERS with 4 bytes of priority",
            "6.2",
            &[frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, &[0; 4])],
            size,
        ),
    ]
}

fn streams() -> Vec<Case> {
    let protocol = ConnectionError(PROTOCOL_ERROR);
    vec![
        Case::new("HEADERS on stream 0", "6.2", &[head(0, &post())], protocol),
        Case::new("HEADERS on an even stream", "5.1.1", &[head(2, &post())], protocol),
        Case::new("DATA on stream 0", "6.1", &[frame(DATA, END_STREAM, 0, b"x")], protocol),
        Case::new("RST_STREAM on stream 0", "6.4", &[frame(RST_STREAM, 0, 0, &[0; 4])], protocol),
        Case::new("PRIORITY on stream 0", "6.3", &[frame(PRIORITY, 0, 0, &[0; 5])], protocol),
        Case::new(
            "CONTINUATION on stream 0",
            "6.10",
            &[frame(CONTINUATION, END_HEADERS, 0, &post())],
            protocol,
        ),
        Case::new("SETTINGS on a stream", "6.5", &[frame(SETTINGS, 0, 1, &[])], protocol),
        Case::new("PING on a stream", "6.7", &[frame(PING, 0, 1, &[0; 8])], protocol),
        Case::new("GOAWAY on a stream", "6.8", &[frame(GOAWAY, 0, 1, &[0; 8])], protocol),
        Case::new(
            "PUSH_PROMISE from a client",
            "8.4",
            &[
                open(1, &post()),
                frame(PUSH_PROMISE, END_HEADERS, 1, &[&[0, 0, 0, 2][..], &post()].concat()),
            ],
            protocol,
        ),
        Case::new(
            "a stream with its reserved bit set",
            "4.1",
            &[head(0x8000_0001, &post())],
            Status(200),
        ),
    ]
}

fn settings() -> Vec<Case> {
    let protocol = ConnectionError(PROTOCOL_ERROR);
    vec![
        Case::new("ENABLE_PUSH of 2", "6.5.2", &[setting(2, 2)], protocol),
        Case::new(
            "a window of 2^31",
            "6.5.2",
            &[setting(4, 1 << 31)],
            ConnectionError(FLOW_CONTROL_ERROR),
        ),
        Case::new("frames of 16383 bytes", "6.5.2", &[setting(5, 16_383)], protocol),
        Case::new("frames of 2^24 bytes", "6.5.2", &[setting(5, 1 << 24)], protocol),
        Case::new("an unknown setting", "6.5.2", &[setting(0xfe, 7)], Ignored),
        Case::new(
            "a header table of 4 GiB",
            "6.5.2",
            &[setting(1, u32::MAX), head(1, &post())],
            Status(200),
        ),
        Case::new("no header table", "6.5.2", &[setting(1, 0), head(1, &post())], Status(200)),
        Case::new("no streams allowed", "6.5.2", &[setting(3, 0), head(1, &post())], Status(200)),
    ]
}

fn padding() -> Vec<Case> {
    let protocol = ConnectionError(PROTOCOL_ERROR);
    let flags = END_HEADERS | END_STREAM;
    let padded =
        |pad: u8, fields: &[u8], zeros: usize| [&[pad][..], fields, &vec![0; zeros]].concat();
    let on_itself = [&[0, 0, 0, 1, 15][..], &post()].concat();
    vec![
        Case::new(
            "HEADERS padded beyond their end",
            "6.2",
            &[frame(HEADERS, flags | PADDED, 1, &padded(200, &post(), 2))],
            protocol,
        ),
        Case::new(
            "HEADERS of padding alone and too much of it",
            "6.2",
            &[frame(HEADERS, flags | PADDED, 1, &[1])],
            protocol,
        ),
        Case::new(
            "padded HEADERS without a length",
            "6.2",
            &[frame(HEADERS, flags | PADDED, 1, &[])],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
        Case::new(
            "DATA padded beyond their end",
            "6.1",
            &[open(1, &post()), frame(DATA, PADDED, 1, &[9, 0, 0])],
            protocol,
        ),
        Case::new(
            "padded DATA without a length",
            "6.1",
            &[open(1, &post()), frame(DATA, PADDED, 1, &[])],
            ConnectionError(FRAME_SIZE_ERROR),
        ),
        Case::new(
            "padded HEADERS",
            "6.2",
            &[frame(HEADERS, flags | PADDED, 1, &padded(3, &post(), 3))],
            Status(200),
        ),
        Case::new(
            "padded DATA",
            "6.1",
            &[open(1, &post()), frame(DATA, END_STREAM | PADDED, 1, &[2, b'x', 0, 0])],
            Status(200),
        ),
        Case::new(
            "HEADERS with a priority",
            "6.2",
            &[frame(HEADERS, flags | WITH_PRIORITY, 1, &[&[0, 0, 0, 0, 15][..], &post()].concat())],
            Status(200),
        ),
        Case::new(
            "HEADERS that depend on themselves",
            "5.3.1 of RFC 7540",
            &[frame(HEADERS, flags | WITH_PRIORITY, 1, &on_itself)],
            StreamError(PROTOCOL_ERROR),
        ),
        Case::new(
            "PRIORITY that depends on itself",
            "5.3.1 of RFC 7540",
            &[open(1, &post()), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 15])],
            StreamError(PROTOCOL_ERROR),
        ),
        Case::new(
            "PRIORITY of an idle stream",
            "5.1",
            &[frame(PRIORITY, 0, 9, &[0, 0, 0, 0, 15])],
            Ignored,
        ),
    ]
}

fn unknown() -> Vec<Case> {
    vec![
        Case::new("an unknown frame", "5.5", &[frame(0xbe, 0xff, 0, b"what?")], Ignored),
        Case::new(
            "an unknown frame on an idle stream",
            "5.5",
            &[frame(0xbe, 0, 7, b"what?")],
            Ignored,
        ),
        Case::new("unknown flags of PING", "4.1", &[frame(PING, 0xf6, 0, &[0; 8])], Ignored),
        Case::new(
            "unknown flags of HEADERS",
            "4.1",
            &[frame(HEADERS, END_HEADERS | END_STREAM | 0xd2, 1, &post())],
            Status(200),
        ),
        Case::new("unknown flags of SETTINGS", "4.1", &[frame(SETTINGS, 0xf6, 0, &[])], Ignored),
        Case::new("an answer to no PING", "6.7", &[frame(PING, ACK, 0, &[7; 8])], Ignored),
    ]
}
