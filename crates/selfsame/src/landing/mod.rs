//! [`Landing`]: writes that the store could not take, kept and tried for as long as the process lives.
//!
//! | write | why it is owed | spooled |
//! |---|---|---|
//! | an answer | the work is done, and its client has the answer | yes |
//! | a release | the work ended, and its key is free or left to a person | yes |
//! | a cancellation | nothing was heard of a claim, or it was not used: nothing ran | when the process ends |
//!
//! A claim of this process that comes while a write waits for its record has it made first. Attempt id and
//! fence make a late write safe: it frees or completes a key that is held only because its lease ran out, and
//! leaves a later claim and a person's decision alone.
//!
//! A claim that was sent repeatedly may arrive once more after its run has freed the key. That copy is cancelled,
//! too.

mod drive;
mod owed;
mod queue;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use selfsame_core::{
    Answer, AttemptId, Fenced, Lease, RecordId, Recorded, Release, Releaser, Sent, Store,
    StoreError, StoreErrorKind,
};

use self::drive::FIRST_PAUSE;
use self::owed::{Owed, Place, Write};
use self::queue::Queue;
use tokio::time::timeout;

use crate::background;
use crate::log_throttle::LogThrottle;
use crate::private_files::blocking;
use crate::seal::Seal;
use crate::spool::Spool;
use crate::telemetry;
use crate::wait::Waiters;

/// Limit of the bytes of answers that wait in memory. The bodies of others are read from the spool again; where
/// there is none, their keys are completed without a body.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes that an answer takes besides its body.
const HEAD_BYTES: usize = 1024;
/// Number of spooled writes that are made at the same time at the start.
const SPOOLED_TOGETHER: usize = 32;
/// Time within which a write is spooled. After it nobody waits for the disk, and the write stays in
/// memory.
const SPOOLED_WITHIN: Duration = Duration::from_secs(5);
/// Time that a process which ends gives the store to take what waits, where it can be spooled instead.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Outcome of a write that the store took.
enum Landed {
    Made,
    /// There is no such claim to cancel. It may still be on its way.
    Missed,
}

pub(crate) struct Landing {
    store: Arc<dyn Store>,
    spool: Option<Spool>,
    seal: Seal,
    waiters: Arc<Waiters>,
    queue: Queue,
    /// Bytes of the answers that wait in memory.
    bytes: AtomicUsize,
    store_failures: LogThrottle,
    spool_failures: LogThrottle,
}

