//! [`StoreError`]: what goes wrong in a store, with a verdict on asking again.

use std::error::Error;

/// A store could not do what it was asked. Never the client's doing.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What a failed call may have left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// Nothing was written.
    NotWritten,
    /// The write may have landed: a time-out, a lost acknowledgement.
    MayHaveLanded,
    /// A record is there and cannot be trusted: its checksum or its format is wrong.
    Damaged,
}

impl StoreError {
    /// An error of this kind.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the failed call may have left behind.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether nothing was written, so the same call may be made again. A time-out is not: the
    /// write may have landed.
    pub fn is_retryable(&self) -> bool {
        self.kind == StoreErrorKind::NotWritten
    }

    /// Whether a stored record is damaged, which no retry mends.
    pub fn is_damaged(&self) -> bool {
        self.kind == StoreErrorKind::Damaged
    }
}
