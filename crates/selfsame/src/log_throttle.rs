//! [`LogThrottle`]: failures of one kind are logged at once, then once a minute with their number, and once
//! more when it works again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Pause between two log lines about failures of one kind.
const PAUSE: Duration = Duration::from_secs(60);
/// Time without a failure after which it works again: what fails now and then is not logged each time.
const QUIET: Duration = Duration::from_secs(1);

/// Limits how often failures of one kind are logged.
#[derive(Debug, Default)]
pub struct LogThrottle {
    /// Read without the lock, because everything that works asks.
    is_failing: AtomicBool,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    logged_at: Option<Instant>,
    failed_at: Option<Instant>,
    /// Since the last line.
    unlogged: u64,
    /// Since it worked last.
    total: u64,
}

impl LogThrottle {
    /// Counts a failure. Returns how many were not logged before this one, if it is to be logged.
    pub fn failed(&self) -> Option<u64> {
        self.is_failing.store(true, Ordering::Relaxed);
        let mut failures = self.failures.lock();
        failures.total += 1;
        failures.failed_at = Some(Instant::now());
        if failures.logged_at.is_some_and(|logged| logged.elapsed() < PAUSE) {
            failures.unlogged += 1;
            return None;
        }
        failures.logged_at = Some(Instant::now());
        Some(std::mem::take(&mut failures.unlogged))
    }

    /// Notes a success. Returns how many failures there were before it, if there was none for a second.
    pub fn worked(&self) -> Option<u64> {
        if !self.is_failing.load(Ordering::Relaxed) {
            return None;
        }
        let mut failures = self.failures.lock();
        if failures.failed_at.is_some_and(|failed| failed.elapsed() < QUIET) {
            return None;
        }
        self.is_failing.store(false, Ordering::Relaxed);
        let total = std::mem::take(&mut *failures).total;
        (total > 0).then_some(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_are_logged_once_a_minute_with_their_number() {
        let throttle = LogThrottle::default();
        assert_eq!(throttle.worked(), None, "nothing had failed");
        assert_eq!(throttle.failed(), Some(0));
        for _ in 0..500 {
            assert_eq!(throttle.failed(), None);
        }
        tokio::time::advance(PAUSE).await;
        assert_eq!(throttle.failed(), Some(500));
        assert_eq!(throttle.failed(), None);
        assert_eq!(throttle.worked(), None, "it may fail again at once");
        assert_eq!(throttle.failed(), None);
        tokio::time::advance(QUIET).await;
        assert_eq!(throttle.worked(), Some(504));
        assert_eq!(throttle.worked(), None, "said once");
        assert_eq!(throttle.failed(), Some(0), "the next one is new");
    }
}
