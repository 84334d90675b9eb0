//! [`NewKeyRate`]: limits the rate of new keys of one client address.
//!
//! A limit per tenant does not bound a client that makes up credentials: each is another tenant.
//!
//! The rate is limited by GCRA, a token bucket whose state is one timestamp: the time at which all
//! keys so far are paid for. Each new key moves it on by the interval of the rate, and it may be
//! ten seconds ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selfsame::{Mode, NewKeyLimit};
use tokio::time::Instant;

use crate::address_limit::ClientAddress;
use crate::room::Seldom;
use crate::telemetry;

pub(crate) const MAX_NEW_KEYS_PER_ADDRESS: &str = "max_new_keys_per_address";

/// Time whose keys may come at once.
const BURST: Duration = Duration::from_secs(10);
const BURST_NANOS: u64 = nanos(BURST);
const SECOND_NANOS: u64 = nanos(Duration::from_secs(1));

const DETAIL: &str = "too many new keys came from this client's address of late \
                      (max_new_keys_per_address); nothing was sent, try again. Keys of earlier \
                      requests still get their answers";

/// The limit that is the same for all addresses.
pub(crate) struct NewKeyLimits {
    /// Nanoseconds between two new keys; zero without a limit.
    interval: AtomicU64,
    begun: Instant,
    log: Seldom,
}

impl NewKeyLimits {
    pub(crate) fn new(per_second: Option<u32>) -> Arc<Self> {
        let (begun, log) = (Instant::now(), Seldom::default());
        let this = Self { interval: AtomicU64::default(), begun, log };
        this.set(per_second);
        Arc::new(this)
    }

    /// Applies another limit from now on.
    pub(crate) fn set(&self, per_second: Option<u32>) {
        let interval = per_second.map_or(0, |rate| SECOND_NANOS / u64::from(rate.max(1)));
        self.interval.store(interval, Ordering::Relaxed);
    }

    /// Nanoseconds between two new keys, if they are limited.
    fn interval(&self) -> Option<u64> {
        Some(self.interval.load(Ordering::Relaxed)).filter(|interval| *interval > 0)
    }

    pub(crate) fn is_off(&self) -> bool {
        self.interval().is_none()
    }

    /// Nanoseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        nanos(self.begun.elapsed())
    }
}

/// The new keys of one address.
pub(crate) struct NewKeyRate {
    address: ClientAddress,
    /// Time at which the keys of routes that enforce are paid for.
    enforced: AtomicU64,
    /// Time at which those of routes that only observe are.
    observed: AtomicU64,
    limits: Arc<NewKeyLimits>,
}

impl NewKeyRate {
    pub(crate) fn new(address: ClientAddress, limits: Arc<NewKeyLimits>) -> Self {
        let (enforced, observed) = Default::default();
        Self { address, enforced, observed, limits }
    }

    /// Tells if all keys are paid for at `now`, so that nothing is lost with this.
    pub(crate) fn is_paid(&self, now: u64) -> bool {
        let is_paid = |time: &AtomicU64| time.load(Ordering::Relaxed) <= now;
        self.limits.is_off() || (is_paid(&self.enforced) && is_paid(&self.observed))
    }

    fn paid_at(&self, mode: Mode) -> &AtomicU64 {
        match mode {
            Mode::Enforce => &self.enforced,
            Mode::Observe => &self.observed,
        }
    }
}

impl NewKeyLimit for NewKeyRate {
    fn has_room(&self, mode: Mode) -> bool {
        let Some(interval) = self.limits.interval() else { return true };
        let paid_at = self.paid_at(mode).load(Ordering::Relaxed);
        paid_at.saturating_add(interval) <= self.limits.now().saturating_add(BURST_NANOS)
    }

    fn count(&self, mode: Mode) {
        let Some(interval) = self.limits.interval() else { return };
        let now = self.limits.now();
        let one_more = |paid_at: u64| Some(paid_at.max(now).saturating_add(interval));
        let (ok, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let _always = self.paid_at(mode).fetch_update(ok, failed, one_more);
    }

    fn refuse(&self, mode: Mode) -> &'static str {
        if mode == Mode::Enforce {
            telemetry::shed(MAX_NEW_KEYS_PER_ADDRESS);
            if self.limits.log.is_due() {
                tracing::warn!(
                    address = %self.address, setting = MAX_NEW_KEYS_PER_ADDRESS,
                    "a client address began too many new keys: further ones are refused; if it is \
                     a load balancer's, name it in trusted_proxies"
                );
            }
        }
        DETAIL
    }
}

const fn nanos(duration: Duration) -> u64 {
    // 584 years.
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn rate(per_second: Option<u32>) -> NewKeyRate {
        NewKeyRate::new(ClientAddress::V4(Ipv4Addr::LOCALHOST), NewKeyLimits::new(per_second))
    }

    /// Begins keys until there is no room.
    fn begin_all(rate: &NewKeyRate, mode: Mode) -> u32 {
        let mut begun = 0;
        while rate.has_room(mode) {
            rate.count(mode);
            begun += 1;
        }
        begun
    }

    #[tokio::test(start_paused = true)]
    async fn ten_seconds_worth_may_come_at_once_then_so_many_each_second() {
        for per_second in [1, 7, 1000] {
            let rate = rate(Some(per_second));
            assert_eq!(begin_all(&rate, Mode::Enforce), 10 * per_second);
            tokio::time::advance(Duration::from_secs(3)).await;
            assert_eq!(begin_all(&rate, Mode::Enforce), 3 * per_second);
            tokio::time::advance(Duration::from_secs(60 * 60)).await;
            assert_eq!(begin_all(&rate, Mode::Enforce), 10 * per_second, "no more is saved up");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_takes_nothing() {
        let rate = rate(Some(1));
        for _ in 0..100 {
            assert!(rate.has_room(Mode::Enforce));
        }
        assert!(rate.is_paid(0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_at_the_same_moment_is_paid_for_later() {
        let rate = rate(Some(1));
        for _ in 0..15 {
            rate.count(Mode::Enforce);
        }
        tokio::time::advance(Duration::from_millis(5_900)).await;
        assert!(!rate.has_room(Mode::Enforce));
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(rate.has_room(Mode::Enforce));
    }

    #[tokio::test(start_paused = true)]
    async fn observed_keys_take_nothing_from_others() {
        let rate = rate(Some(2));
        assert_eq!(begin_all(&rate, Mode::Observe), 20);
        assert_eq!(begin_all(&rate, Mode::Enforce), 20);
        tokio::time::advance(BURST).await;
        assert!(rate.is_paid(rate.limits.now()));
    }

    #[tokio::test(start_paused = true)]
    async fn another_limit_counts_at_once() {
        let rate = rate(None);
        assert!(rate.limits.is_off());
        for _ in 0..100_000 {
            rate.count(Mode::Enforce);
        }
        assert!(rate.has_room(Mode::Enforce) && rate.is_paid(0));
        rate.limits.set(Some(1));
        assert_eq!(begin_all(&rate, Mode::Enforce), 10);
        rate.limits.set(Some(1_000_000));
        assert!(!rate.has_room(Mode::Enforce), "ten seconds are ten seconds");
        rate.limits.set(None);
        assert!(rate.has_room(Mode::Enforce));
    }
}
