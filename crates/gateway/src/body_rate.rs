//! [`BodyRate`]: the least rate of request bodies, over either HTTP.
//!
//! Only the time counts in which we wait for the client: a body that its upstream takes slowly is not late.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::config::Limits;

/// The least rate of request bodies, averaged from their beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyRate {
    /// Time in which nothing need come.
    grace: Duration,
    /// In bytes per second.
    min: usize,
}

impl BodyRate {
    /// The rate by `limits`; none if it is off.
    pub(crate) fn of(limits: &Limits) -> Option<Self> {
        Some(Self { grace: limits.body_timeout, min: limits.min_body_rate? })
    }

    /// Time left to wait for a body that brought `bytes` and was waited for so long already.
    pub(crate) fn time_left(&self, bytes: u64, waited: Duration) -> Duration {
        let millis = bytes.saturating_mul(1000) / self.min as u64;
        self.grace.saturating_add(Duration::from_millis(millis)).saturating_sub(waited)
    }
}

/// State of a request over HTTP/2, shared by its body and its response.
#[derive(Debug, Default)]
pub(crate) struct RateCheck(AtomicU8);

const CHECKED: u8 = 0;
const RESPONSE_BEGUN: u8 = 1;
const TOO_SLOW: u8 = 2;

impl RateCheck {
    /// Ends the check, because the response begins. Tells whether the body was too slow before.
    pub(crate) fn end(&self) -> bool {
        self.0.swap(RESPONSE_BEGUN, Ordering::Relaxed) == TOO_SLOW
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed) == RESPONSE_BEGUN
    }

    /// Notes that the body is too slow, unless the response has begun.
    pub(crate) fn fail(&self) -> bool {
        let relaxed = Ordering::Relaxed;
        self.0.compare_exchange(CHECKED, TOO_SLOW, relaxed, relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_earns_its_time_after_the_grace() {
        let seconds = Duration::from_secs;
        let body_timeout = seconds(30);
        let limits = Limits { body_timeout, min_body_rate: Some(100), ..Limits::default() };
        let rate = BodyRate::of(&limits).expect("it is on");
        let table = [(0, 0, 30), (0, 10, 20), (0, 31, 0), (1000, 30, 10), (1000, 50, 0)];
        for (bytes, waited, left) in table {
            assert_eq!(rate.time_left(bytes, seconds(waited)), seconds(left), "{bytes} {waited}");
        }
        assert!(rate.time_left(u64::MAX, seconds(1)) > seconds(1_000_000));
        assert!(BodyRate::of(&Limits { min_body_rate: None, ..limits }).is_none());
    }

    #[test]
    fn a_response_that_has_begun_is_not_taken_back() {
        let check = RateCheck::default();
        assert!(!check.has_ended() && !check.end() && check.has_ended());
        assert!(!check.fail());
        let check = RateCheck::default();
        assert!(check.fail() && check.end());
    }
}
