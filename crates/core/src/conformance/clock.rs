//! [`SettableClock`]: time that passes when a test says so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Clock, Timestamp};

/// A clock for the bench of a store that lives in this process.
#[derive(Debug)]
pub struct SettableClock {
    millis: AtomicU64,
}

impl SettableClock {
    /// A clock that stands at some day of this century.
    pub fn new() -> Self {
        Self { millis: AtomicU64::new(1_767_225_600_000) }
    }

    /// Goes forward by `time`.
    pub fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).expect("no law takes that long");
        self.millis.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Default for SettableClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::SeqCst))
    }
}
