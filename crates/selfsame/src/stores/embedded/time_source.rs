//! [`TimeSource`]: where a store that is being opened has its time from.

use std::sync::Arc;

use selfsame_core::Clock;

use super::kept_time::KeptTime;
use super::store_clock::{StartRules, StoreClock, TooLongGap};

/// Where a store has its time from.
pub(super) enum TimeSource {
    /// It is told, by a clock of its owner's.
    Told(Arc<dyn Clock>),
    /// It keeps its own.
    Kept { clock: Arc<StoreClock>, rules: StartRules },
}

impl TimeSource {
    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        match self {
            Self::Told(clock) => clock.clone(),
            Self::Kept { clock, .. } => clock.clone(),
        }
    }

    /// Goes on from the time that was kept last.
    pub(super) fn start(&self, kept: Option<KeptTime>) -> Result<(), TooLongGap> {
        match self {
            Self::Told(_) => Ok(()),
            Self::Kept { clock, rules } => clock.start(kept, *rules),
        }
    }

    /// The clock of a store that keeps its own time.
    pub(super) fn kept(&self) -> Option<Arc<StoreClock>> {
        match self {
            Self::Told(_) => None,
            Self::Kept { clock, .. } => Some(clock.clone()),
        }
    }
}
