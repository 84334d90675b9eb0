//! [`EmbeddedOptions`]: how an embedded store is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use selfsame_core::Clock;

use super::machine_clocks::{MachineClocks, SystemClocks};
use super::store_clock::{StartRules, StoreClock};
use super::time_source::TimeSource;
use crate::stores::durable::TIME_OUT_MAX;

/// How an [`EmbeddedStore`](super::EmbeddedStore) is opened.
#[derive(Clone)]
pub struct EmbeddedOptions {
    pub(super) leases: Leases,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) machine: Arc<dyn MachineClocks>,
    pub(super) start: StartRules,
    pub(super) time_out: Duration,
}

/// What becomes of the leases of an earlier start of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leases {
    /// They run out by themselves: the work may still be going on elsewhere, as it may behind a
    /// gateway.
    Keep,
    /// They are over at once: the work was done in the process that held them, and died with it.
    EndAtBoot,
}

impl EmbeddedOptions {
    /// What becomes of the leases of an earlier start; [`Leases::EndAtBoot`] unless said.
    #[must_use]
    pub fn leases(self, leases: Leases) -> Self {
        Self { leases, ..self }
    }

    /// A clock that tells the store its time. Without one the store keeps a time of its own, which
    /// goes on from what the folder has, whatever the wall clock is set to.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Longest gap between two boots of the machine that is believed; any unless said. Beyond it,
    /// opening the store fails: the machine was off for that long, or its clock is wrong.
    #[must_use]
    pub fn clock_gap_max(mut self, gap_max: Duration) -> Self {
        self.start.gap_max = Some(gap_max);
        self
    }

    /// Makes the store's time that of the wall clock when the store is opened. Where the wall clock
    /// is behind, the store's time goes on as it is: it never goes back.
    #[must_use]
    pub fn adopt_wall_clock(mut self) -> Self {
        self.start.adopts_wall = true;
        self
    }

    /// Leaves the time that the folder keeps as it is, for somebody who only looks into a store:
    /// the clock may be wrong.
    #[must_use]
    pub fn leave_kept_time(mut self) -> Self {
        self.start.leaves_kept = true;
        self
    }

    /// Believes any gap between two boots.
    pub(super) fn any_clock_gap(mut self) -> Self {
        self.start.gap_max = None;
        self
    }

    #[cfg(test)]
    pub(super) fn machine_clocks(self, machine: Arc<dyn MachineClocks>) -> Self {
        Self { machine, ..self }
    }

    /// Where the store that is being opened has its time from.
    pub(super) fn time_source(&self) -> TimeSource {
        match &self.clock {
            Some(clock) => TimeSource::Told(clock.clone()),
            None => TimeSource::Kept {
                clock: Arc::new(StoreClock::new(self.machine.clone())),
                rules: self.start,
            },
        }
    }

    /// How long a call waits for the disk; 5 s unless said.
    #[must_use]
    pub fn time_out(self, time_out: Duration) -> Self {
        Self { time_out: time_out.min(TIME_OUT_MAX), ..self }
    }
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            leases: Leases::EndAtBoot,
            clock: None,
            machine: Arc::new(SystemClocks::new()),
            start: StartRules::default(),
            time_out: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for EmbeddedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { leases, clock: _, machine: _, start: _, time_out } = self;
        f.debug_struct("EmbeddedOptions")
            .field("leases", leases)
            .field("time_out", time_out)
            .finish_non_exhaustive()
    }
}
