//! Cases in which the HTTP/2 library does something else than RFC 9113 says, and why that does no harm.
//! None of this can be set from outside the library.

use super::Expected::{self, ConnectionError, Ignored, Status, StreamError};
use super::{PROTOCOL_ERROR, STREAM_CLOSED};

/// The connection is closed as it must be, with the general code instead of a special one.
const GENERAL_CODE: &str = "the connection is closed all the same; the code is only for a log";
/// The connection is closed where the end of a stream would do.
const WHOLE_CONNECTION: &str =
    "RFC 9113 (5.4.1): a stream error may be treated as a connection error";
const SETTINGS_LATER: &str =
    "the defaults count until settings come; nothing depends on their order";

const GENERAL: &[&str] = &[
    "SETTINGS of 5 bytes",
    "SETTINGS of 7 bytes",
    "ACK with a payload",
    "PING of 7 bytes",
    "PING of 9 bytes",
    "empty PING",
    "RST_STREAM of 3 bytes",
    "RST_STREAM of 5 bytes",
    "WINDOW_UPDATE of 3 bytes",
    "WINDOW_UPDATE of 5 bytes",
    "GOAWAY of 7 bytes",
    "HEADERS with 4 bytes of priority",
    "a window of 2^31",
    "padded HEADERS without a length",
    "padded DATA without a length",
    "HEADERS after a reset",
    "a stream that is used again",
    "index 0",
    "an index beyond the table",
    "a name's index beyond the table",
    "an integer without end",
    "an integer that is cut off",
    "a length beyond the block",
    "a name without a value",
    "a table beyond the limit",
    "a new size of the table behind fields",
    "Huffman padding of a whole byte",
    "Huffman padding of zeros",
    "the end of Huffman texts",
];

const STRICT: &[&str] = &[
    "PRIORITY of 4 bytes",
    "DATA after the end of a request",
    "HEADERS after the end of a request",
    "WINDOW_UPDATE of 0 on a stream",
    "an empty :method",
    "an invalid :method",
    "an unknown pseudo-header",
    "a name in upper case",
    "an empty name",
    "a name with a space",
    "a name with a line feed",
    "a value with a line feed",
    "a value with a carriage return",
    "a value with a NUL",
    "trailers with a name in upper case",
];

const OTHERS: &[(&str, Expected, &str)] = &[
    ("PING before SETTINGS", Ignored, SETTINGS_LATER),
    ("HEADERS before SETTINGS", Status(200), SETTINGS_LATER),
    ("ACK as the first SETTINGS", Ignored, SETTINGS_LATER),
    (
        "DATA on a stream that has ended",
        StreamError(STREAM_CLOSED),
        "the data goes nowhere; the library has forgotten who ended the stream",
    ),
    (
        "trailers with a pseudo-header",
        Status(200),
        "the library drops the pseudo-header: neither we nor the upstream see it",
    ),
];

/// All deviations: the case, what happens instead, and why that does no harm.
pub(super) fn all() -> Vec<(&'static str, Expected, &'static str)> {
    let closed = ConnectionError(PROTOCOL_ERROR);
    let general = GENERAL.iter().map(|name| (*name, closed, GENERAL_CODE));
    let strict = STRICT.iter().map(|name| (*name, closed, WHOLE_CONNECTION));
    general.chain(strict).chain(OTHERS.iter().copied()).collect()
}
