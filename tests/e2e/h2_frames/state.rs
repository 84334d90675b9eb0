//! Frames at the wrong time: states of streams, windows and header blocks.

use super::Expected::{ConnectionError, Ignored, Status, StreamError};
use super::*;

pub(super) fn cases() -> Vec<Case> {
    [life(), windows(), blocks()].into_iter().flatten().collect()
}

fn life() -> Vec<Case> {
    let protocol = ConnectionError(PROTOCOL_ERROR);
    let data = |flags| frame(DATA, flags, 1, b"x");
    let reset = frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    vec![
        Case::new("DATA on an idle stream", "5.1", &[data(END_STREAM)], protocol),
        Case::new("RST_STREAM on an idle stream", "5.1", std::slice::from_ref(&reset), protocol),
        Case::new("WINDOW_UPDATE on an idle stream", "5.1", &[window_update(1, 1)], protocol),
        Case::new(
            "CONTINUATION on an idle stream",
            "6.10",
            &[frame(CONTINUATION, END_HEADERS, 1, &post())],
            protocol,
        ),
        Case::new(
            "a smaller stream after a larger one",
            "5.1.1",
            &[head(5, &post()), head(3, &post())],
            protocol,
        ),
        Case::new(
            "DATA after the end of a request",
            "5.1",
            &[head(1, &post()), data(END_STREAM)],
            StreamError(STREAM_CLOSED),
        ),
        Case::new(
            "HEADERS after the end of a request",
            "5.1",
            &[head(1, &post()), head(1, &post())],
            StreamError(STREAM_CLOSED),
        ),
        Case::new(
            "DATA after a reset",
            "5.1",
            &[open(1, &post()), reset.clone(), data(0)],
            StreamError(STREAM_CLOSED),
        ),
        Case::new(
            "HEADERS after a reset",
            "5.1",
            &[open(1, &post()), reset.clone(), head(1, &post())],
            ConnectionError(STREAM_CLOSED),
        ),
        Case::new(
            "WINDOW_UPDATE after a reset",
            "5.1",
            &[open(1, &post()), reset.clone(), window_update(1, 1)],
            Ignored,
        ),
        Case::new(
            "PRIORITY after a reset",
            "5.1",
            &[open(1, &post()), reset.clone(), frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])],
            Ignored,
        ),
        Case::new("two resets", "5.1", &[open(1, &post()), reset.clone(), reset.clone()], Ignored),
        Case::new(
            "a stream that is used again",
            "5.1.1",
            &[head(1, &post())],
            ConnectionError(STREAM_CLOSED),
        )
        .after_response(&[head(1, &post())]),
        Case::new(
            "DATA on a stream that has ended",
            "5.1",
            &[head(1, &post())],
            ConnectionError(STREAM_CLOSED),
        )
        .after_response(&[data(0)]),
        Case::new("WINDOW_UPDATE on a stream that has ended", "5.1", &[head(1, &post())], Ignored)
            .after_response(&[window_update(1, 1)]),
        Case::new("RST_STREAM on a stream that has ended", "5.1", &[head(1, &post())], Ignored)
            .after_response(&[reset]),
        Case::new("PRIORITY on a stream that has ended", "5.1", &[head(1, &post())], Ignored)
            .after_response(&[frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])]),
        Case::new(
            "empty DATA that ends a request",
            "6.1",
            &[open(1, &post()), frame(DATA, END_STREAM, 1, &[])],
            Status(200),
        ),
        Case::new(
            "SETTINGS that nobody asked to be confirmed",
            "6.5",
            &[head(1, &post())],
            protocol,
        )
        .after_response(&[frame(SETTINGS, ACK, 0, &[])]),
    ]
}

fn windows() -> Vec<Case> {
    let flow = ConnectionError(FLOW_CONTROL_ERROR);
    let most = (1 << 31) - 1;
    vec![
        Case::new(
            "WINDOW_UPDATE of 0",
            "6.9",
            &[window_update(0, 0)],
            ConnectionError(PROTOCOL_ERROR),
        ),
        Case::new(
            "WINDOW_UPDATE of 0 on a stream",
            "6.9",
            &[open(1, &post()), window_update(1, 0)],
            StreamError(PROTOCOL_ERROR),
        ),
        Case::new("a window beyond 2^31-1", "6.9.1", &[window_update(0, most)], flow),
        Case::new(
            "a stream's window beyond 2^31-1",
            "6.9.1",
            &[open(1, &post()), window_update(1, most)],
            StreamError(FLOW_CONTROL_ERROR),
        ),
        Case::new(
            "settings that take a stream's window beyond 2^31-1",
            "6.9.2",
            &[setting(4, 0), open(1, &post()), window_update(1, most), setting(4, 1)],
            flow,
        ),
        Case::new(
            "a window with its reserved bit set",
            "6.9",
            &[window_update(0, 0x8000_0001)],
            Ignored,
        ),
        Case::new(
            "a window that becomes negative",
            "6.9.2",
            &[open(1, &post()), setting(4, 0), frame(DATA, END_STREAM, 1, b"x")],
            Status(200),
        ),
    ]
}

fn blocks() -> Vec<Case> {
    let protocol = ConnectionError(PROTOCOL_ERROR);
    let begun = frame(HEADERS, END_STREAM, 1, &post());
    let more = |stream, flags, fields: &[u8]| frame(CONTINUATION, flags, stream, fields);
    let parts = post();
    let (first, rest) = parts.split_at(4);
    vec![
        Case::new(
            "PING amid a header block",
            "6.10",
            &[begun.clone(), frame(PING, 0, 0, &[0; 8])],
            protocol,
        ),
        Case::new(
            "DATA amid a header block",
            "6.10",
            &[begun.clone(), frame(DATA, 0, 1, b"x")],
            protocol,
        ),
        Case::new(
            "HEADERS amid a header block",
            "6.10",
            &[begun.clone(), head(3, &post())],
            protocol,
        ),
        Case::new(
            "HEADERS of the same stream amid its header block",
            "6.10",
            &[begun.clone(), head(1, &post())],
            protocol,
        ),
        Case::new(
            "an unknown frame amid a header block",
            "5.5",
            &[begun.clone(), frame(0xbe, 0, 0, &[])],
            protocol,
        ),
        Case::new(
            "SETTINGS amid a header block",
            "6.10",
            &[begun.clone(), setting(1, 0)],
            protocol,
        ),
        Case::new(
            "RST_STREAM amid a header block",
            "6.10",
            &[begun.clone(), frame(RST_STREAM, 0, 1, &[0; 4])],
            protocol,
        ),
        Case::new(
            "CONTINUATION of another stream",
            "6.10",
            &[begun.clone(), more(3, END_HEADERS, &[])],
            protocol,
        ),
        Case::new(
            "CONTINUATION after the end of a header block",
            "6.10",
            &[open(1, &post()), more(1, END_HEADERS, &[])],
            protocol,
        ),
        Case::new(
            "CONTINUATION after DATA",
            "6.10",
            &[open(1, &post()), frame(DATA, 0, 1, b"x"), more(1, END_HEADERS, &[])],
            protocol,
        ),
        Case::new(
            "a header block in parts, one of them empty",
            "6.10",
            &[frame(HEADERS, END_STREAM, 1, first), more(1, 0, &[]), more(1, END_HEADERS, rest)],
            Status(200),
        ),
    ]
}
