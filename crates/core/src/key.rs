//! [`Key`]: what a client sends to say "this is the same operation", parsed and bounded.

use std::fmt;
use std::sync::Arc;

use crate::JsonPointer;
use crate::fingerprint::decoded;
use crate::json_pointer::Found;

/// A client's idempotency key: 1 to 255 printable ASCII characters, compared byte by byte.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Arc<str>);

/// Why something is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// There is nothing in it.
    #[error("the key is empty")]
    Empty,
    /// It is longer than [`Key::LEN_MAX`].
    #[error("the key has {len} characters, {max} are allowed", max = Key::LEN_MAX)]
    TooLong {
        /// How long it is.
        len: usize,
    },
    /// It holds a byte that is not printable ASCII, or a space outside quotes.
    #[error(
        "the key's byte {at} is not printable ASCII (a space must stand inside the quotes of a header)"
    )]
    BadByte {
        /// Where, counted from 0.
        at: usize,
    },
    /// It begins with a quote and is not a Structured Field String.
    #[error("the key begins with a quote but is not one quoted string (RFC 9651)")]
    BadString,
    /// It is bare where only quoted strings are taken.
    #[error("the key must be a quoted string (RFC 9651)")]
    NotQuoted,
    /// Where a body has its key, there is something else than a string.
    #[error("the key in the body must be a string")]
    NotText,
    /// A body has two members of one name where its key is: readers disagree on which counts.
    #[error("the body names its key, or what the key is in, more than once")]
    Twice,
    /// A body has a member on the way to its key whose name differs only in upper and lower case.
    #[error(
        "the body has a member whose name differs from that of the key, or of what the key is in, only in \
         upper and lower case; write it as this service does"
    )]
    Alike,
    /// A body begins like JSON and cannot be read as JSON: a key in it would not be seen.
    #[error(
        "the body begins like JSON and cannot be read: a key in it would not be seen; send valid JSON in \
         UTF-8"
    )]
    Unreadable,
    /// A body cannot be unpacked: a key in it would not be seen.
    #[error(
        "the body is packed in a way that is not known here, does not unpack, or is too large unpacked: a \
         key in it would not be seen; send it as it is, or packed with gzip or deflate"
    )]
    Packed,
    /// It is shorter than the route allows.
    #[error("the key has {len} characters, at least {min} are needed")]
    TooShort {
        /// How long it is.
        len: usize,
        /// How long it must be.
        min: usize,
    },
    /// The route takes UUIDs only.
    #[error("the key must be a UUID with hyphens, such as 8e03978e-40d5-43dd-bc93-6894a57f9324")]
    NotUuid,
    /// The route takes UUIDs of version 7 only.
    #[error("the key must be a UUID of version 7, such as 01932c07-209c-7e2c-9b6a-3f2b1c0d4e5f")]
    NotUuidV7,
    /// It was made too long ago.
    #[error(
        "the key was made longer ago than this service takes; look up what became of its operation, \
         and make a new key for a new one"
    )]
    TooOld,
    /// It was made too far in the future: a clock is wrong.
    #[error("the time in the key is in the future; set the clock of the machine that made it")]
    FromTheFuture,
}

impl Key {
    /// The most characters a key may have.
    pub const LEN_MAX: usize = 255;

    /// Takes a quoted string (RFC 9651, parameters ignored) or a bare value: `"abc"` and `abc`
    /// are the same key.
    pub fn parse(raw: &[u8]) -> Result<Self, InvalidKey> {
        match raw.first() {
            None => Err(InvalidKey::Empty),
            Some(b'"') => Self::parse_strict(raw),
            Some(_) => Self::bounded(raw, |byte| byte.is_ascii_graphic()),
        }
    }

    /// Takes a quoted string (RFC 9651, parameters ignored) and nothing else.
    pub fn parse_strict(raw: &[u8]) -> Result<Self, InvalidKey> {
        match raw.first() {
            None => return Err(InvalidKey::Empty),
            Some(b'"') => {}
            Some(_) => return Err(InvalidKey::NotQuoted),
        }
        // Whoever sends a non-ASCII key wants to hear about that byte, not about quoting.
        if let Some(at) = raw.iter().position(|&byte| !is_printable(byte)) {
            return Err(InvalidKey::BadByte { at });
        }
        let item = sfv::Parser::new(raw).parse::<sfv::Item>().map_err(|_| InvalidKey::BadString)?;
        let text = item.bare_item.as_string().ok_or(InvalidKey::BadString)?;
        Self::bounded(text.as_str().as_bytes(), is_printable)
    }

