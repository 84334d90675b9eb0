//! [`HeardClock`]: the time of another store, as it was last told.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use selfsame_core::{Clock, Inspect, StoreError, Timestamp};

/// Clocks count in whole milliseconds.
const TICK: Duration = Duration::from_millis(1);

/// For how long what was told once is kept where it says more than what is told since.
#[cfg(feature = "redis")]
const KEPT_FOR: Duration = Duration::from_millis(500);

/// What the clock of a store said, carried on by that of this process. How long it took to ask is what is not
/// known, so there are two readings of it: whoever writes goes by the earlier, whoever reads by the later, and
/// nothing is taken to live that is dead there.
pub(super) struct HeardClock {
    /// That of this process: it only tells how much time has passed.
    here: Arc<dyn Clock>,
    heard: RwLock<Option<Heard>>,
}

#[derive(Clone, Copy)]
struct Heard {
    said: Timestamp,
    /// By the clock of this process.
    asked_at: Timestamp,
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "nobody writes elsewhere"))]
    heard_at: Timestamp,
}

#[cfg(feature = "redis")]
impl Heard {
    /// At that time of this process it is not earlier there than this.
    fn earliest(&self, here: Timestamp) -> Timestamp {
        self.said + here.since(self.heard_at + TICK)
    }

    /// Whether nothing is learnt from what was told later.
    fn outdoes(&self, later: &Self) -> bool {
        let is_young = later.heard_at.since(self.heard_at) < KEPT_FOR;
        // Else the clock there has gone back.
        let fits = self.earliest(later.asked_at) <= later.said;
        is_young && fits && self.earliest(later.heard_at) >= later.said
    }
}

impl HeardClock {
    pub(super) fn new(here: Arc<dyn Clock>) -> Self {
        Self { here, heard: RwLock::default() }
    }

    /// The time of this process, from which only other times of it are told apart.
    pub(super) fn here(&self) -> Timestamp {
        self.here.now()
    }

    /// Asks for the time.
    pub(super) async fn ask(&self, store: &(impl Inspect + ?Sized)) -> Result<(), StoreError> {
        let asked_at = self.here();
        let said = store.now().await?;
        *self.heard.write() = Some(Heard { said, asked_at, heard_at: self.here() });
        Ok(())
    }

    /// It was told, to whoever asked then.
    #[cfg(feature = "redis")]
    pub(super) fn tell(&self, said: Timestamp, asked_at: Timestamp) {
        let told = Heard { said, asked_at, heard_at: self.here() };
        let is_outdone = self.heard.read().is_some_and(|known| known.outdoes(&told));
        if !is_outdone {
            *self.heard.write() = Some(told);
        }
    }

    /// What was told does not count any more.
    #[cfg(feature = "redis")]
    pub(super) fn forget(&self) {
        *self.heard.write() = None;
    }

    /// Whether it was told within the last `time`.
    pub(super) fn was_told_within(&self, time: Duration) -> bool {
        self.heard.read().is_some_and(|heard| self.here().since(heard.asked_at) <= time)
    }

    /// It is not earlier than this; nothing if it was never told.
    #[cfg(feature = "redis")]
    pub(super) fn earliest(&self) -> Option<Timestamp> {
        let heard = (*self.heard.read())?;
        Some(heard.earliest(self.here()))
    }

    /// The same, if it was told within the last `time`.
    #[cfg(feature = "redis")]
    pub(super) fn earliest_within(&self, time: Duration) -> Option<Timestamp> {
        let (heard, here) = ((*self.heard.read())?, self.here());
        (here.since(heard.heard_at) <= time).then(|| heard.earliest(here))
    }

    /// It is not later than this; nothing if it was never told.
    pub(super) fn latest(&self) -> Option<Timestamp> {
        let heard = (*self.heard.read())?;
        // What was said was rounded, and so are the times in between.
        Some(heard.said + self.here().since(heard.asked_at) + 2 * TICK)
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use selfsame_core::conformance::SettableClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn clocks() -> (Arc<SettableClock>, HeardClock) {
        let here = Arc::new(SettableClock::default());
        (here.clone(), HeardClock::new(here))
    }

    fn pass(here: &SettableClock, millis: u64) {
        here.pass(Duration::from_millis(millis));
    }

    #[test]
    fn nothing_is_known_of_a_clock_that_told_nothing_or_long_ago() {
        let (here, clock) = clocks();
        assert_eq!(clock.earliest_within(SECOND), None);
        clock.tell(at(1_000_000), clock.here());
        assert!(clock.earliest_within(SECOND).is_some());
        pass(&here, 1001);
        assert_eq!(clock.earliest_within(SECOND), None);
        clock.tell(at(1_001_001), clock.here());
        clock.forget();
        assert_eq!(clock.earliest_within(SECOND), None);
    }

    #[test]
    fn what_came_quickly_counts_for_a_while() {
        let (here, clock) = clocks();
        clock.tell(at(1_000_000), clock.here());
        // 100 ms on the way back.
        let asked_at = clock.here();
        pass(&here, 100);
        clock.tell(at(1_000_000), asked_at);
        assert_eq!(clock.earliest_within(SECOND), Some(at(1_000_099)));
        // The other is not kept for ever: clocks part.
        pass(&here, 500);
        let asked_at = clock.here();
        pass(&here, 100);
        clock.tell(at(1_000_600), asked_at);
        assert_eq!(clock.earliest_within(SECOND), Some(at(1_000_600)));
    }

    #[test]
    fn a_clock_that_was_set_counts_at_once() {
        for told in [900_000, 1_100_000] {
            let (here, clock) = clocks();
            clock.tell(at(1_000_000), clock.here());
            pass(&here, 10);
            clock.tell(at(told), clock.here());
            assert_eq!(clock.earliest_within(SECOND), Some(at(told)));
        }
    }
}
