//! A bench of the embedded store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use selfsame::stores::{EmbeddedOptions, EmbeddedStore, Leases, OpenError};
use selfsame_core::FullStore;
use selfsame_core::conformance::{Bench, SettableClock};
use tempfile::TempDir;
use tokio::time::sleep;

pub(crate) struct EmbeddedBench {
    clock: Arc<SettableClock>,
    folder: TempDir,
}

impl EmbeddedBench {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("the system has a place for temporary folders");
        Self { clock: Arc::default(), folder }
    }
}

#[async_trait]
impl Bench for EmbeddedBench {
    async fn open(&self) -> Arc<dyn FullStore> {
        for _ in 0..100 {
            let options = EmbeddedOptions::default().leases(Leases::Keep);
            match EmbeddedStore::open(self.folder.path(), options.clock(self.clock.clone())) {
                Ok(store) => return Arc::new(store),
                // A child of another test has all our files, until it is the program that it is to be.
                Err(OpenError::InUse { .. }) => sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("the folder is the bench's own: {error}"),
            }
        }
        panic!("somebody uses the bench's folder")
    }

    fn is_durable(&self) -> bool {
        true
    }

    async fn pass(&self, time: Duration) {
        self.clock.pass(time);
    }
}
