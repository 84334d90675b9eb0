//! [`HeardClock`]: the time of the durable store, as it was last told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use selfsame_core::{Inspect, StoreError, Timestamp};
use tokio::time::Instant;

/// What the durable store's clock said, carried on by ours. How long it took to ask is what is not known,
/// so there are two readings of it: whoever writes goes by the earlier, whoever reads by the later, and
/// nothing is taken to live that is dead there.
pub(super) struct HeardClock {
    heard: RwLock<Option<Heard>>,
    ahead_ms: Arc<AtomicU64>,
}

#[derive(Clone, Copy)]
struct Heard {
    said: Timestamp,
    asked_at: Instant,
    heard_at: Instant,
    ahead_ms: u64,
}

impl HeardClock {
    pub(super) fn new(ahead_ms: Arc<AtomicU64>) -> Self {
        Self { heard: RwLock::default(), ahead_ms }
    }

    /// Asks for the time.
    pub(super) async fn ask(&self, store: &(impl Inspect + ?Sized)) -> Result<(), StoreError> {
        let (asked_at, ahead_ms) = (Instant::now(), self.ahead());
        let said = store.now().await?;
        *self.heard.write() = Some(Heard { said, asked_at, heard_at: Instant::now(), ahead_ms });
        Ok(())
    }

    /// It is not earlier than this; nothing if it was never told.
    pub(super) fn earliest(&self) -> Option<Timestamp> {
        let heard = (*self.heard.read())?;
        Some(heard.said + heard.heard_at.elapsed() + self.since(&heard))
    }

    /// It is not later than this; nothing if it was never told.
    pub(super) fn latest(&self) -> Option<Timestamp> {
        let heard = (*self.heard.read())?;
        // Both clocks count in whole milliseconds.
        let rounded = Duration::from_millis(1);
        Some(heard.said + heard.asked_at.elapsed() + self.since(&heard) + rounded)
    }

    /// The time that passed since then by a test's word.
    fn since(&self, heard: &Heard) -> Duration {
        Duration::from_millis(self.ahead().saturating_sub(heard.ahead_ms))
    }

    fn ahead(&self) -> u64 {
        self.ahead_ms.load(Ordering::SeqCst)
    }
}
