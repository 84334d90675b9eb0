//! A store that fails when told to.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use selfsame::stores::MemoryStore;
use selfsame_core::conformance::SettableClock;
use selfsame_core::{
    Answer, Ask, Checkpoint, Claimed, Count, Erased, Facts, Fence, Fenced, Find, FullStore,
    Inspect, Lease, Record, RecordId, Recorded, Release, Resolution, Resolved, Store, StoreError,
    StoreErrorKind, Sweep, Swept, Timestamp,
};

use crate::support::Rig;

/// How the next calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Nothing is written.
    Down,
    /// Nothing is written, and nobody is told.
    Stuck,
    /// It is written, and the acknowledgement is lost; once.
    AcknowledgementLost,
    /// The same, and from then on nothing is written.
    GoesDown,
}

/// A store with a fault.
pub(crate) struct Faulty {
    inner: Arc<dyn FullStore>,
    fault: Mutex<Fault>,
}

/// A rig on such a store in memory.
pub(crate) fn faulty_rig() -> (Rig, Arc<Faulty>) {
    let clock = Arc::new(SettableClock::new());
    let memory = Arc::new(MemoryStore::with_clock(clock.clone()));
    let faulty = Arc::new(Faulty::new(memory));
    (Rig::on(faulty.clone(), clock), faulty)
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn FullStore>) -> Self {
        Self { inner, fault: Mutex::new(Fault::None) }
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    async fn before(&self) -> Result<(), StoreError> {
        let fault = *self.fault.lock();
        match fault {
            Fault::Stuck => std::future::pending().await,
            Fault::Down => Err(StoreError::new(StoreErrorKind::NotWritten, "the store is down")),
            _ => Ok(()),
        }
    }

    fn after<T>(&self, result: T) -> Result<T, StoreError> {
        let mut fault = self.fault.lock();
        *fault = match *fault {
            Fault::AcknowledgementLost => Fault::None,
            Fault::GoesDown => Fault::Down,
            _ => return Ok(result),
        };
        Err(StoreError::new(StoreErrorKind::MayHaveLanded, "no acknowledgement"))
    }
}

#[async_trait]
impl Store for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        self.before().await?;
        self.after(self.inner.claim(ask).await?)
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        self.before().await?;
        self.after(self.inner.renew(lease).await?)
    }

    async fn checkpoint(&self, lease: &Lease, point: &Checkpoint) -> Result<Fenced, StoreError> {
        self.before().await?;
        self.after(self.inner.checkpoint(lease, point).await?)
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        self.before().await?;
        self.after(self.inner.complete(lease, answer).await?)
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        self.before().await?;
        self.after(self.inner.release(lease, release).await?)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.before().await?;
        self.inner.get(id).await
    }
}

#[async_trait]
impl Sweep for Faulty {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        self.inner.sweep(most).await
    }
}

#[async_trait]
impl Inspect for Faulty {
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        self.inner.find(find, most).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        self.inner.resolve(id, fence, resolution).await
    }

    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError> {
        self.inner.erase(ids).await
    }

    async fn count(&self) -> Result<Count, StoreError> {
        self.inner.count().await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }
}

#[async_trait]
impl Facts for Faulty {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.inner.fact_or(name, value).await
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.inner.set_fact(name, value).await
    }
}
