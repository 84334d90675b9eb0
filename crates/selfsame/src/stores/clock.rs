//! [`SystemClock`]: the time of a store that lives in this process.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use selfsame_core::{Clock, Timestamp};

/// Wall time as it was when the clock was made, carried on by the monotonic clock.
///
/// A jump of the wall clock afterwards, by hand or by NTP, neither ends a lease early, which
/// would run work twice, nor brings an expired record back.
#[derive(Debug)]
pub struct SystemClock {
    anchor: Timestamp,
    made: Instant,
}

impl SystemClock {
    /// A clock that reads wall time now, and never again.
    #[expect(clippy::disallowed_methods, reason = "this is the clock of a store")]
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { anchor: Timestamp::default() + since_epoch, made: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.anchor + self.made.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "wall time is what it is compared with")]
    fn it_begins_at_wall_time_and_never_goes_back() {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        let clock = SystemClock::new();
        let readings: Vec<_> = (0..1000).map(|_| clock.now()).collect();
        assert!(u128::from(readings[0].as_millis()) >= before.as_millis());
        assert!(readings.is_sorted());
    }
}
