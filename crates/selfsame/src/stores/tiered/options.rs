//! [`TieredOptions`]: how a cache is used.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How the cache of a [`TieredStore`](super::TieredStore) is used.
#[derive(Debug, Clone)]
pub struct TieredOptions {
    pub(super) time_out: Duration,
    pub(super) ahead_ms: Arc<AtomicU64>,
}

impl TieredOptions {
    /// How long a call waits for the cache; 100 ms unless said. What is not there by then is asked of the
    /// durable store.
    #[must_use]
    pub fn time_out(self, time_out: Duration) -> Self {
        Self { time_out, ..self }
    }

    /// Milliseconds by which the durable store's clock has gone forward since it was last asked. For
    /// tests, in which time must pass.
    #[doc(hidden)]
    #[must_use]
    pub fn ahead_ms(self, ahead_ms: Arc<AtomicU64>) -> Self {
        Self { ahead_ms, ..self }
    }
}

impl Default for TieredOptions {
    fn default() -> Self {
        Self { time_out: Duration::from_millis(100), ahead_ms: Arc::default() }
    }
}