impl Landing {
    /// Must be called on a tokio runtime, on which what waits is tried.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        spool: Option<Spool>,
        seal: Seal,
        waiters: Arc<Waiters>,
    ) -> Arc<Self> {
        let (queue, bytes) = (Queue::new(), AtomicUsize::new(0));
        let added = queue.added.clone();
        let (store_failures, spool_failures) = Default::default();
        let landing =
            Self { store, spool, seal, waiters, queue, bytes, store_failures, spool_failures };
        let landing = Arc::new(landing);
        background::spawn(drive::drive(Arc::downgrade(&landing), added));
        landing
    }

    /// Takes an answer the store refused. When this returns it is spooled, where there is a
    /// spool, and will be tried again and again.
    pub(crate) async fn complete(&self, lease: Lease, answer: &Answer) {
        let without_body = owed::without_body(answer);
        // A spool is a file as well. What a later process cannot open it can still record.
        let answer = Arc::new(self.seal.closed_answer(&lease.id, answer).into_owned());
        let bytes = HEAD_BYTES + answer.body.kept_bytes();
        let in_memory = self.bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        // Known before it is spooled, which takes a while: a claim may come at any moment.
        let owed = Owed::completion(lease, Place::Memory { answer: answer.clone(), bytes });
        self.queue.add(owed.clone());
        let status = answer.status;
        self.keep(&owed).await;
        if in_memory > BYTES_MAX {
            let place = match owed.is_spooled() {
                true => Place::Spool(status),
                // That the work was done outweighs its answer: it must not be done again.
                false => {
                    tracing::error!(
                        record = lease.id.short(),
                        "too many answers wait for the store: one is recorded without its body"
                    );
                    Place::Memory { answer: Arc::new(without_body), bytes: 0 }
                }
            };
            self.put(&owed, place);
        }
        self.begin(owed).await;
    }

    /// Takes a release that the store refused, as [`Landing::complete`] takes an answer.
    pub(crate) async fn release(&self, lease: Lease, release: Release, sent: Sent) {
        let owed = Owed::release(lease, release, sent);
        self.queue.add(owed.clone());
        self.keep(&owed).await;
        self.begin(owed).await;
    }

    /// Has a write tried that is spooled, unless a claim of its record had it made meanwhile.
    async fn begin(&self, owed: Arc<Owed>) {
        match owed.is_over() {
            true => self.unspool(&owed).await,
            false => self.queue.schedule(owed, FIRST_PAUSE),
        }
    }

    /// Takes back a claim of which nothing was heard, should it have been made or be made yet.
    pub(crate) fn cancel(&self, id: RecordId, attempt_id: AttemptId) {
        self.add(Owed::unheard(id, attempt_id));
    }

    /// Cancels copies of a claim that may arrive after `release` has ended it. Only where that has freed its key:
    /// what is held stays so.
    pub(crate) fn cancel_copies(&self, lease: &Lease, release: Release, sent: Sent) {
        let is_freed = matches!(release, Release::NeverRan | Release::Retry | Release::Forget);
        if is_freed && sent == Sent::Repeatedly {
            self.cancel(lease.id, lease.attempt_id);
        }
    }

    fn add(&self, owed: Arc<Owed>) {
        self.queue.add(owed.clone());
        self.queue.schedule(owed, FIRST_PAUSE);
    }

    /// Tells if any write waits.
    pub(crate) fn is_any_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Makes the writes that wait for this record: a client may have seen what they say, and nobody may
    /// run work again that is done.
    pub(crate) async fn land_first(&self, id: &RecordId) -> Result<(), StoreError> {
        for owed in self.queue.of_record(id) {
            self.land(&owed).await?;
        }
        Ok(())
    }

    /// Tells if so much waits that no more work may begin.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Lands what an earlier process left in the spool; what does not land is tried on.
    pub(crate) async fn land_spooled(&self) {
        let Some(spool) = self.spool.clone() else { return };
        let waiting = match blocking(move || spool.waiting()).await {
            Ok(waiting) => waiting,
            Err(error) => return tracing::error!(%error, "the spool cannot be read"),
        };
        let owed: Vec<_> = waiting.into_iter().map(Owed::spooled).collect();
        owed.iter().for_each(|owed| self.queue.add(owed.clone()));
        let is_away = &AtomicBool::new(false);
        let tries = stream::iter(owed).for_each_concurrent(SPOOLED_TOGETHER, |owed| async move {
            // A store that fails once is not asked for each of them before the first request.
            if is_away.load(Ordering::SeqCst) {
                return self.queue.schedule(owed, FIRST_PAUSE);
            }
            match self.land(&owed).await {
                Ok(Landed::Made) => {
                    tracing::info!(record = owed.id.short(), "what was spooled has landed");
                }
                Ok(Landed::Missed) => self.missed(&owed).await,
                Err(_) => {
                    is_away.store(true, Ordering::SeqCst);
                    self.queue.schedule(owed, FIRST_PAUSE);
                }
            }
        });
        tries.await;
    }

    /// Waits until the store has taken what waits. After a second that is given up where the spool has it all for the next
    /// process.
    pub(crate) async fn drained(&self) {
        if timeout(ENDS_WITHIN, self.queue.settled()).await.is_err() {
            self.spool_rest().await;
            if !self.queue.unspooled().is_empty() {
                self.queue.settled().await;
            }
        }
    }

    /// Spools what waits and is not in the spool yet.
    pub(crate) async fn spool_rest(&self) {
        let rest = stream::iter(self.queue.unspooled());
        let spooled = rest.for_each_concurrent(SPOOLED_TOGETHER, |owed| async move {
            self.keep_until_over(&owed).await;
        });
        spooled.await;
    }

    /// Writes `owed` to the spool, and removes it from there if it was made meanwhile.
    async fn keep_until_over(&self, owed: &Arc<Owed>) {
        self.keep(owed).await;
        if owed.is_over() {
            self.unspool(owed).await;
        }
    }

    /// Logs that the store still cannot take a write for the record.
    pub(crate) fn log_failure(&self, error: &StoreError, id: &RecordId) {
        let record = id.short();
        match self.store_failures.failed() {
            Some(unlogged) => {
                tracing::warn!(%error, record, unlogged, "a write still waits for the store");
            }
            None => tracing::debug!(%error, record, "a write still waits for the store"),
        }
    }

    /// Makes one write. It stays in the queue where the store fails.
    async fn land(&self, owed: &Arc<Owed>) -> Result<Landed, StoreError> {
        let record = owed.id.short();
        match &owed.write {
            Write::Complete { lease, answer } => {
                let place = answer.lock().clone();
                let answer = self.fetch(*lease, place).await?;
                if self.store.complete(lease, &answer).await? == Recorded::Lost {
                    telemetry::fenced_write();
                    tracing::warn!(record, "a late answer was fenced off");
                }
            }
            Write::Release { lease, release, sent } => {
                // One that was made before, and not acknowledged, finds the claim gone as well.
                if self.store.release(lease, *release).await? == Fenced::Lost {
                    tracing::info!(record, "a late release found its claim gone");
                }
                self.cancel_copies(lease, *release, *sent);
            }
            Write::Cancel { looks } => {
                let cancelled = self.store.cancel(&owed.id, owed.attempt_id).await?;
                if cancelled == Fenced::Lost && looks.is_some() {
                    return Ok(Landed::Missed);
                }
            }
        }
        if let Some(failures) = self.store_failures.worked() {
            tracing::info!(failures, "the store takes writes again");
        }
        self.unspool(owed).await;
        self.forget(owed);
        self.waiters.wake(&owed.id);
        Ok(Landed::Made)
    }

    /// Has a claim looked for again that the store does not know, or gives it up.
    async fn missed(&self, owed: &Arc<Owed>) {
        self.queue.missed(owed);
        if owed.is_over() {
            self.unspool(owed).await;
        }
    }

    fn forget(&self, owed: &Arc<Owed>) {
        self.queue.remove(owed);
        if let Write::Complete { answer, .. } = &owed.write {
            let status = match &*answer.lock() {
                Place::Memory { answer, .. } => answer.status,
                Place::Spool(status) => *status,
            };
            self.put(owed, Place::Spool(status));
        }
    }

    /// Changes where an answer is.
    fn put(&self, owed: &Owed, place: Place) {
        let Write::Complete { answer, .. } = &owed.write else { return };
        let before = std::mem::replace(&mut *answer.lock(), place);
        if let Place::Memory { bytes, .. } = before {
            self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        }
    }

    async fn fetch(&self, lease: Lease, place: Place) -> Result<Arc<Answer>, StoreError> {
        let (spool, status) = match (place, self.spool.clone()) {
            (Place::Memory { answer, .. }, _) => return Ok(answer),
            (Place::Spool(status), None) => return Ok(Arc::new(owed::status_alone(status))),
            (Place::Spool(status), Some(spool)) => (spool, status),
        };
        match blocking(move || spool.answer(&lease)).await {
            Ok(answer) => Ok(Arc::new(answer)),
            Err(error) if is_lost(&error) => {
                tracing::error!(
                    %error,
                    record = lease.id.short(),
                    "a spooled answer is lost: its key is completed without a body"
                );
                Ok(Arc::new(owed::status_alone(status)))
            }
            Err(error) => {
                let text = "a spooled answer cannot be read";
                Err(StoreError::new(StoreErrorKind::NotWritten, text).caused_by(error))
            }
        }
    }

    /// Writes `owed` to the spool, if there is one.
    async fn keep(&self, owed: &Arc<Owed>) {
        let Some(spool) = self.spool.clone() else { return };
        if owed.is_spooling.swap(true, Ordering::SeqCst) {
            // Its disk hangs.
            return;
        }
        let kept = owed.clone();
        let keeping = timeout(SPOOLED_WITHIN, blocking(move || keep_marked(&spool, &kept)));
        let late = || Err(io::Error::new(io::ErrorKind::TimedOut, "the disk does not answer"));
        match keeping.await.unwrap_or_else(|_| late()) {
            Ok(()) => {
                if let Some(failures) = self.spool_failures.worked() {
                    tracing::info!(failures, "writes can be spooled again");
                }
            }
            Err(error) => {
                if let Some(unlogged) = self.spool_failures.failed() {
                    tracing::error!(%error, unlogged, "a write could not be spooled; it is tried again");
                }
            }
        }
    }

    async fn unspool(&self, owed: &Owed) {
        let (id, attempt_id) = (owed.id, owed.attempt_id);
        if let Some(spool) = self.spool.clone().filter(|_| owed.is_spooled())
            && let Err(error) = blocking(move || spool.remove(&id, attempt_id)).await
        {
            tracing::warn!(%error, "a write that was made stays in the spool");
        }
    }
}

