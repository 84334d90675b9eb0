//! [`Trial`]: one law's run over one bench.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::Bench;
use super::pauses::Pauses;
use super::pausing::Pausing;
use crate::{
    Answer, Ask, AttemptId, Checkpoint, Claimed, Count, Erased, Facts, Fence, Fenced, Find, Grant,
    Inspect, Lease, Record, RecordId, Recorded, Release, Replay, Resolution, Resolved, Store,
    Sweep, Swept, Timestamp,
};

/// A store under test, with pauses around all it does. A law is a function over it.
///
/// The calls are the store's; an error of the store is a broken law. Clones are handles on the
/// same store.
#[derive(Clone)]
pub struct Trial {
    bench: Arc<dyn Bench>,
    store: Arc<Pausing>,
    pauses: Pauses,
}

const WORKS: &str = "the store under test works";

impl Trial {
    pub(super) async fn begin(bench: Arc<dyn Bench>, pauses: Pauses) -> Self {
        let store = Arc::new(Pausing::new(bench.open().await, pauses.clone()));
        Self { bench, store, pauses }
    }

    /// The same data, as the next process finds it.
    pub async fn restart(self) -> Self {
        let Self { bench, store, pauses } = self;
        drop(Arc::into_inner(store).expect("a law restarts after its rivals are done"));
        let store = Arc::new(Pausing::new(bench.open().await, pauses.clone()));
        Self { bench, store, pauses }
    }

    /// Lets the store's clock go forward by `time`.
    pub async fn pass(&self, time: Duration) {
        self.bench.pass(time).await;
    }

    /// Runs all `rivals` at the same time, each on its own task, and returns what they came to,
    /// in their order.
    pub async fn race<R>(&self, rivals: impl IntoIterator<Item = R>) -> Vec<R::Output>
    where
        R: Future<Output: Send> + Send + 'static,
    {
        let tasks: Vec<_> = rivals.into_iter().map(|rival| self.pauses.spawn(rival)).collect();
        let mut outputs = Vec::with_capacity(tasks.len());
        for task in tasks {
            outputs.push(task.await.expect("a rival does not panic"));
        }
        outputs
    }

    /// Runs two rivals of different kinds at the same time, each on its own task.
    pub async fn race_two<L, R>(&self, left: L, right: R) -> (L::Output, R::Output)
    where
        L: Future<Output: Send> + Send + 'static,
        R: Future<Output: Send> + Send + 'static,
    {
        let (left, right) = (self.pauses.spawn(left), self.pauses.spawn(right));
        let not_panicking = "a rival does not panic";
        (left.await.expect(not_panicking), right.await.expect(not_panicking))
    }

    /// Asks for all of `asks` at the same time.
    pub async fn race_to_claim(&self, asks: impl IntoIterator<Item = Ask>) -> Vec<Claimed> {
        let rivals = asks.into_iter().map(|ask| {
            let trial = self.clone();
            async move { trial.claim(&ask).await }
        });
        self.race(rivals).await
    }

    /// Claims a key that must be free to run.
    pub async fn run(&self, ask: &Ask) -> Grant {
        match self.claim(ask).await {
            Claimed::Run(grant) => *grant,
            other => panic!("the key must be free to run, not {other:?}"),
        }
    }

    /// Asks for a key that must be completed.
    pub async fn replay(&self, ask: &Ask) -> Replay {
        match self.claim(ask).await {
            Claimed::Replay(replay) => *replay,
            other => panic!("the key must be completed, not {other:?}"),
        }
    }

    /// Reads a record that must be there.
    pub async fn record(&self, id: &RecordId) -> Record {
        self.get(id).await.expect("the record must be there")
    }