    /// The key at `place` in a JSON body, taken as it is, without spaces. A body that is plainly not JSON, or
    /// that has nothing there, has no key. Its media type makes no difference: what an API reads as JSON may
    /// be called otherwise.
    ///
    /// # Errors
    /// There is no key in its place; or a reader who is less strict may find one in the body, or could that
    /// unpacks more than `unpacked_bytes_max`.
    pub fn in_body(
        body: &[u8],
        content_encoding: Option<&[u8]>,
        place: &JsonPointer,
        unpacked_bytes_max: usize,
    ) -> Result<Option<Self>, InvalidKey> {
        if body.is_empty() {
            return Ok(None);
        }
        let unpacked = decoded(content_encoding, body, unpacked_bytes_max);
        let unpacked = unpacked.ok_or(InvalidKey::Packed)?;
        match place.seek(&unpacked) {
            Some(Found::Nothing) => Ok(None),
            Some(Found::Text(text)) => {
                Self::bounded(text.as_bytes(), |byte| byte.is_ascii_graphic()).map(Some)
            }
            Some(Found::Other) => Err(InvalidKey::NotText),
            Some(Found::Twice) => Err(InvalidKey::Twice),
            Some(Found::Alike) => Err(InvalidKey::Alike),
            None => {
                let first = unpacked.iter().position(|byte| !JsonPointer::is_blank(*byte));
                match first.is_some_and(|at| JsonPointer::may_be_in(&unpacked[at..])) {
                    true => Err(InvalidKey::Unreadable),
                    false => Ok(None),
                }
            }
        }
    }

    fn bounded(text: &[u8], allowed: impl Fn(u8) -> bool) -> Result<Self, InvalidKey> {
        if text.is_empty() {
            return Err(InvalidKey::Empty);
        }
        if let Some(at) = text.iter().position(|&byte| !allowed(byte)) {
            return Err(InvalidKey::BadByte { at });
        }
        if text.len() > Self::LEN_MAX {
            return Err(InvalidKey::TooLong { len: text.len() });
        }
        let text = std::str::from_utf8(text).expect("printable ASCII is UTF-8");
        Ok(Self(text.into()))
    }

    /// The key a store kept, if it is one.
    pub fn from_stored(text: &str) -> Option<Self> {
        Self::bounded(text.as_bytes(), is_printable).ok()
    }

    /// The key's characters, unquoted.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_printable(byte: u8) -> bool {
    byte == b' ' || byte.is_ascii_graphic()
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A key may be personal data: a stray `{:?}` must not log it.
        write!(f, "Key({} characters)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(raw: &[u8]) -> Result<String, InvalidKey> {
        Key::parse(raw).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        assert_eq!(Key::parse(b"\"abc\""), Key::parse(b"abc"));
        assert_eq!(text(b"\"a b\\\"c\\\\\";v=1").as_deref(), Ok("a b\"c\\"));
    }

    #[test]
    fn what_real_clients_send_is_valid() {
        for raw in ["stripe-node-retry-6f9c", "1731650000_a1B2c3", "a:b/c=", "~!{}"] {
            assert_eq!(text(raw.as_bytes()).as_deref(), Ok(raw));
        }
    }

    #[test]
    fn the_length_is_that_of_the_unquoted_text() {
        let longest = "k".repeat(Key::LEN_MAX);
        assert_eq!(text(longest.as_bytes()), Ok(longest.clone()));
        assert_eq!(text(format!("\"{longest}\"").as_bytes()), Ok(longest.clone()));
        let over = format!("{longest}k");
        assert_eq!(text(over.as_bytes()), Err(InvalidKey::TooLong { len: 256 }));
    }

