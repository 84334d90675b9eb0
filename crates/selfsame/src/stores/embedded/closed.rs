//! [`Closed`]: the time for which the store takes no key that it does not know.
//!
//! After a loss of records an unknown key may be one whose work was done. So a store that was repaired
//! refuses unknown keys until those that were lost would have expired. Known keys are answered as ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selfsame_core::{Clock, Timestamp};

use crate::telemetry;

/// The fact that keeps the time, by the store's clock, until which the store is closed.
pub(super) const CLOSED_UNTIL: &str = "closed-until";

/// The end of the time for which unknown keys are refused.
pub(super) struct Closed {
    /// In milliseconds of the store's time; 0 where the store is open.
    until: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Closed {
    /// Reads the fact, where there is one.
    pub(super) fn new(fact: Option<&Vec<u8>>, clock: Arc<dyn Clock>) -> Self {
        let closed = Self { until: AtomicU64::new(0), clock };
        closed.note(fact.map_or(&[], Vec::as_slice));
        closed
    }

    /// Applies the value of the fact.
    pub(super) fn note(&self, fact: &[u8]) {
        self.until.store(decode(fact).as_millis(), Ordering::Release);
        self.report();
    }

    /// How much longer the store is closed; none where it is open.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let until = self.until.load(Ordering::Acquire);
        if until == 0 {
            return None;
        }
        let left = Timestamp::from_millis(until).since(self.clock.now());
        Some(left).filter(|left| !left.is_zero())
    }

    /// Sets the gauge, and logs once that the time is over.
    pub(super) fn report(&self) {
        let left = self.time_left();
        telemetry::store_closed(left.unwrap_or_default());
        let until = self.until.load(Ordering::Acquire);
        if left.is_none()
            && until > 0
            && self.until.compare_exchange(until, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            tracing::info!("the store takes unknown keys again: those that were lost have expired");
        }
    }
}

/// The value of the fact for a store that is closed until then.
pub(super) fn encode(until: Timestamp) -> Vec<u8> {
    until.as_millis().to_le_bytes().to_vec()
}

/// Reads what [`encode`] wrote. An empty value says that the store is open, and one that cannot be
/// read that it stays closed.
pub(super) fn decode(fact: &[u8]) -> Timestamp {
    match fact.try_into() {
        Ok(bytes) => Timestamp::from_millis(u64::from_le_bytes(bytes)),
        Err(_) if fact.is_empty() => Timestamp::default(),
        Err(_) => Timestamp::from_millis(u64::MAX),
    }
}
