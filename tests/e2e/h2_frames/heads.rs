//! Heads, lengths and trailers that are malformed: none of them reaches the upstream.

use super::Expected::{Status, StreamError};
use super::*;

const PSEUDO: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":path", "/malformed"), (":authority", "a")];

/// A head with these fields behind the usual ones.
fn with(more: &[(&str, &str)]) -> Vec<u8> {
    head(1, &fields(&[&PSEUDO, more].concat()))
}

/// A head without one of the usual fields.
fn without(name: &str) -> Vec<u8> {
    let left: Vec<_> = PSEUDO.into_iter().filter(|(found, _)| *found != name).collect();
    head(1, &fields(&left))
}

/// A head with another value of a usual field.
fn instead(name: &str, value: &str) -> Vec<u8> {
    let value_of = |(found, usual)| (found, if found == name { value } else { usual });
    head(1, &fields(&PSEUDO.map(value_of)))
}

pub(super) fn cases() -> Vec<Case> {
    [pseudo_headers(), names_and_values(), lengths(), trailers()].into_iter().flatten().collect()
}

fn pseudo_headers() -> Vec<Case> {
    let malformed = StreamError(PROTOCOL_ERROR);
    let late = [&[("x", "y")][..], &PSEUDO].concat();
    vec![
        Case::new("no :method", "8.3.1", &[without(":method")], malformed),
        Case::new("no :scheme", "8.3.1", &[without(":scheme")], malformed),
        Case::new("no :path", "8.3.1", &[without(":path")], malformed),
        Case::new("an empty :path", "8.3.1", &[instead(":path", "")], malformed),
        Case::new("a :path without a slash", "8.3.1", &[instead(":path", "malformed")], malformed),
        Case::new(
            "a :path of an asterisk in a POST",
            "8.3.1",
            &[instead(":path", "*")],
            Status(400),
        ),
        Case::new("an empty :method", "8.3.1", &[instead(":method", "")], malformed),
        Case::new("an invalid :method", "8.3.1", &[instead(":method", "PO ST")], malformed),
        Case::new("an invalid :scheme", "8.3.1", &[instead(":scheme", "ht tp")], malformed),
        Case::new("an invalid :authority", "8.3.1", &[instead(":authority", "a b")], malformed),
        Case::new(
            "an :authority with a name and password",
            "8.3.1",
            &[instead(":authority", "me:x@a")],
            Status(400),
        ),
        Case::new("two of :method", "8.3", &[with(&[(":method", "GET")])], malformed),
        Case::new("two of :path", "8.3", &[with(&[(":path", "/x")])], malformed),
        Case::new("two of :authority", "8.3", &[with(&[(":authority", "b")])], malformed),
        Case::new("a pseudo-header behind a header", "8.3", &[head(1, &fields(&late))], malformed),
        Case::new("a pseudo-header of responses", "8.3", &[with(&[(":status", "200")])], malformed),
        Case::new("an unknown pseudo-header", "8.3", &[with(&[(":what", "x")])], malformed),
        Case::new(
            "a :protocol that was not agreed on",
            "4 of RFC 8441",
            &[with(&[(":protocol", "websocket")])],
            malformed,
        ),
        Case::new(
            "a host beside another :authority",
            "8.3.1",
            &[with(&[("host", "b")])],
            Status(400),
        ),
        Case::new("two hosts", "8.3.1", &[with(&[("host", "a"), ("host", "a")])], Status(400)),
        Case::new("CONNECT with a path", "8.5", &[instead(":method", "CONNECT")], malformed),
    ]
}

