//! [`StoreError`]: what goes wrong in a store, with a verdict on asking again.

use std::error::Error;
use std::num::NonZeroU32;
use std::time::Duration;

/// A store could not do what it was asked. Never the client's doing.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
    /// In seconds: errors are returned often, and shall be small.
    retry_after: Option<NonZeroU32>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What a failed call may have left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// Nothing was written.
    NotWritten,
    /// Nothing was written, because the store has lost records, or may have: an unknown key may be one that
    /// already ran. Not an outage, which a caller may have chosen to run through.
    RecordsLost,
    /// The write may have landed: a time-out, a lost acknowledgement.
    MayHaveLanded,
    /// A record is there and cannot be trusted: its checksum or its format is wrong.
    Damaged,
}

impl StoreError {
    /// An error of this kind.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, source: None }
    }

    /// The same error with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds the time after which the error is over.
    #[must_use]
    pub fn retry_after(mut self, time: Duration) -> Self {
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1);
        self.retry_after = NonZeroU32::new(seconds);
        self
    }

    /// After how long the same call may succeed, where that is known: whole seconds, and at least one.
    pub fn retries_after(&self) -> Option<Duration> {
        self.retry_after.map(|seconds| Duration::from_secs(seconds.get().into()))
    }

    /// What the failed call may have left behind.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether nothing was written, so the same call may be made again. A time-out is not: the
    /// write may have landed.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::NotWritten | StoreErrorKind::RecordsLost)
    }

    /// Tells a loss of records, or a possible one: running without a claim could repeat work.
    pub fn is_of_lost_records(&self) -> bool {
        self.kind == StoreErrorKind::RecordsLost
    }

    /// Whether a stored record is damaged, which no retry mends.
    pub fn is_damaged(&self) -> bool {
        self.kind == StoreErrorKind::Damaged
    }
}
