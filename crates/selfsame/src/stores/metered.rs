//! A store whose calls are timed.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use selfsame_core::{
    Answer, Ask, Checkpoint, Claimed, Fenced, FullStore, Lease, Record, RecordId, Recorded,
    Release, Store, StoreError,
};

use crate::telemetry;
use crate::timing::Stopwatch;

/// Times each call on the hot path, by store and operation.
pub(crate) struct Metered {
    inner: Arc<dyn FullStore>,
}

impl Metered {
    pub(crate) fn new(inner: Arc<dyn FullStore>) -> Self {
        Self { inner }
    }

    async fn timed<T>(&self, op: &'static str, call: impl Future<Output = T>) -> T {
        let stopwatch = Stopwatch::start();
        let result = call.await;
        telemetry::store_call(self.inner.name(), op, stopwatch.elapsed());
        result
    }
}

#[async_trait]
impl Store for Metered {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        self.timed("claim", self.inner.claim(ask)).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        self.timed("renew", self.inner.renew(lease)).await
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        self.timed("checkpoint", self.inner.checkpoint(lease, checkpoint)).await
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        self.timed("complete", self.inner.complete(lease, answer)).await
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        self.timed("release", self.inner.release(lease, release)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.timed("get", self.inner.get(id)).await
    }
}
