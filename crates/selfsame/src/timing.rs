//! How long things take, for metrics. Nothing is ever decided by these clocks.

use std::time::{Duration, Instant};

pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "durations for metrics decide nothing")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// How much of a response's time was the inner service's.
#[derive(Clone, Copy)]
pub(crate) struct RanFor(pub(crate) Duration);