fn names_and_values() -> Vec<Case> {
    let malformed = StreamError(PROTOCOL_ERROR);
    vec![
        Case::new("a name in upper case", "8.2.1", &[with(&[("X", "y")])], malformed),
        Case::new("an empty name", "8.2.1", &[with(&[("", "y")])], malformed),
        Case::new("a name with a space", "8.2.1", &[with(&[("x y", "z")])], malformed),
        Case::new("a name with a line feed", "8.2.1", &[with(&[("x\ny", "z")])], malformed),
        Case::new("a value with a line feed", "8.2.1", &[with(&[("x", "y\nhost: b")])], malformed),
        Case::new("a value with a carriage return", "8.2.1", &[with(&[("x", "y\rz")])], malformed),
        Case::new("a value with a NUL", "8.2.1", &[with(&[("x", "y\0z")])], malformed),
        Case::new(
            "a value that begins with a space",
            "8.2.1",
            &[with(&[("x", " y")])],
            Status(400),
        ),
        Case::new("connection", "8.2.2", &[with(&[("connection", "close")])], malformed),
        Case::new("keep-alive", "8.2.2", &[with(&[("keep-alive", "1")])], malformed),
        Case::new(
            "proxy-connection",
            "8.2.2",
            &[with(&[("proxy-connection", "close")])],
            malformed,
        ),
        Case::new(
            "transfer-encoding",
            "8.2.2",
            &[with(&[("transfer-encoding", "chunked")])],
            malformed,
        ),
        Case::new("upgrade", "8.2.2", &[with(&[("upgrade", "websocket")])], malformed),
        Case::new("te other than trailers", "8.2.2", &[with(&[("te", "gzip")])], malformed),
        Case::new(
            "te: trailers",
            "8.2.2",
            &[head(1, &post_with(&[("te", "trailers")]))],
            Status(200),
        ),
    ]
}

fn lengths() -> Vec<Case> {
    let malformed = StreamError(PROTOCOL_ERROR);
    let with_length =
        |length: &str| open(1, &fields(&[&PSEUDO[..], &[("content-length", length)]].concat()));
    let data = |text: &str| frame(DATA, END_STREAM, 1, text.as_bytes());
    vec![
        Case::new(
            "less than the content-length",
            "8.1.1",
            &[with_length("5"), data("abc")],
            malformed,
        ),
        Case::new(
            "more than the content-length",
            "8.1.1",
            &[with_length("2"), data("abc")],
            malformed,
        ),
        Case::new(
            "a content-length and no body",
            "8.1.1",
            &[with(&[("content-length", "5")])],
            malformed,
        ),
        Case::new(
            "a content-length that is no number",
            "8.1.1",
            &[with_length("x"), data("abc")],
            malformed,
        ),
        Case::new(
            "a negative content-length",
            "8.1.1",
            &[with_length("-3"), data("abc")],
            malformed,
        ),
        Case::new(
            "a content-length with a plus",
            "8.1.1",
            &[with_length("+3"), data("abc")],
            malformed,
        ),
        Case::new(
            "a content-length beyond 64 bits",
            "8.1.1",
            &[with_length("18446744073709551619"), data("abc")],
            malformed,
        ),
        Case::new(
            "two content-lengths",
            "8.1.1",
            &[
                open(
                    1,
                    &fields(
                        &[&PSEUDO[..], &[("content-length", "3"), ("content-length", "2")]]
                            .concat(),
                    ),
                ),
                data("abc"),
            ],
            malformed,
        ),
        Case::new(
            "the content-length",
            "8.1.1",
            &[open(1, &post_with(&[("content-length", "3")])), data("abc")],
            Status(200),
        ),
    ]
}

fn trailers() -> Vec<Case> {
    let malformed = StreamError(PROTOCOL_ERROR);
    let begun = || open(1, &fields(&PSEUDO));
    let data = || frame(DATA, 0, 1, b"abc");
    vec![
        Case::new(
            "trailers with a pseudo-header",
            "8.1",
            &[open(1, &post()), data(), head(1, &field(":path", "/x"))],
            malformed,
        ),
        Case::new(
            "trailers that do not end the request",
            "8.1",
            &[begun(), data(), open(1, &field("x", "y"))],
            malformed,
        ),
        Case::new(
            "trailers with a name in upper case",
            "8.2.1",
            &[begun(), data(), head(1, &field("X", "y"))],
            malformed,
        ),
        Case::new(
            "trailers with connection",
            "8.2.2",
            &[begun(), data(), head(1, &field("connection", "close"))],
            malformed,
        ),
        Case::new(
            "trailers",
            "8.1",
            &[open(1, &post()), data(), head(1, &field("x", "y"))],
            Status(200),
        ),
        Case::new(
            "trailers without a body",
            "8.1",
            &[open(1, &post()), head(1, &field("x", "y"))],
            Status(200),
        ),
    ]
}
