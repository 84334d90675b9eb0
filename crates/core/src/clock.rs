//! [`Timestamp`] and [`Clock`]: time as a store tells it.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A moment by a store's clock, in milliseconds since 1970. Never a node's own time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    millis: u64,
}

impl Timestamp {
    /// The moment that many milliseconds after 1970.
    pub const fn from_millis(millis: u64) -> Self {
        Self { millis }
    }

    /// Milliseconds since 1970.
    pub fn as_millis(self) -> u64 {
        self.millis
    }

    /// How long from `earlier` to this; nothing if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.millis.saturating_sub(earlier.millis))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self { millis: self.millis.saturating_add(millis) }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.millis)
    }
}

/// Where a store that lives in this process reads its time.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}
