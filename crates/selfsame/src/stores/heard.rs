//! [`HeardClock`]: the time of another store, as it was last told.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use selfsame_core::{Clock, Inspect, StoreError, Timestamp};

/// Clocks count in whole milliseconds.
const TICK: Duration = Duration::from_millis(1);

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
    heard_at: Timestamp,
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

    /// Whether it was told within the last `time`.
    pub(super) fn was_told_within(&self, time: Duration) -> bool {
        self.heard.read().is_some_and(|heard| self.here().since(heard.asked_at) <= time)
    }

    /// It is not earlier than this; nothing if it was never told.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "nobody writes elsewhere"))]
    pub(super) fn earliest(&self) -> Option<Timestamp> {
        let heard = (*self.heard.read())?;
        Some(heard.said + self.here().since(heard.heard_at + TICK))
    }

    /// It is not later than this; nothing if it was never told.
    pub(super) fn latest(&self) -> Option<Timestamp> {
        let heard = (*self.heard.read())?;
        // What was said was rounded, and so are the times in between.
        Some(heard.said + self.here().since(heard.asked_at) + 2 * TICK)
    }
}
