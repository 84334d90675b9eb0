//! [`Keepsake`]: what a record keeps of the request that claimed it first, besides its fingerprint, and
//! of the person who resolved it.

use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::Timestamp;

/// What a record keeps of the request that claimed it first. Written with that claim, the same for
/// all attempts, and nothing that a store looks into: whoever asked knows what it means.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keepsake {
    /// By which it is told in what another request under the key differs. It lasts until the record
    /// is a tombstone.
    pub outline: Option<Bytes>,
    /// The request, for who runs it again without its client: a [`KeptRequest`] as `wire` has it,
    /// sealed. It goes with the outcome.
    pub request: Option<Bytes>,
    /// Method and path of the request, such as `POST /charges/7`, for people.
    pub line: Option<Box<str>>,
    /// The person who resolved the key last, and why. Unlike the rest it is written by that decision.
    pub note: Option<Box<Note>>,
}

impl Keepsake {
    /// The most bytes of a method and a path that are kept.
    const LINE_BYTES_MAX: usize = 256;

    /// A method and a path as they are kept. A query is not: it may hold what nobody should read.
    pub fn line(method: &Method, path: &str) -> Box<str> {
        let line = [method.as_str(), " ", path].concat();
        match line.len() <= Self::LINE_BYTES_MAX {
            true => line.into(),
            false => cut(&line, Self::LINE_BYTES_MAX),
        }
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let texts = self.line.as_ref().map_or(0, |line| line.len());
        [&self.outline, &self.request].into_iter().flatten().map(Bytes::len).sum::<usize>() + texts
    }

    /// Tells an empty keepsake from one with contents.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What stays of it when the work is done.
    #[must_use]
    pub fn without_request(mut self: Box<Self>) -> Option<Box<Self>> {
        self.request = None;
        Some(self).filter(|kept| !kept.is_empty())
    }
}

/// Author and reason of a decision about a held key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The person, as they named themselves.
    pub by: Box<str>,
    /// The reason, if they gave one.
    pub reason: Option<Box<str>>,
    /// The time of the decision, by the store's clock.
    pub at: Timestamp,
}

impl Note {
    /// The most bytes of a name that are kept.
    pub const BY_BYTES_MAX: usize = 255;
    /// The most bytes of a reason that are kept.
    pub const REASON_BYTES_MAX: usize = 1000;

    /// A note that a store dates when it applies the decision. What is too long is cut.
    pub fn new(by: &str, reason: Option<&str>) -> Self {
        Self {
            by: cut(by, Self::BY_BYTES_MAX),
            reason: reason.map(|reason| cut(reason, Self::REASON_BYTES_MAX)),
            at: Timestamp::default(),
        }
    }
}

/// The text within so many bytes, and without control characters: it is shown in terminals.
fn cut(text: &str, bytes_max: usize) -> Box<str> {
    const MORE: &str = "…";
    let text = text.replace(char::is_control, " ");
    if text.len() <= bytes_max {
        return text.into();
    }
    let mut end = bytes_max - MORE.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MORE}", &text[..end]).into()
}

/// A request, for who runs it again without its client.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptRequest {
    /// The method.
    pub method: Method,
    /// The path, and the query if there is one, as sent.
    pub target: String,
    /// Those of its headers that are kept.
    pub headers: HeaderMap,
    /// The whole body, as sent.
    pub body: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_read_is_short_and_on_one_line() {
        let line = Keepsake::line(&Method::POST, &format!("/é{}", "x".repeat(500)));
        assert!(line.len() <= Keepsake::LINE_BYTES_MAX && line.ends_with("x…"), "{line}");
        let note = Note::new(&"é".repeat(200), Some("two\nlines\u{1b}[2J"));
        assert!(note.by.len() <= Note::BY_BYTES_MAX && note.by.ends_with('…'), "{note:?}");
        assert_eq!(note.reason.as_deref(), Some("two lines [2J"));
    }
}
