//! What a pointer points at in a JSON text.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{JsonPointer, Step};

/// What a pointer points at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Text(String),
    /// Something else than a string.
    Other,
    /// There is more than one way to it.
    Twice,
    /// A name on the way differs from what is there only in upper and lower case, which some readers
    /// do not tell apart.
    Alike,
}

impl JsonPointer {
    /// Tells if a body may be JSON with members whose first bytes, blanks aside, are these. A body may be
    /// in UTF-16 or UTF-32 too, which is not read here, and which some readers tell by its first bytes.
    pub fn may_be_in(first: &[u8]) -> bool {
        const OPENING: [u8; 2] = *b"{[";
        match first {
            [] | [0] | [0, 0] | [0, 0, 0] | [0xff] | [0xfe] => true,
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 0, 0xfe, ..] => true,
            [0, 0, 0, fourth, ..] => OPENING.contains(fourth) || Self::is_blank(*fourth),
            [0, second, ..] => OPENING.contains(second) || Self::is_blank(*second),
            [first, ..] => OPENING.contains(first),
        }
    }

    /// Tells if some reader of JSON skips this byte before a text: white space, or a part of a byte order
    /// mark.
    pub fn is_blank(byte: u8) -> bool {
        b" \t\r\n\x0b\x0c\xef\xbb\xbf".contains(&byte)
    }

    /// What is at this place of `text`; nothing at all where that is not JSON. Only the way to it is
    /// looked at closely: of everything else, the form will do.
    pub(crate) fn seek(&self, text: &[u8]) -> Option<Found> {
        // Some readers do not mind a byte order mark.
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        let mut reader = serde_json::Deserializer::from_slice(text);
        let found = Seek(&self.steps).deserialize(&mut reader).ok()?;
        reader.end().ok().map(|()| found)
    }
}

/// The steps that are still to be taken.
#[derive(Clone, Copy)]
struct Seek<'p>(&'p [Step]);

impl Seek<'_> {
    fn other<E>(self) -> Result<Found, E> {
        Ok(if self.0.is_empty() { Found::Other } else { Found::Nothing })
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Found, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Found, E> {
        match self.0 {
            [] => Ok(Found::Text(text.to_owned())),
            _ => Ok(Found::Nothing),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Found, A::Error> {
        let (mut found, mut is_alike) = (None, false);
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            match self.0 {
                [step, rest @ ..] if step.is_member(&name) => {
                    let here = members.next_value_seed(Seek(rest))?;
                    found = Some(if found.is_some() { Found::Twice } else { here });
                }
                steps => {
                    is_alike |= steps.first().is_some_and(|step| step.is_alike(&name));
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        match found {
            _ if is_alike => Ok(Found::Alike),
            Some(found) => Ok(found),
            None => self.other(),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Found, A::Error> {
        let mut found = None;
        for index in 0.. {
            let element = match self.0 {
                [step, rest @ ..] if step.index == Some(index) => {
                    found = elements.next_element_seed(Seek(rest))?;
                    found.is_some()
                }
                _ => elements.next_element::<IgnoredAny>()?.is_some(),
            };
            if !element {
                break;
            }
        }
        found.map_or_else(|| self.other(), Ok)
    }

    fn visit_unit<E: Error>(self) -> Result<Found, E> {
        self.other()
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Found, E> {
        self.other()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Found, E> {
        self.other()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Found, E> {
        self.other()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Found, E> {
        self.other()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seek(pointer: &str, text: &str) -> Option<Found> {
        JsonPointer::parse(pointer).expect("a pointer").seek(text.as_bytes())
    }

    #[test]
    fn members_and_elements_are_found_at_any_depth() {
        let text = r#"{"a":{"b":[1,{"c/~":"deep"}]},"":"empty","0":"named"}"#;
        let found = |text: &str| Some(Found::Text(text.to_owned()));
        assert_eq!(seek("/a/b/1/c~1~0", text), found("deep"));
        assert_eq!(seek("/", text), found("empty"));
        assert_eq!(seek("/0", text), found("named"));
        for pointer in ["/a/b/2", "/a/b/01", "/a/b/x", "/b", "/a/b/0/c", "/0/c", "/a/"] {
            assert_eq!(seek(pointer, text), Some(Found::Nothing), "{pointer}");
        }
        for pointer in ["/a", "/a/b", "/a/b/0"] {
            assert_eq!(seek(pointer, text), Some(Found::Other), "{pointer}");
        }
    }

    #[test]
    fn two_ways_to_one_place_are_none() {
        for text in [r#"{"a":{"b":"1"},"a":{}}"#, r#"{"a":{"b":"1","\u0062":"1"}}"#] {
            assert_eq!(seek("/a/b", text), Some(Found::Twice), "{text}");
        }
        assert_eq!(seek("/a/b", r#"{"a":{"b":"1","c":1,"c":2}}"#), Some(Found::Text("1".into())));
    }

    #[test]
    fn names_that_differ_in_case_alone_are_in_doubt() {
        for text in [
            r#"{"A":{"bK":"1"}}"#,
            r#"{"a":{"Bk":"1"}}"#,
            r#"{"a":{"bk":"1","BK":"2"}}"#,
            "{\"a\":{\"b\u{212a}\":\"1\"}}",
        ] {
            assert_eq!(seek("/a/bk", text), Some(Found::Alike), "{text}");
        }
        assert_eq!(seek("/s", "{\"\u{17f}\":1}"), Some(Found::Alike));
        assert_eq!(seek("/a/bk", r#"{"a":{"b":"1"},"x":{"BK":1}}"#), Some(Found::Nothing));
    }

    #[test]
    fn what_is_beside_may_be_as_deep_and_as_large_as_it_likes() {
        let text = format!(r#"{{"x":{}1e999{},"a":"1"}}"#, "[".repeat(9999), "]".repeat(9999));
        assert_eq!(seek("/a", &text), Some(Found::Text("1".into())));
    }

    #[test]
    fn what_other_readers_may_take_for_json_is_not_read() {
        for text in [
            r#"{"\ud800":1,"a":"1"}"#,
            r#"{"a":"\udc00"}"#,
            r#"{"x":NaN,"a":"1"}"#,
            r#"{a:"1"}"#,
            r#"{"a":"1",}"#,
            "{\"a\":\"1\"}\0",
            "{\"x\":\"\n\",\"a\":\"1\"}",
        ] {
            assert_eq!(seek("/a", text), None, "{text}");
            assert!(JsonPointer::may_be_in(text.as_bytes()), "{text}");
        }
        for first in [&b"{"[..], b"[", b"\xff\xfe{\0", b"\xfe\xff\0{", b"\0{\0\"", b"\0\0\0{", b""]
        {
            assert!(JsonPointer::may_be_in(first), "{}", first.escape_ascii());
        }
        for first in
            [&b"a=b"[..], b"--x", b"\xff\xd8\xff\xe0", b"\0\0\0\x18ftyp", b"<x/>", b"\"k\""]
        {
            assert!(!JsonPointer::may_be_in(first), "{}", first.escape_ascii());
        }
    }

    #[test]
    fn what_is_not_json_holds_nothing() {
        for text in ["", "a=b", r#"{"a":"1""#, r#"{"a":"1"} x"#, r#"{'a':1}"#, "\u{feff}"] {
            assert_eq!(seek("/a", text), None, "{text}");
        }
    }
}