impl Releaser for Landing {
    fn give_back(&self, lease: Lease, sent: Sent) {
        match sent {
            Sent::Once => self.add(Owed::unused(lease)),
            Sent::Repeatedly => self.cancel(lease.id, lease.attempt_id),
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        // Whoever waits for more is to find that there is nobody to add any.
        self.queue.added.notify_one();
    }
}

/// Writes `owed` to the spool, and notes that it is there. Blocks, also for those who no longer
/// wait for it.
fn keep_marked(spool: &Spool, owed: &Owed) -> io::Result<()> {
    let kept = keep(spool, owed);
    if kept.is_ok() {
        owed.is_spooled.store(true, Ordering::SeqCst);
    }
    owed.is_spooling.store(false, Ordering::SeqCst);
    match kept {
        Ok(()) if owed.is_over() => spool.remove(&owed.id, owed.attempt_id),
        kept => kept,
    }
}

/// Writes `owed` to the spool. Blocks.
fn keep(spool: &Spool, owed: &Owed) -> io::Result<()> {
    match &owed.write {
        Write::Complete { lease, answer } => {
            let place = answer.lock().clone();
            match place {
                Place::Memory { answer, .. } => spool.keep(lease, &answer),
                Place::Spool(_) => Ok(()),
            }
        }
        Write::Release { lease, release, .. } => spool.keep_release(lease, *release),
        Write::Cancel { .. } => spool.keep_cancellation(&owed.id, owed.attempt_id),
    }
}

/// Tells a file that is gone, or is not as it was written, from one that cannot be read now.
fn is_lost(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData)
}

#[cfg(test)]
mod tests;
