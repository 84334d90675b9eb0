//! A store whose calls are timed.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use selfsame_core::{
    Answer, Ask, Bell, Checkpoint, Claimed, Fenced, Lease, Record, RecordId, Recorded, Release,
    Replay, Store, StoreError,
};

use super::SealedStore;
use crate::telemetry::StoreTimer;
use crate::timing::Stopwatch;

/// Times each call on the hot path, by store and operation.
pub(crate) struct Metered {
    inner: SealedStore,
    claims: StoreTimer,
    renewals: StoreTimer,
    checkpoints: StoreTimer,
    completions: StoreTimer,
    releases: StoreTimer,
    reads: StoreTimer,
}

impl Metered {
    pub(crate) fn new(inner: SealedStore) -> Self {
        Self {
            inner,
            claims: StoreTimer::new("claim"),
            renewals: StoreTimer::new("renew"),
            checkpoints: StoreTimer::new("checkpoint"),
            completions: StoreTimer::new("complete"),
            releases: StoreTimer::new("release"),
            reads: StoreTimer::new("get"),
        }
    }

    async fn timed<T>(&self, timer: &StoreTimer, call: impl Future<Output = T>) -> T {
        let stopwatch = Stopwatch::start();
        let result = call.await;
        timer.took(self.inner.name(), stopwatch.elapsed());
        result
    }
}

#[async_trait]
impl Store for Metered {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        self.timed(&self.claims, self.inner.claimed(ask)).await
    }

    fn answered(&self, ask: &Ask) -> Option<Replay> {
        let stopwatch = Stopwatch::start();
        let replay = self.inner.answered(ask)?;
        self.claims.took(self.inner.name(), stopwatch.elapsed());
        Some(replay)
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        self.timed(&self.renewals, self.inner.renew(lease)).await
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        self.timed(&self.checkpoints, self.inner.checkpoint(lease, checkpoint)).await
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        self.timed(&self.completions, self.inner.completed(lease, answer)).await
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        self.timed(&self.releases, self.inner.release(lease, release)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.timed(&self.reads, self.inner.get(id)).await
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        self.inner.bell()
    }
}
