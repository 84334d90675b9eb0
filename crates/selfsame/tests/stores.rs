//! The laws of `selfsame-core`, stamped over each store of this crate.

#[cfg(feature = "embedded")]
#[path = "shared/in_a_folder.rs"]
mod in_a_folder;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use selfsame::seal::{Keyring, Seal};
use selfsame::stores::{MemoryStore, NearStore, SealedStore};
use selfsame_core::FullStore;
use selfsame_core::conformance::{Bench, SettableClock};

selfsame_core::conformance_laws! { mod memory: MemoryBench::default }
selfsame_core::conformance_laws! { mod sealed_memory: Sealed::<MemoryBench>::default }
selfsame_core::conformance_laws! { mod near_memory: NearBench::default }
#[cfg(feature = "embedded")]
selfsame_core::conformance_laws! { durable mod embedded: in_a_folder::EmbeddedBench::new }
#[cfg(feature = "embedded")]
selfsame_core::conformance_laws! {
    durable mod sealed_embedded: || Sealed(in_a_folder::EmbeddedBench::new())
}

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

/// The same with finished records near.
#[derive(Default)]
struct NearBench(MemoryBench);

#[async_trait]
impl Bench for NearBench {
    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(NearStore::with_clock(self.0.open().await, 1024 * 1024, self.0.clock.clone()))
    }

    fn is_durable(&self) -> bool {
        false
    }

    async fn pass(&self, time: Duration) {
        self.0.pass(time).await;
    }
}

/// Another bench, whose store is sealed.
#[derive(Default)]
struct Sealed<B>(B);

const KEYS: &str = "a AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

#[async_trait]
impl<B: Bench> Bench for Sealed<B> {
    async fn open(&self) -> Arc<dyn FullStore> {
        let seal = Seal::new(Keyring::parse(KEYS).expect("valid"));
        Arc::new(SealedStore::new(self.0.open().await, seal))
    }

    fn is_durable(&self) -> bool {
        self.0.is_durable()
    }

    async fn pass(&self, time: Duration) {
        self.0.pass(time).await;
    }
}
