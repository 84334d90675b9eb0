//! [`TieredBell`]: wake-ups by the cache while it is there, else by the durable store.

use std::sync::{Arc, Weak};

use selfsame_core::{Bell, RecordId, Sleepers};

/// Two bells. Whoever waits says so by one of them, and hears both.
pub(super) struct TieredBell {
    pub(super) cache: Arc<dyn Bell>,
    pub(super) durable: Option<Arc<dyn Bell>>,
}

impl Bell for TieredBell {
    fn listen_for(&self, id: &RecordId) {
        match &self.durable {
            Some(durable) if !self.cache.is_heard() => durable.listen_for(id),
            _ => self.cache.listen_for(id),
        }
    }

    fn ring(&self, id: &RecordId) {
        // Each says it only where somebody waits by it.
        self.cache.ring(id);
        if let Some(durable) = &self.durable {
            durable.ring(id);
        }
    }

    fn wakes(&self, sleepers: Weak<dyn Sleepers>) {
        self.cache.wakes(sleepers.clone());
        if let Some(durable) = &self.durable {
            durable.wakes(sleepers);
        }
    }

    /// Who began to wait by the cache is not told by the durable store, so that one alone will not do.
    fn is_heard(&self) -> bool {
        self.cache.is_heard()
    }
}
