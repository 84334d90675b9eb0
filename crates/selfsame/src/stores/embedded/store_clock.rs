//! [`StoreClock`]: the store's time, which never goes back, and does not follow a wall clock that
//! is set.
//!
//! It begins at the wall clock's time and goes on by true time. The log keeps it, so that a restart
//! goes on from there: within one boot of the machine by the time since the boot, which nobody
//! sets; in a later boot by the wall clock, with the offset that was kept. The reasons are in
//! `docs/decisions/0023-the-embedded-store-keeps-its-own-time.md`.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use selfsame_core::{Clock, Timestamp};

use super::kept_time::{KeptTime, difference_ms, millis, shifted, signed_millis};
use super::machine_clocks::{MachineClocks, SinceBoot};

/// Step of the wall clock from which on it is warned about.
const STEP_MS: i64 = 60 * 1000;

/// The shortest suspension that counts. Two clocks are not read at the same moment.
const SUSPENSION_MIN: Duration = Duration::from_secs(1);

/// Gap between two boots from which on it is warned about.
const GAP: Duration = Duration::from_secs(24 * 60 * 60);

/// Age from which on the kept time is written anew beside other changes.
pub(super) const KEEP_EVERY: Duration = Duration::from_secs(1);

/// Age from which on the kept time is written anew for its own sake.
const KEEP_IDLE: Duration = Duration::from_secs(10 * 60);

/// Rules for a start whose time cannot be told from the clocks alone.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StartRules {
    /// Follow the wall clock again, as far as it is ahead.
    pub(super) adopts_wall: bool,
    /// Go on keeping the time that was kept before.
    pub(super) leaves_kept: bool,
    /// Refuse to start beyond this gap between two boots.
    pub(super) gap_max: Option<Duration>,
}

/// Two boots are further apart than is allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLongGap {
    pub(super) kept: Timestamp,
    pub(super) wall: Timestamp,
}

/// The store's time.
pub(super) struct StoreClock {
    clocks: Arc<dyn MachineClocks>,
    /// Set once the log was read.
    start: OnceLock<Start>,
    /// Time by which the store's time went ahead since the start to catch up.
    caught_up_ms: AtomicU64,
    state: Mutex<State>,
}

struct Start {
    store: Timestamp,
    monotonic: Duration,
}

/// The last look at all clocks.
struct State {
    monotonic: Duration,
    since_boot: Option<SinceBoot>,
    /// How far the wall clock was ahead of the store's time.
    offset_ms: i64,
    behind: Duration,
    /// The store's time that was last kept.
    kept: Option<Timestamp>,
    /// The time that is kept though it is over.
    left: Option<KeptTime>,
    /// Whether a clock did something that the log does not know yet.
    is_unkept: bool,
}

impl StoreClock {
    pub(super) fn new(clocks: Arc<dyn MachineClocks>) -> Self {
        let state = State {
            monotonic: clocks.monotonic(),
            since_boot: clocks.since_boot(),
            offset_ms: 0,
            behind: Duration::ZERO,
            kept: None,
            left: None,
            is_unkept: false,
        };
        let (start, state) = (OnceLock::new(), Mutex::new(state));
        Self { clocks, start, caught_up_ms: AtomicU64::new(0), state }
    }

