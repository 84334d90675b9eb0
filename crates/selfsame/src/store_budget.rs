//! [`StoreBudget`]: how many bytes a store may take before new keys are refused.
//!
//! Whoever runs the store reports its size from time to time; each claim reads two numbers. What runs already is always
//! recorded, so a store can grow past its limit by that, and by what comes between two reports.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::log_throttle::LogThrottle;
use crate::telemetry;

/// Percentage of the limit from which on new keys of callers without a credential are refused.
const ANONYMOUS_PERCENT: u64 = 80;
/// A limit that is none.
const UNLIMITED: u64 = u64::MAX;

/// Limit of the bytes that a store takes. At 80 % of it, new keys of callers without a credential are refused, and at the
/// limit all new keys. Known keys are answered as ever.
#[derive(Debug)]
pub struct StoreBudget {
    bytes: AtomicU64,
    bytes_max: AtomicU64,
    anonymous_bytes_max: AtomicU64,
    refusals: LogThrottle,
}

impl Default for StoreBudget {
    fn default() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            bytes_max: AtomicU64::new(UNLIMITED),
            anonymous_bytes_max: AtomicU64::new(UNLIMITED),
            refusals: LogThrottle::default(),
        }
    }
}

impl StoreBudget {
    /// Changes the limit (`selfsame_store_bytes_max`); without one, nothing is refused.
    pub fn set_limit(&self, bytes_max: Option<u64>) {
        telemetry::store_bytes_max(bytes_max);
        let anonymous = bytes_max.map_or(UNLIMITED, |most| most / 100 * ANONYMOUS_PERCENT);
        self.bytes_max.store(bytes_max.unwrap_or(UNLIMITED), Ordering::Relaxed);
        self.anonymous_bytes_max.store(anonymous, Ordering::Relaxed);
    }

    /// Reports how many bytes the store takes now (`selfsame_store_bytes`).
    pub fn report(&self, bytes: u64) {
        telemetry::store_bytes(bytes);
        self.bytes.store(bytes, Ordering::Relaxed);
        if !self.is_exceeded(true)
            && let Some(refusals) = self.refusals.worked()
        {
            tracing::info!(
                refusals,
                bytes,
                "the store is below its limit again, and takes new keys"
            );
        }
    }

    /// Tells if there is no room for a new key, of a caller without a credential or of another.
    pub(crate) fn is_exceeded(&self, is_anonymous: bool) -> bool {
        let bytes_max = if is_anonymous { &self.anonymous_bytes_max } else { &self.bytes_max };
        self.bytes.load(Ordering::Relaxed) >= bytes_max.load(Ordering::Relaxed)
    }

    /// Logs that a new key was refused, once a minute.
    pub(crate) fn log_refusal(&self, route: &str) {
        if let Some(unlogged) = self.refusals.failed() {
            let bytes = self.bytes.load(Ordering::Relaxed);
            let max_store_bytes = self.bytes_max.load(Ordering::Relaxed);
            tracing::warn!(
                bytes,
                max_store_bytes,
                route,
                unlogged,
                "the store has reached its limit: new keys are refused"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_without_a_credential_are_refused_first() {
        let budget = StoreBudget::default();
        budget.report(u64::MAX - 1);
        assert!(!budget.is_exceeded(true) && !budget.is_exceeded(false), "there is no limit");
        budget.set_limit(Some(1000));
        for (bytes, anonymous, others) in
            [(799, false, false), (800, true, false), (1000, true, true)]
        {
            budget.report(bytes);
            assert_eq!((budget.is_exceeded(true), budget.is_exceeded(false)), (anonymous, others));
        }
        budget.set_limit(None);
        assert!(!budget.is_exceeded(true));
    }
}
