//! [`RedisOptions`]: how a Redis store is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a [`RedisStore`](super::RedisStore) is opened.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    pub(super) time_out: Duration,
    pub(super) ahead_ms: Arc<AtomicU64>,
}

impl RedisOptions {
    /// How long a call waits for Redis; 5 s unless said. One whose answer was not heard after half of
    /// that is made once more over a new connection.
    #[must_use]
    pub fn time_out(self, time_out: Duration) -> Self {
        Self { time_out, ..self }
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
        Self { time_out: Duration::from_secs(5), ahead_ms: Arc::default() }
    }
}