    /// Begins to run, from the time that was kept last.
    pub(super) fn start(
        &self,
        kept: Option<KeptTime>,
        rules: StartRules,
    ) -> Result<(), TooLongGap> {
        let wall = self.clocks.wall();
        let (monotonic, since_boot) = (self.clocks.monotonic(), self.clocks.since_boot());
        let elapsed = kept.and_then(|kept| elapsed_since(&kept, since_boot));
        let (mut store, mut behind) = match (kept, elapsed) {
            (None, _) => (wall, Duration::ZERO),
            (Some(kept), Some(elapsed)) => {
                warn_of_step(kept.wall + elapsed, wall);
                (kept.store + elapsed, kept.behind)
            }
            (Some(kept), None) => after_another_boot(&kept, wall, rules)?,
        };
        if rules.adopts_wall {
            (store, behind) = (store.max(wall), Duration::ZERO);
        }
        let offset_ms = difference_ms(wall, store);
        if offset_ms.abs() > STEP_MS {
            tracing::warn!(
                store_time = date(store),
                wall_clock = date(wall),
                "the store's time is not the wall clock's, and goes on by itself: leases and keys \
                 end by the store's time. Once the wall clock is right and ahead, `selfsame store \
                 adopt-clock` makes the store follow it again"
            );
        }
        let is_unkept = kept.is_some_and(|kept| is_step(kept.offset_ms(), offset_ms));
        let left = kept.filter(|_| rules.leaves_kept);
        *self.state.lock() =
            State { monotonic, since_boot, offset_ms, behind, kept: None, left, is_unkept };
        let _begun = self.start.set(Start { store, monotonic });
        Ok(())
    }

    /// The wall clock's time.
    pub(super) fn wall(&self) -> Timestamp {
        self.clocks.wall()
    }

    /// Compares all clocks, and warns of one that was set and of a suspension.
    pub(super) fn check(&self) {
        let (monotonic, since_boot) = (self.clocks.monotonic(), self.clocks.since_boot());
        let (wall, now) = (self.clocks.wall(), self.now());
        let mut state = self.state.lock();
        let mut expected_ms = state.offset_ms;
        let ran = monotonic.saturating_sub(state.monotonic);
        if let (Some(before), Some(since_boot)) = (state.since_boot, since_boot) {
            let passed = since_boot.elapsed.saturating_sub(before.elapsed);
            let suspended = passed.saturating_sub(ran);
            if suspended >= SUSPENSION_MIN {
                state.behind += suspended;
                state.is_unkept = true;
                expected_ms = expected_ms.saturating_add(signed_millis(suspended));
                tracing::warn!(
                    suspended = ?suspended,
                    "the machine was suspended; for leases that time does not count, and for keys \
                     it counts as soon as no work is under way"
                );
            }
        }
        let offset_ms = difference_ms(wall, now);
        state.is_unkept |= is_step(expected_ms, offset_ms);
        warn_of_step(shifted(now, expected_ms), wall);
        (state.monotonic, state.since_boot, state.offset_ms) = (monotonic, since_boot, offset_ms);
    }

    /// Whether the store's time is behind true time.
    pub(super) fn is_behind(&self) -> bool {
        !self.state.lock().behind.is_zero()
    }

    /// Goes ahead to true time. For moments at which no lease is running.
    pub(super) fn catch_up(&self) {
        let mut state = self.state.lock();
        let behind_ms = millis(std::mem::take(&mut state.behind));
        self.caught_up_ms.fetch_add(behind_ms, Ordering::AcqRel);
        state.offset_ms = state.offset_ms.saturating_sub_unsigned(behind_ms);
        state.is_unkept = true;
    }

    /// The time now, to be kept.
    pub(super) fn to_keep(&self) -> KeptTime {
        let (wall, since_boot) = (self.clocks.wall(), self.clocks.since_boot());
        let state = self.state.lock();
        let time = KeptTime { store: self.now(), wall, behind: state.behind, since_boot };
        state.left.unwrap_or(time)
    }

    /// Notes what time was kept.
    pub(super) fn kept(&self, time: &KeptTime) {
        let mut state = self.state.lock();
        (state.kept, state.is_unkept) = (Some(time.store), false);
    }

    /// Whether the time is to be kept along with other changes.
    pub(super) fn is_due(&self) -> bool {
        let state = self.state.lock();
        state.is_unkept || state.kept.is_none_or(|kept| self.now().since(kept) >= KEEP_EVERY)
    }

