//! Answers that the store could not take: kept, and tried for as long as the process lives.
//!
//! The work is done and its client has the answer, so the key must not be freed: a claim that comes
//! while an answer waits has it landed first. The fence makes a late write safe.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use selfsame_core::{Answer, Lease, RecordId, Recorded, Store, StoreError};

use crate::background::{self, Backoff};
use crate::seal::Seal;
use crate::spool::Spool;
use crate::telemetry;

/// How many bytes of answers may wait in memory.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// What an answer costs besides its body.
const HEAD_BYTES: usize = 1024;

pub(crate) struct Landing {
    store: Arc<dyn Store>,
    spool: Option<Spool>,
    seal: Seal,
    /// How many bytes wait; none only if no answer does.
    bytes: AtomicUsize,
    waiting: Mutex<HashMap<RecordId, Waiting>>,
}

/// An answer that waits for the store.
#[derive(Clone)]
struct Waiting {
    lease: Lease,
    answer: Arc<Answer>,
}

impl Landing {
    pub(crate) fn new(store: Arc<dyn Store>, spool: Option<Spool>, seal: Seal) -> Self {
        Self { store, spool, seal, bytes: AtomicUsize::new(0), waiting: Mutex::default() }
    }

    /// Takes an answer the store refused. When this returns it is spooled, where there is a
    /// spool, and will be tried again and again.
    pub(crate) async fn take(self: &Arc<Self>, lease: Lease, answer: Answer) {
        // A spool is a file as well. What a later process cannot open it can still record.
        let answer = self.seal.closed_answer(&lease.id, &answer).into_owned();
        let size = HEAD_BYTES + answer.body.kept_bytes();
        if self.bytes.fetch_add(size, Ordering::SeqCst) + size > BYTES_MAX {
            self.bytes.fetch_sub(size, Ordering::SeqCst);
            tracing::error!(record = lease.id.short(), "too many answers wait for the store");
            return self.spool_away(lease, &answer).await;
        }
        let answer = Arc::new(answer);
        // Known before it is spooled, which takes a while: a claim may come at any moment.
        self.begin(Waiting { lease, answer: answer.clone() });
        self.spool_away(lease, &answer).await;
        let landing = self.clone();
        background::spawn(async move {
            let mut pause = Backoff::new();
            while let Err(error) = landing.land(lease, &answer).await {
                tracing::warn!(%error, record = lease.id.short(), "an answer waits for the store");
                if error.is_damaged() {
                    break;
                }
                pause.wait().await;
            }
            landing.end(&lease);
            landing.bytes.fetch_sub(size, Ordering::SeqCst);
        });
    }

    /// Whether any answer waits. Every claim asks, and a lock would make the cores take turns.
    pub(crate) fn is_any_waiting(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) > 0
    }

    /// Lands the answer that waits for this record, if there is one: its client has seen it, so
    /// nobody may run that work again.
    pub(crate) async fn land_first(&self, id: &RecordId) -> Result<(), StoreError> {
        let waiting = self.waiting.lock().get(id).cloned();
        match waiting {
            Some(Waiting { lease, answer }) => self.land(lease, &answer).await,
            None => Ok(()),
        }
    }

    /// Lands what an earlier process left in the spool; what does not land is tried on.
    pub(crate) async fn land_spooled(self: &Arc<Self>) {
        let Some(spool) = self.spool.clone() else { return };
        let waiting = match blocking(move || spool.waiting()).await {
            Ok(waiting) => waiting,
            Err(error) => return tracing::error!(%error, "the spool cannot be read"),
        };
        for (lease, answer) in waiting {
            match self.land(lease, &answer).await {
                Ok(()) => tracing::info!(record = lease.id.short(), "a spooled answer has landed"),
                Err(_) => self.take(lease, answer).await,
            }
        }
    }

    fn begin(&self, answer: Waiting) {
        let mut waiting = self.waiting.lock();
        waiting.insert(answer.lease.id, answer);
        telemetry::unlanded_answers(waiting.len());
    }

    fn end(&self, lease: &Lease) {
        let mut waiting = self.waiting.lock();
        // A later run of the same record may have come to wait here too.
        if waiting.get(&lease.id).is_some_and(|answer| answer.lease == *lease) {
            waiting.remove(&lease.id);
        }
        telemetry::unlanded_answers(waiting.len());
    }

    async fn land(&self, lease: Lease, answer: &Answer) -> Result<(), StoreError> {
        if self.store.complete(&lease, answer).await? == Recorded::Lost {
            telemetry::fenced_write();
            tracing::warn!(record = lease.id.short(), "a late answer was fenced off");
        }
        if let Some(spool) = self.spool.clone()
            && let Err(error) = blocking(move || spool.remove(&lease)).await
        {
            tracing::warn!(%error, "a landed answer stays in the spool");
        }
        Ok(())
    }

    async fn spool_away(&self, lease: Lease, answer: &Answer) {
        let Some(spool) = self.spool.clone() else { return };
        let answer = answer.clone();
        if let Err(error) = blocking(move || spool.keep(&lease, &answer)).await {
            tracing::error!(%error, record = lease.id.short(), "an answer could not be spooled");
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}
