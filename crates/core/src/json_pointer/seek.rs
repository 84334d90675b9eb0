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
}

impl JsonPointer {
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
        let mut found = None;
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            match self.0 {
                [step, rest @ ..] if step.is_member(&name) => {
                    let here = members.next_value_seed(Seek(rest))?;
                    found = Some(if found.is_some() { Found::Twice } else { here });
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        found.map_or_else(|| self.other(), Ok)
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
    fn what_is_beside_may_be_as_deep_and_as_large_as_it_likes() {
        let text = format!(r#"{{"x":{}1e999{},"a":"1"}}"#, "[".repeat(9999), "]".repeat(9999));
        assert_eq!(seek("/a", &text), Some(Found::Text("1".into())));
    }

    #[test]
    fn what_is_not_json_holds_nothing() {
        for text in ["", "a=b", r#"{"a":"1""#, r#"{"a":"1"} x"#, r#"{'a':1}"#, "\u{feff}"] {
            assert_eq!(seek("/a", text), None, "{text}");
        }
    }
}
