//! [`RedisOptions`]: how a Redis store is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::stores::durable::TIME_OUT_MAX;

/// How a [`RedisStore`](super::RedisStore) is opened.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    pub(super) time_out: Duration,
    pub(super) accept_loss: bool,
    pub(super) accept_unverified: bool,
    pub(super) wait_replicas: u32,
    pub(super) are_answers_elsewhere: bool,
    pub(super) known_for: Duration,
    pub(super) settle: Duration,
    pub(super) ahead_ms: Arc<AtomicU64>,
}

impl RedisOptions {
    /// How long a call waits for Redis; 5 s unless said. One whose answer was not heard after half of
    /// that is made once more over a new connection.
    #[must_use]
    pub fn time_out(self, time_out: Duration) -> Self {
        Self { time_out: time_out.min(TIME_OUT_MAX), ..self }
    }

    /// Opens a server that may lose records: without an append-only file, or one that evicts them. Work
    /// whose record is lost runs again.
    #[must_use]
    pub fn accept_loss(self) -> Self {
        Self { accept_loss: true, ..self }
    }

    /// Opens a server that does not tell whether it may lose records, because somebody else knows that
    /// it does not.
    #[must_use]
    pub fn accept_unverified(self) -> Self {
        Self { accept_unverified: true, ..self }
    }

    /// How many replicas must have a claim or an answer before it counts; none unless said. What they
    /// have not got within the time-out may have landed, and is asked again.
    #[must_use]
    pub fn wait_replicas(self, replicas: u32) -> Self {
        Self { wait_replicas: replicas, ..self }
    }

    /// Every answer is recorded elsewhere, too: what a loss takes is what runs.
    #[cfg(feature = "postgres")]
    pub(in crate::stores) fn answers_elsewhere(self) -> Self {
        Self { are_answers_elsewhere: true, ..self }
    }

    /// The longest time for which a key is known that policies name: retention, `remember` and lease together. For so long no
    /// new key is taken after a loss. Without it, that is what keys were claimed with by any process up to then.
    #[must_use]
    pub fn known_for(self, time: Duration) -> Self {
        Self { known_for: time, ..self }
    }

    /// Time for which keys are refused at a Redis that knows none, so that a process that knows better can say so; 3 s unless said.
    /// It must be longer than others take to look. For tests, in which there are no others.
    #[doc(hidden)]
    #[must_use]
    pub fn settle(self, settle: Duration) -> Self {
        Self { settle, ..self }
    }

    /// Milliseconds by which this store takes the time to be later than Redis does. For tests, in
    /// which time must pass.
    #[doc(hidden)]
    #[must_use]
    pub fn ahead_ms(self, ahead_ms: Arc<AtomicU64>) -> Self {
        Self { ahead_ms, ..self }
    }

    pub(super) fn ahead(&self) -> u64 {
        self.ahead_ms.load(Ordering::SeqCst)
    }
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            time_out: Duration::from_secs(5),
            accept_loss: false,
            accept_unverified: false,
            wait_replicas: 0,
            are_answers_elsewhere: false,
            known_for: Duration::ZERO,
            settle: Duration::from_secs(3),
            ahead_ms: Arc::default(),
        }
    }
}