    /// Sweeps until the store says that it is finished, in bites of `most`.
    pub async fn sweep_all(&self, most: usize) -> Swept {
        let mut all = Swept::default();
        for _ in 0..100 {
            let swept = self.sweep(most).await;
            all.removed += swept.removed;
            all.buried += swept.buried;
            all.held.extend(swept.held);
            if swept.finished {
                return Swept { finished: true, ..all };
            }
        }
        panic!("a sweep must come to an end, not only to {all:?}");
    }
}

/// The calls of the store.
impl Trial {
    /// [`Store::claim`].
    pub async fn claim(&self, ask: &Ask) -> Claimed {
        self.store.claim(ask).await.expect(WORKS)
    }

    /// [`Store::answered`].
    pub fn answered(&self, ask: &Ask) -> Option<Replay> {
        self.store.answered(ask)
    }

    /// [`Store::renew`].
    pub async fn renew(&self, lease: &Lease) -> Fenced {
        self.store.renew(lease).await.expect(WORKS)
    }

    /// [`Store::renew_all`].
    pub async fn renew_all(&self, leases: &[Lease]) -> Vec<Fenced> {
        let renewed = self.store.renew_all(leases).await;
        renewed.into_iter().map(|renewed| renewed.expect(WORKS)).collect()
    }

    /// [`Store::checkpoint`].
    pub async fn checkpoint(&self, lease: &Lease, checkpoint: &Checkpoint) -> Fenced {
        self.store.checkpoint(lease, checkpoint).await.expect(WORKS)
    }

    /// [`Store::complete`].
    pub async fn complete(&self, lease: &Lease, answer: &Answer) -> Fenced {
        match self.record_answer(lease, answer).await {
            Recorded::Until(_) => Fenced::Applied,
            Recorded::Lost => Fenced::Lost,
        }
    }

    /// [`Store::complete`], for laws that look at the expiry.
    pub async fn record_answer(&self, lease: &Lease, answer: &Answer) -> Recorded {
        self.store.complete(lease, answer).await.expect(WORKS)
    }

    /// [`Store::release`].
    pub async fn release(&self, lease: &Lease, release: Release) -> Fenced {
        self.store.release(lease, release).await.expect(WORKS)
    }

    /// [`Store::cancel`].
    pub async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Fenced {
        self.store.cancel(id, attempt_id).await.expect(WORKS)
    }

    /// [`Store::get`].
    pub async fn get(&self, id: &RecordId) -> Option<Record> {
        self.store.get(id).await.expect(WORKS)
    }

    /// [`Sweep::sweep`].
    pub async fn sweep(&self, most: usize) -> Swept {
        self.store.sweep(most).await.expect(WORKS)
    }

    /// [`Inspect::find`].
    pub async fn find(&self, find: &Find, most: usize) -> Vec<Record> {
        self.store.find(find, most).await.expect(WORKS)
    }

    /// [`Inspect::resolve`].
    pub async fn resolve(&self, id: &RecordId, fence: Fence, resolution: &Resolution) -> Resolved {
        self.store.resolve(id, fence, resolution).await.expect(WORKS)
    }

    /// [`Inspect::erase`], of one.
    pub async fn erase(&self, id: &RecordId) -> Erased {
        let erased = self.store.erase(std::slice::from_ref(id)).await.expect(WORKS);
        let [erased] = erased[..] else { panic!("one was to be erased, not {erased:?}") };
        erased
    }

    /// [`Inspect::count`].
    pub async fn count(&self) -> Count {
        self.store.count().await.expect(WORKS)
    }

    /// [`Inspect::now`].
    pub async fn now(&self) -> Timestamp {
        self.store.now().await.expect(WORKS)
    }

    /// [`Facts::fact_or`].
    pub async fn fact_or(&self, name: &str, value: &[u8]) -> Vec<u8> {
        self.store.fact_or(name, value).await.expect(WORKS)
    }

    /// [`Facts::set_fact`].
    pub async fn set_fact(&self, name: &str, value: &[u8]) {
        self.store.set_fact(name, value).await.expect(WORKS);
    }
}