    /// Whether the time is to be kept though nothing else is written.
    pub(super) fn is_overdue(&self) -> bool {
        let state = self.state.lock();
        let kept = state.kept.or(self.start.get().map(|start| start.store));
        state.is_unkept || kept.is_some_and(|kept| self.now().since(kept) >= KEEP_IDLE)
    }

    /// How far the wall clock was ahead of the store's time at the last check.
    pub(super) fn offset_ms(&self) -> i64 {
        self.state.lock().offset_ms
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let Some(Start { store, monotonic }) = self.start.get() else {
            return self.clocks.wall();
        };
        let caught_up = Duration::from_millis(self.caught_up_ms.load(Ordering::Acquire));
        *store + self.clocks.monotonic().saturating_sub(*monotonic) + caught_up
    }
}

/// True time since a time was kept, if that was in this boot.
fn elapsed_since(kept: &KeptTime, now: Option<SinceBoot>) -> Option<Duration> {
    let (kept, now) = (kept.since_boot?, now?);
    // A container may show another time since the boot than its predecessor did.
    let passed = now.elapsed.checked_sub(kept.elapsed);
    passed.filter(|_| now.boot == kept.boot)
}

/// The store's time in another boot than that of the kept time, and how far it is to catch up.
fn after_another_boot(
    kept: &KeptTime,
    wall: Timestamp,
    rules: StartRules,
) -> Result<(Timestamp, Duration), TooLongGap> {
    let gap = wall.since(kept.wall);
    if gap > GAP {
        if rules.gap_max.is_some_and(|gap_max| gap > gap_max) && !rules.adopts_wall {
            return Err(TooLongGap { kept: kept.wall, wall });
        }
        tracing::warn!(
            kept = date(kept.wall),
            wall_clock = date(wall),
            "the machine was booted since the store was last written, and the wall clock says that \
             long ago. If the clock is wrong, stop now and set it: keys would expire early"
        );
    } else if difference_ms(kept.wall, wall) > STEP_MS {
        tracing::warn!(
            kept = date(kept.wall),
            wall_clock = date(wall),
            "the wall clock is behind what it was when the store was last written; the store's \
             time goes on from there, so keys may expire late"
        );
    }
    // Whatever was written without a time of its own was written within this time.
    let least = kept.store + KEEP_EVERY;
    let set_by_ms = kept.offset_ms().saturating_sub(signed_millis(kept.behind));
    if set_by_ms.abs() > STEP_MS {
        return Ok((shifted(wall, kept.offset_ms().saturating_neg()).max(least), kept.behind));
    }
    // Not worth an offset for ever, but no lease may end early for it.
    let behind = kept.behind + Duration::from_millis(u64::try_from(set_by_ms).unwrap_or(0));
    Ok((shifted(wall, signed_millis(behind).saturating_neg()).max(least), behind))
}

/// Whether the wall clock was set between these two offsets.
fn is_step(before_ms: i64, after_ms: i64) -> bool {
    before_ms.abs_diff(after_ms) > STEP_MS.unsigned_abs()
}

fn warn_of_step(expected: Timestamp, wall: Timestamp) {
    if difference_ms(wall, expected).abs() > STEP_MS {
        tracing::warn!(
            expected = date(expected),
            wall_clock = date(wall),
            "the wall clock was set, or the machine stood still; the store's time goes on as if \
             nothing had happened, so keys and leases end neither early nor late"
        );
    }
}

/// A time as it is shown to people.
pub(super) fn date(time: Timestamp) -> String {
    let since_epoch = Duration::from_millis(time.as_millis());
    let time = SystemTime::UNIX_EPOCH.checked_add(since_epoch);
    // Later years have no such form.
    let time = time.filter(|_| since_epoch < Duration::from_secs(253_402_300_800));
    time.map_or_else(|| format!("{since_epoch:?} after 1970"), httpdate::fmt_http_date)
}

#[cfg(test)]
mod tests;
