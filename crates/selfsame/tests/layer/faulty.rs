//! A store that fails when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use selfsame::stores::MemoryStore;
use selfsame_core::conformance::SettableClock;
use selfsame_core::{
    Answer, Ask, AttemptId, Checkpoint, Claimed, Count, Erased, Facts, Fence, Fenced, Find,
    FullStore, Inspect, Lease, Record, RecordId, Recorded, Release, Resolution, Resolved, Store,
    StoreError, StoreErrorKind, Sweep, Swept, Timestamp,
};

use tokio::sync::Notify;

use crate::support::Rig;

/// How the next calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Nothing is written.
    Down,
    /// Nothing is written, and nobody is told.
    Stuck,
    /// No answer is recorded; all else works.
    RecordsNothing,
    /// It is written, and the acknowledgement is lost; once.
    AcknowledgementLost,
    /// The same, and from then on nothing is written.
    GoesDown,
    /// A claim is on its way, and nobody hears of it until it is delivered.
    Late,
    /// The next claim is on its way in this manner.
    LateOnce,
    /// The next claim reaches the store when [`Faulty::let_through`] says so.
    Delayed,
    /// The next claim is acknowledged after [`SLOW`].
    SlowAcknowledgement,
    /// The acknowledgement of the next claim is given up after [`SLOW`].
    SlowlyLost,
    /// The same, and the store sends the claim again by itself.
    SlowlyResent,
}

/// Time that a slow acknowledgement takes.
pub(crate) const SLOW: Duration = Duration::from_secs(20);

/// A store with a fault.
pub(crate) struct Faulty {
    inner: Arc<dyn FullStore>,
    fault: Mutex<Fault>,
    renewals: AtomicUsize,
    failed_renewals: AtomicUsize,
    late: Mutex<Option<Ask>>,
    go_on: Notify,
    is_watched: AtomicBool,
    completions: AtomicUsize,
    most_completions: AtomicUsize,
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
        Self {
            inner,
            fault: Mutex::new(Fault::None),
            renewals: AtomicUsize::new(0),
            failed_renewals: AtomicUsize::new(0),
            late: Mutex::default(),
            go_on: Notify::new(),
            is_watched: AtomicBool::new(false),
            completions: AtomicUsize::new(0),
            most_completions: AtomicUsize::new(0),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        *self.fault.lock() == Fault::None
    }

    /// Number of renewals that were made so far.
    pub(crate) fn renewals(&self) -> usize {
        self.renewals.load(Ordering::SeqCst)
    }

    /// Number of renewals that failed so far.
    pub(crate) fn failed_renewals(&self) -> usize {
        self.failed_renewals.load(Ordering::SeqCst)
    }

    /// Delivers the claim that was on its way.
    pub(crate) async fn deliver(&self) {
        let late = self.late.lock().take().expect("a claim was on its way");
        self.inner.claim(&late).await.expect("the store works");
    }

    /// Lets the claim go on that was delayed.
    pub(crate) fn let_through(&self) {
        self.go_on.notify_one();
    }

    /// Counts completions from now on, each of which takes ten milliseconds.
    pub(crate) fn watch_completions(&self) {
        self.is_watched.store(true, Ordering::SeqCst);
    }

    /// The number of completions that were under way at the same time.
    pub(crate) fn most_completions(&self) -> usize {
        self.most_completions.load(Ordering::SeqCst)
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
        let fault = *self.fault.lock();
        if matches!(fault, Fault::Late | Fault::LateOnce) {
            if fault == Fault::LateOnce {
                self.set(Fault::None);
            }
            *self.late.lock() = Some(ask.clone());
            return Err(StoreError::new(StoreErrorKind::MayHaveLanded, "nobody answers"));
        }
        if fault == Fault::Delayed {
            self.set(Fault::None);
            self.go_on.notified().await;
            return self.inner.claim(ask).await;
        }
        if matches!(fault, Fault::SlowAcknowledgement | Fault::SlowlyLost | Fault::SlowlyResent) {
            self.set(Fault::None);
            let claimed = self.inner.claim(ask).await?;
            tokio::time::sleep(SLOW).await;
            return match fault {
                Fault::SlowlyLost => {
                    Err(StoreError::new(StoreErrorKind::MayHaveLanded, "no acknowledgement"))
                }
                Fault::SlowlyResent => self.inner.claim(ask).await,
                _ => Ok(claimed),
            };
        }
        self.before().await?;
        self.after(self.inner.claim(ask).await?)
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        let renewed = match self.before().await {
            Ok(()) => self.after(self.inner.renew(lease).await?),
            Err(error) => Err(error),
        };
        let count = if renewed.is_ok() { &self.renewals } else { &self.failed_renewals };
        count.fetch_add(1, Ordering::SeqCst);
        renewed
    }

    async fn checkpoint(&self, lease: &Lease, point: &Checkpoint) -> Result<Fenced, StoreError> {
        self.before().await?;
        self.after(self.inner.checkpoint(lease, point).await?)
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        self.before().await?;
        if *self.fault.lock() == Fault::RecordsNothing {
            return Err(StoreError::new(StoreErrorKind::NotWritten, "nothing is recorded"));
        }
        if self.is_watched.load(Ordering::SeqCst) {
            let under_way = self.completions.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_completions.fetch_max(under_way, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.completions.fetch_sub(1, Ordering::SeqCst);
        }
        self.after(self.inner.complete(lease, answer).await?)
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        self.before().await?;
        self.after(self.inner.release(lease, release).await?)
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        self.before().await?;
        self.after(self.inner.cancel(id, attempt_id).await?)
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
