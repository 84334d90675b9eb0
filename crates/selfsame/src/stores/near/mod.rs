//! [`NearStore`]: any other store, with finished records that were asked for lately in this process.
//!
//! | question | answered by |
//! |---|---|
//! | a retry of a request whose answer is here, and was there a few seconds ago | this process |
//! | everything else | the store |
//!
//! A record that is finished does not change until it expires or is erased. When it expires is a question for
//! the store's clock, which is asked every few seconds and estimated in between, rather too late than too early. An
//! erasure by this process is known at once, one by another when [`NearStore::TRUSTED_FOR`] is over.

mod records;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use selfsame_core::{
    Answer, Ask, AttemptId, Bell, Checkpoint, Claimed, Clock, Count, Erased, Facts, Fence, Fenced,
    Find, FullStore, Inspect, Lease, Record, RecordId, Recorded, Release, Replay, Resolution,
    Resolved, State, Store, StoreError, Sweep, Swept, Timestamp,
};

pub(super) use records::Near;

use super::SystemClock;
use super::heard::HeardClock;
use crate::telemetry;

/// Any other store, with finished records that were asked for lately in this process.
///
/// For stores that are asked over a network. A record comes here when it is replayed, so one whose client
/// never asks again takes no room.
pub struct NearStore {
    inner: Arc<dyn FullStore>,
    records: Near,
    clock: HeardClock,
}

impl NearStore {
    /// For how long a record is not asked for again.
    pub const TRUSTED_FOR: Duration = Duration::from_secs(5);

    /// `store`, with records that take no more than about `bytes_max`.
    pub fn new(store: Arc<dyn FullStore>, bytes_max: usize) -> Self {
        Self::with_clock(store, bytes_max, Arc::new(SystemClock::new()))
    }

    /// The same, under a clock of the caller's.
    pub fn with_clock(store: Arc<dyn FullStore>, bytes_max: usize, clock: Arc<dyn Clock>) -> Self {
        Self { inner: store, records: Near::new(bytes_max), clock: HeardClock::new(clock) }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn inner(&self) -> &dyn FullStore {
        &*self.inner
    }

    /// The answer, if it is here.
    fn find(&self, ask: &Ask) -> Option<Replay> {
        let record = self.records.find(&ask.id, self.clock.here())?;
        let replay = selfsame_core::answered(&record, ask, self.clock.latest()?)?;
        telemetry::near_replay();
        Some(replay)
    }

    /// Keeps what the store replayed when it was asked at `asked_at`.
    async fn keep(&self, ask: &Ask, replay: &Replay, asked_at: Timestamp, erasures: u64) {
        let until = asked_at + Self::TRUSTED_FOR;
        if !self.clock.was_told_within(Self::TRUSTED_FOR)
            && self.clock.ask(&*self.inner).await.is_err()
        {
            // It can be kept another time.
            return;
        }
        // All that decides about a retry: the store has found that the fingerprint is the same.
        let mut record = Record::first(ask, Timestamp::default());
        record.keepsake = None;
        record.expires_at = replay.expires_at;
        record.state = State::Completed { at: Timestamp::default(), answer: replay.answer.clone() };
        self.records.keep(record, until, erasures);
    }
}

#[async_trait]
impl Store for NearStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        if let Some(replay) = self.find(ask) {
            return Ok(Claimed::Replay(Box::new(replay)));
        }
        let (asked_at, erasures) = (self.clock.here(), self.records.erasures(&ask.id));
        let claimed = self.inner.claim(ask).await?;
        if let Claimed::Replay(replay) = &claimed {
            self.keep(ask, replay, asked_at, erasures).await;
        }
        Ok(claimed)
    }

    fn answered(&self, ask: &Ask) -> Option<Replay> {
        self.find(ask).or_else(|| self.inner.answered(ask))
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        self.inner.renew(lease).await
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Fenced, StoreError>> {
        self.inner.renew_all(leases).await
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        self.inner.checkpoint(lease, checkpoint).await
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        self.inner.complete(lease, answer).await
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        self.inner.release(lease, release).await
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        self.inner.cancel(id, attempt_id).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.inner.get(id).await
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        self.inner.bell()
    }
}

#[async_trait]
impl Sweep for NearStore {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        self.inner.sweep(most).await
    }
}

#[async_trait]
impl Inspect for NearStore {
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
        let erased = self.inner.erase(ids).await;
        // An error may come of one that was erased.
        ids.iter().for_each(|id| self.records.forget(id));
        erased
    }

    async fn count(&self) -> Result<Count, StoreError> {
        self.inner.count().await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }
}

#[async_trait]
impl Facts for NearStore {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.inner.fact_or(name, value).await
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.inner.set_fact(name, value).await
    }
}
