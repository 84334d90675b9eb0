//! [`Answer`] and [`Checkpoint`]: what a record keeps for those who come again.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// The answer to a request, as it is given again to every retry.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The end-to-end headers; values of one name stay in their order.
    pub headers: HeaderMap,
    /// The body.
    pub body: AnswerBody,
    /// The trailers.
    pub trailers: HeaderMap,
}

/// An answer in the form in which a store keeps it.
pub trait Kept {
    /// The answer, for a reader.
    fn restored(&self) -> Answer;
}

impl Kept for Answer {
    fn restored(&self) -> Answer {
        self.clone()
    }
}

/// The body of an [`Answer`].
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerBody {
    /// The whole body, byte for byte.
    Kept(Bytes),
    /// The work is done, its body was too large or a stream: it cannot be given again.
    NotKept,
    /// The whole answer, headers and trailers too, for whoever has the key. A store keeps it as it
    /// is, and nobody is ever given it.
    Sealed(Bytes),
}

impl AnswerBody {
    /// How many bytes a store keeps of it.
    pub fn kept_bytes(&self) -> usize {
        match self {
            Self::Kept(bytes) | Self::Sealed(bytes) => bytes.len(),
            Self::NotKept => 0,
        }
    }
}

/// A recovery point with its data: where a run that was interrupted goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of the last finished phase.
    pub recovery_point: String,
    /// What the next phase needs.
    pub data: Bytes,
    /// Whether `data` is for whoever has the key. A store keeps it as it is, and no run is ever
    /// given it.
    pub is_sealed: bool,
}

impl Checkpoint {
    /// The most bytes a checkpoint's data may have.
    pub const DATA_BYTES_MAX: usize = 64 * 1024;

    /// The recovery point of this name, with what the next phase needs.
    pub fn new(recovery_point: impl Into<String>, data: impl Into<Bytes>) -> Self {
        Self { recovery_point: recovery_point.into(), data: data.into(), is_sealed: false }
    }
}
