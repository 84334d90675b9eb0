//! [`EmbeddedOptions`]: how an embedded store is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use selfsame_core::Clock;

use crate::stores::SystemClock;
use crate::stores::durable::TIME_OUT_MAX;

/// How an [`EmbeddedStore`](super::EmbeddedStore) is opened.
#[derive(Clone)]
pub struct EmbeddedOptions {
    pub(super) leases: Leases,
    pub(super) clock: Arc<dyn Clock>,
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

    /// Where the store reads its time; the system's clock unless said.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
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
            clock: Arc::new(SystemClock::new()),
            time_out: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for EmbeddedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { leases, clock: _, time_out } = self;
        f.debug_struct("EmbeddedOptions")
            .field("leases", leases)
            .field("time_out", time_out)
            .finish_non_exhaustive()
    }
}
