//! [`Keepsake`]: what a record keeps of the request that claimed it first, besides its fingerprint.

use bytes::Bytes;
use http::{HeaderMap, Method};

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
}

impl Keepsake {
    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        [&self.outline, &self.request].into_iter().flatten().map(Bytes::len).sum()
    }

    /// What stays of it when the work is done.
    #[must_use]
    pub fn without_request(mut self: Box<Self>) -> Option<Box<Self>> {
        self.request = None;
        Some(self).filter(|kept| kept.outline.is_some())
    }
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
