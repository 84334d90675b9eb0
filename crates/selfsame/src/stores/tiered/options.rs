//! [`TieredOptions`]: how a cache is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selfsame_core::{Clock, Timestamp};

use crate::stores::SystemClock;
use crate::stores::durable::TIME_OUT_MAX;

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
        Self { time_out: time_out.min(TIME_OUT_MAX), ..self }
    }

    /// Milliseconds by which the durable store's clock has gone forward since it was last asked. For
    /// tests, in which time must pass.
    #[doc(hidden)]
    #[must_use]
    pub fn ahead_ms(self, ahead_ms: Arc<AtomicU64>) -> Self {
        Self { ahead_ms, ..self }
    }

    /// The clock of this process.
    pub(super) fn clock(&self) -> impl Clock + use<> {
        AheadClock { clock: SystemClock::new(), ahead_ms: self.ahead_ms.clone() }
    }
}

/// A clock on which a test lets time pass.
struct AheadClock {
    clock: SystemClock,
    ahead_ms: Arc<AtomicU64>,
}

impl Clock for AheadClock {
    fn now(&self) -> Timestamp {
        self.clock.now() + Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst))
    }
}

impl Default for TieredOptions {
    fn default() -> Self {
        Self { time_out: Duration::from_millis(100), ahead_ms: Arc::default() }
    }
}
