//! A store whose calls are timed, and that knows what this process runs itself.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use selfsame_core::{
    Answer, Ask, AttemptId, Bell, Checkpoint, Claimed, Fenced, Lease, Record, RecordId, Recorded,
    Release, Replay, State, Store, StoreError,
};

use tokio::time::Instant;

use super::SealedStore;
use crate::running::{Running, Standing};
use crate::telemetry::StoreTimer;
use crate::timing::Stopwatch;

/// Times each call on the hot path, by store and operation. A claim of what runs in this process is decided
/// without the store, which would give away a lease that it takes for dead. Writes of a run that goes on under
/// another lease than it began with show that one.
pub(crate) struct Metered {
    inner: SealedStore,
    running: Arc<Running>,
    claims: StoreTimer,
    renewals: StoreTimer,
    checkpoints: StoreTimer,
    completions: StoreTimer,
    releases: StoreTimer,
    cancellations: StoreTimer,
    reads: StoreTimer,
}

impl Metered {
    pub(crate) fn new(inner: SealedStore, running: Arc<Running>) -> Self {
        Self {
            inner,
            running,
            claims: StoreTimer::new("claim"),
            renewals: StoreTimer::new("renew"),
            checkpoints: StoreTimer::new("checkpoint"),
            completions: StoreTimer::new("complete"),
            releases: StoreTimer::new("release"),
            cancellations: StoreTimer::new("cancel"),
            reads: StoreTimer::new("get"),
        }
    }

    /// Claims a record that runs here: the store, which may take its lease for dead, only tells if there is an answer.
    async fn claim_if_finished(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        match self.inner.get(&ask.id).await?.map(|record| record.state) {
            Some(State::Completed { .. } | State::Tombstone) => self.inner.claimed(ask).await,
            _ => Ok(Claimed::Busy { lease_left: ask.lease }),
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
        let Some(standing) = self.running.standing(ask) else {
            return self.timed(&self.claims, self.inner.claimed(ask)).await;
        };
        let stopwatch = Stopwatch::start();
        let claimed = match standing {
            Standing::Busy { lease_left } => Ok(Claimed::Busy { lease_left }),
            Standing::Reused => Ok(Claimed::Reused),
            Standing::AskStore => Box::pin(self.claim_if_finished(ask)).await,
        };
        self.claims.took(self.inner.name(), stopwatch.elapsed());
        claimed
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

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Fenced, StoreError>> {
        self.timed(&self.renewals, self.inner.renew_all(leases)).await
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        let lease = self.running.current(lease);
        self.timed(&self.checkpoints, self.inner.checkpoint(&lease, checkpoint)).await
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        loop {
            let current = self.running.current(lease);
            let recorded =
                self.timed(&self.completions, self.inner.completed(&current, answer)).await;
            if !matches!(recorded, Ok(Recorded::Lost)) {
                return recorded;
            }
            // The run may have got another lease meanwhile.
            if self.running.current(lease) == current {
                self.running.refused(&current);
                return recorded;
            }
        }
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        let lease = self.running.current(lease);
        self.timed(&self.releases, self.inner.release(&lease, release)).await
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        let Some(lease) = self.running.lease_of(id) else {
            return self.timed(&self.cancellations, self.inner.cancel(id, attempt_id)).await;
        };
        // What runs here keeps its own claim, and gets one that has taken over from it and never began.
        if let Some(record) = self.inner.get(id).await?
            && record.attempt_id == attempt_id
            && matches!(record.state, State::Claimed { .. } | State::Held { .. })
        {
            let lease = Lease { fence: record.fence, attempt_id, ..lease };
            self.running.adopt(&lease, Instant::now());
        }
        Ok(Fenced::Lost)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.timed(&self.reads, self.inner.get(id)).await
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        self.inner.bell()
    }
}
