//! The laws of `selfsame-core`, stamped over each store of this crate.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use selfsame::stores::MemoryStore;
use selfsame_core::FullStore;
use selfsame_core::conformance::{Bench, SettableClock};

selfsame_core::conformance_laws! { mod memory: MemoryBench::default }

#[derive(Default)]
struct MemoryBench {
    clock: Arc<SettableClock>,
}

#[async_trait]
impl Bench for MemoryBench {
    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(MemoryStore::with_clock(self.clock.clone()))
    }

    fn is_durable(&self) -> bool {
        false
    }

    async fn pass(&self, time: Duration) {
        self.clock.pass(time);
    }
}
