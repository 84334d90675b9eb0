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
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use selfsame_core::{
    Answer, Ask, Bell, Checkpoint, Claimed, Clock, Count, Erased, Facts, Fence, Fenced, Find,
    FullStore, Inspect, Lease, Record, RecordId, Recorded, Release, Replay, Resolution, Resolved,
    State, Store, StoreError, Sweep, Swept, Timestamp,
};

pub(super) use records::Near;

use super::SystemClock;
use crate::telemetry;

/// Any other store, with finished records that were asked for lately in this process.
///
/// For stores that are asked over a network. A record comes here when it is replayed, so one whose client
/// never asks again takes no room.
pub struct NearStore {
    inner: Arc<dyn FullStore>,
    records: Near,
    /// That of this process: it only tells how much time has passed.
    clock: Arc<dyn Clock>,
    estimate: Estimate,
}

/// What the store's clock says, by what it said.
struct Estimate {
    /// How far it is ahead of this process', at the most.
    ahead_ms: AtomicI64,
    /// When it was asked, by this process' clock; zero if it never was.
    asked_at: AtomicU64,
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
        let estimate = Estimate { ahead_ms: AtomicI64::new(0), asked_at: AtomicU64::new(0) };
        Self { inner: store, records: Near::new(bytes_max), clock, estimate }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn inner(&self) -> &dyn FullStore {
        &*self.inner
    }

    /// The answer, if it is here.
    fn find(&self, ask: &Ask) -> Option<Replay> {
        let here = self.clock.now();
        let record = self.records.find(&ask.id, here)?;
        let replay = selfsame_core::answered(&record, ask, self.estimate.at(here))?;
        telemetry::near_replay();
        Some(replay)
    }

    /// Keeps what the store replayed when it was asked at `asked_at`.
    async fn keep(&self, ask: &Ask, replay: &Replay, asked_at: Timestamp, erasures: u64) {
        let until = asked_at + Self::TRUSTED_FOR;
        if self.estimate.is_older_than(Self::TRUSTED_FOR, asked_at) {
            let here = self.clock.now();
            match self.inner.now().await {
                Ok(there) => self.estimate.learn(here, there),
                // It can be kept another time.
                Err(_) => return,
            }
        }
        // All that decides about a retry: the store has found that the fingerprint is the same.
        let mut record = Record::first(ask, Timestamp::default());
        record.keepsake = None;
        record.expires_at = replay.expires_at;
        record.state = State::Completed { at: Timestamp::default(), answer: replay.answer.clone() };
        self.records.keep(record, until, erasures);
    }
}

impl Estimate {
    /// The store's time when it is `here` in this process; it may be said to be later than it is.
    fn at(&self, here: Timestamp) -> Timestamp {
        let ahead_ms = self.ahead_ms.load(Ordering::Relaxed);
        Timestamp::from_millis(here.as_millis().saturating_add_signed(ahead_ms))
    }

    fn is_older_than(&self, age: Duration, here: Timestamp) -> bool {
        let asked_at = self.asked_at.load(Ordering::Relaxed);
        asked_at == 0 || here.since(Timestamp::from_millis(asked_at)) > age
    }

    /// It was asked when it was `here`, and said that it was `there`, which was later.
    fn learn(&self, here: Timestamp, there: Timestamp) {
        let ahead_ms = there.as_millis().cast_signed() - here.as_millis().cast_signed();
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
        self.asked_at.store(here.as_millis().max(1), Ordering::Relaxed);
    }
}

#[async_trait]
impl Store for NearStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        if let Some(replay) = self.find(ask) {
            return Ok(Claimed::Replay(replay));
        }
        let (asked_at, erasures) = (self.clock.now(), self.records.erasures(&ask.id));
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
