//! The clocks: one that measures, and one that a store can be sent into the future with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use selfsame::stores::SystemClock;
use selfsame_core::{Clock, Timestamp};

/// Measures.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a benchmark is about how long things take")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// The system's time, and some more.
pub(crate) struct AheadClock {
    system: SystemClock,
    ahead_ms: AtomicU64,
}

impl AheadClock {
    pub(crate) fn new() -> Self {
        Self { system: SystemClock::new(), ahead_ms: AtomicU64::new(0) }
    }

    pub(crate) fn jump(&self, hours: u64) {
        self.ahead_ms.fetch_add(hours * 60 * 60 * 1000, Ordering::SeqCst);
    }
}

impl Clock for AheadClock {
    fn now(&self) -> Timestamp {
        self.system.now() + Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst))
    }
}
