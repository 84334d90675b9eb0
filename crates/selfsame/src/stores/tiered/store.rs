//! The traits of a store: the durable store first, then the cache.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use selfsame_core::{
    Answer, Ask, AttemptId, Bell, Checkpoint, Claimed, Count, Erased, Facts, Fence, Fenced, Find,
    Inspect, Lease, Record, RecordId, Recorded, Release, Replay, Resolution, Resolved, Store,
    StoreError, Sweep, Swept, Timestamp,
};

use super::entry::{Entry, Mark};
use super::{Run, TieredStore};
use crate::stores::redis::Rank;

/// How many erasures are told to the cache at the same time.
const ERASURES_MAX: usize = 64;

impl TieredStore {
    /// The cache may know that this runs.
    fn begin(&self, ask: &Ask, lease: &Lease, since: Option<Timestamp>) {
        let fingerprint = ask.fingerprint;
        let entry = since.map(|since| Entry::running(lease, fingerprint, since));
        let is_told = entry.is_some_and(|entry| self.cache.put_soon(lease.id, entry));
        self.runs.begin(lease.attempt_id, Run { fingerprint, fence: lease.fence, is_told });
    }

    /// Tells the cache that this runs on, if it does; it was so at `since`.
    fn renewed(&self, lease: &Lease, renewed: Fenced, since: Option<Timestamp>) {
        if let (Fenced::Applied, Some(run), Some(since)) =
            (renewed, self.runs.get(&lease.attempt_id), since)
        {
            let entry = Entry::running(lease, run.fingerprint, since);
            let is_told = self.cache.put_soon(lease.id, entry) || run.is_told;
            self.runs.begin(lease.attempt_id, Run { is_told, ..run });
        }
    }

    /// The cache is told that this runs no more, unless it never heard that it does.
    async fn end(&self, lease: &Lease) {
        let run = self.runs.get(&lease.attempt_id);
        self.runs.end(&lease.attempt_id);
        if run.is_none_or(|run| run.is_told) {
            self.cache.end(lease).await;
        }
    }
}

#[async_trait]
impl Store for TieredStore {
    fn name(&self) -> &'static str {
        "tiered"
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        if let Some(settled) = self.cache.settle(ask).await {
            return Ok(settled);
        }
        // Before it is asked: whatever it says was so then, or later.
        let since = self.cache.clock.earliest();
        let claimed = self.durable.claim(ask).await?;
        match &claimed {
            Claimed::Run(grant) => self.begin(ask, &grant.lease, since),
            Claimed::Replay(replay) => {
                if let Some(since) = since {
                    let entry = Entry::done((**replay).clone(), ask.fingerprint, since);
                    self.cache.put_soon(ask.id, entry);
                }
            }
            Claimed::Busy { .. } | Claimed::Reused | Claimed::Held { .. } | Claimed::Expired => {}
        }
        Ok(claimed)
    }

    fn answered(&self, ask: &Ask) -> Option<Replay> {
        self.durable.answered(ask)
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        let since = self.cache.clock.earliest();
        let renewed = self.durable.renew(lease).await?;
        self.renewed(lease, renewed, since);
        Ok(renewed)
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Fenced, StoreError>> {
        let since = self.cache.clock.earliest();
        let outcomes = self.durable.renew_all(leases).await;
        for (lease, outcome) in leases.iter().zip(&outcomes) {
            if let Ok(renewed) = outcome {
                self.renewed(lease, *renewed, since);
            }
        }
        outcomes
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        self.durable.checkpoint(lease, checkpoint).await
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        let since = self.cache.clock.earliest();
        let recorded = self.durable.complete(lease, answer).await?;
        let Recorded::Until(expires_at) = recorded else { return Ok(recorded) };
        let run = self.runs.get(&lease.attempt_id);
        let is_there = match run.zip(since) {
            Some((run, since)) => {
                let replay = Replay { answer: answer.clone(), expires_at };
                let entry = Entry::done(replay, run.fingerprint, since);
                self.cache.put(&lease.id, &entry).await
            }
            None => false,
        };
        if is_there {
            self.runs.end(&lease.attempt_id);
        } else {
            self.end(lease).await;
        }
        Ok(recorded)
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        let released = self.durable.release(lease, release).await?;
        if released == Fenced::Applied {
            self.end(lease).await;
        }
        Ok(released)
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        let cancelled = self.durable.cancel(id, attempt_id).await?;
        // The cache hears of a claim only where this process did.
        let run = self.runs.get(&attempt_id);
        self.runs.end(&attempt_id);
        if let (Fenced::Applied, Some(run)) = (cancelled, run)
            && run.is_told
        {
            self.cache.mark(id, Mark { rank: Rank::Ended, fence: run.fence }).await;
        }
        Ok(cancelled)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.durable.get(id).await
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        Some(self.bell.clone())
    }
}

#[async_trait]
impl Sweep for TieredStore {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        self.durable.sweep(most).await
    }
}

#[async_trait]
impl Inspect for TieredStore {
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        self.durable.find(find, most).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        let resolved = self.durable.resolve(id, fence, resolution).await?;
        if resolved == Resolved::Done {
            // The fence that it has now: of those before it nobody runs.
            self.cache.mark(id, Mark { rank: Rank::Ended, fence: fence.next() }).await;
        }
        Ok(resolved)
    }

    /// Where the cache cannot be told, it is told once it is back; what it has is dead ten minutes after.
    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError> {
        let erased = self.durable.erase(ids).await?;
        let mark = Mark { rank: Rank::Erased, fence: Fence::FIRST };
        let done = ids.iter().zip(&erased).filter(|(_, erased)| **erased == Erased::Done);
        let done: Vec<_> = done.map(|(id, _)| *id).collect();
        for some in done.chunks(ERASURES_MAX) {
            join_all(some.iter().map(|id| self.cache.mark(id, mark))).await;
        }
        if self.cache.is_away() {
            tracing::warn!(
                "the cache is away, and what it has of the records that were erased stays until it is \
                 back, or for ten minutes"
            );
        }
        Ok(erased)
    }

    async fn count(&self) -> Result<Count, StoreError> {
        self.durable.count().await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.durable.now().await
    }
}

#[async_trait]
impl Facts for TieredStore {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.durable.fact_or(name, value).await
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.durable.set_fact(name, value).await
    }
}
