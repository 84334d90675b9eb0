//! [`Pausing`]: a store that lets others go first, before and after each of its calls.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

use super::pauses::Pauses;
use crate::{
    Answer, Ask, AttemptId, Checkpoint, Claimed, Count, Erased, Facts, Fence, Fenced, Find,
    FullStore, Inspect, Lease, Record, RecordId, Recorded, Release, Replay, Resolution, Resolved,
    Store, StoreError, Sweep, Swept, Timestamp,
};

pub(super) struct Pausing {
    store: Arc<dyn FullStore>,
    pauses: Pauses,
}

impl Pausing {
    pub(super) fn new(store: Arc<dyn FullStore>, pauses: Pauses) -> Self {
        Self { store, pauses }
    }

    async fn around<T>(&self, call: impl Future<Output = T>) -> T {
        self.pauses.pause().await;
        let result = call.await;
        self.pauses.pause().await;
        result
    }
}

#[async_trait]
impl Store for Pausing {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        self.around(self.store.claim(ask)).await
    }

    fn answered(&self, ask: &Ask) -> Option<Replay> {
        self.store.answered(ask)
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        self.around(self.store.renew(lease)).await
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        self.around(self.store.checkpoint(lease, checkpoint)).await
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        self.around(self.store.complete(lease, answer)).await
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        self.around(self.store.release(lease, release)).await
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        self.around(self.store.cancel(id, attempt_id)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.around(self.store.get(id)).await
    }
}

#[async_trait]
impl Sweep for Pausing {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        self.around(self.store.sweep(most)).await
    }
}

#[async_trait]
impl Inspect for Pausing {
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        self.around(self.store.find(find, most)).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        self.around(self.store.resolve(id, fence, resolution)).await
    }

    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError> {
        self.around(self.store.erase(ids)).await
    }

    async fn count(&self) -> Result<Count, StoreError> {
        self.around(self.store.count()).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.around(self.store.now()).await
    }
}

#[async_trait]
impl Facts for Pausing {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.around(self.store.fact_or(name, value)).await
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.around(self.store.set_fact(name, value)).await
    }
}