    #[test]
    fn bad_values_say_what_is_wrong() {
        use InvalidKey::*;
        let table: [(&[u8], InvalidKey); 10] = [
            (b"", Empty),
            (b"\"\"", Empty),
            (b"a b", BadByte { at: 1 }),
            (b"ab\x07", BadByte { at: 2 }),
            (b"caf\xc3\xa9", BadByte { at: 3 }),
            (b"\"caf\xc3\xa9\"", BadByte { at: 4 }),
            (b"\"abc", BadString),
            (b"\"abc\" def", BadString),
            (b"\"a\", \"b\"", BadString),
            (b"\"a\\n\"", BadString),
        ];
        for (raw, expected) in table {
            assert_eq!(text(raw), Err(expected), "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn strict_takes_only_quoted_strings() {
        assert_eq!(Key::parse_strict(b"abc"), Err(InvalidKey::NotQuoted));
        assert_eq!(Key::parse_strict(b"\"abc\""), Key::parse(b"abc"));
    }

    fn in_body(body: &[u8]) -> Result<Option<String>, InvalidKey> {
        let place = JsonPointer::parse("/idempotency_key").expect("a pointer");
        let key = Key::in_body(body, None, &place, 1024)?;
        Ok(key.map(|key| key.as_str().to_owned()))
    }

    #[test]
    fn a_key_in_a_body_is_taken_as_it_is() {
        let table: [(&[u8], Option<&str>); 10] = [
            (br#"{"amount":1,"idempotency_key":"abc"}"#, Some("abc")),
            (br#"{"idempotency\u005fkey":"a\u0062c"}"#, Some("abc")),
            (br#" {"idempotency_key":"\"abc\""}"#, Some("\"abc\"")),
            (b"\xef\xbb\xbf{\"idempotency_key\":\"abc\"}", Some("abc")),
            // Doubts about the rest are none about the key.
            (br#"{"a":1,"a":2,"idempotency_key":"abc"}"#, Some("abc")),
            (br#"{"amount":1}"#, None),
            (br#"{"meta":{"idempotency_key":"abc"}}"#, None),
            (b"idempotency_key=abc", None),
            (b"", None),
            (b" ", None),
        ];
        for (body, expected) in table {
            assert_eq!(in_body(body), Ok(expected.map(str::to_owned)), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn a_bad_key_in_a_body_says_what_is_wrong() {
        use InvalidKey::*;
        let table = [
            (r#"{"idempotency_key":""}"#, Empty),
            (r#"{"idempotency_key":"a b"}"#, BadByte { at: 1 }),
            (r#"{"idempotency_key":"é"}"#, BadByte { at: 0 }),
            (r#"{"idempotency_key":1}"#, NotText),
            (r#"{"idempotency_key":null}"#, NotText),
            (r#"{"idempotency_key":["a"]}"#, NotText),
            (r#"{"idempotency_key":{"a":"b"}}"#, NotText),
            (r#"{"idempotency_key":"a","idempotency_key":"a"}"#, Twice),
            (r#"{"Idempotency_Key":"a"}"#, Alike),
            (r#"{"\ud800":1,"idempotency_key":"a"}"#, Unreadable),
            ("{\"idempotency_key\":\"a\"}\n{\"idempotency_key\":\"b\"}", Unreadable),
            ("\u{c}{\"idempotency_key\":\"a\"}", Unreadable),
        ];
        for (body, expected) in table {
            assert_eq!(in_body(body.as_bytes()), Err(expected), "{body}");
        }
        let place = JsonPointer::parse("/idempotency_key").expect("a pointer");
        for encoding in [&b"br"[..], b"gzip", b"gzip, gzip, gzip, gzip"] {
            let key = Key::in_body(b"{}", Some(encoding), &place, 1024);
            assert_eq!(key, Err(Packed), "{}", encoding.escape_ascii());
        }
        assert_eq!(Key::in_body(b"", Some(b"br"), &place, 1024), Ok(None));
        let wide: Vec<u8> =
            r#"{"idempotency_key":"a"}"#.bytes().flat_map(|byte| [0, byte]).collect();
        assert_eq!(in_body(&wide), Err(Unreadable));
        let long = format!(r#"{{"idempotency_key":"{}"}}"#, "k".repeat(256));
        assert_eq!(in_body(long.as_bytes()), Err(TooLong { len: 256 }));
    }

    #[test]
    fn debug_does_not_print_the_key() {
        let key = Key::parse(b"alice@example.com").expect("valid");
        assert!(!format!("{key:?}").contains("alice"));
    }
}
