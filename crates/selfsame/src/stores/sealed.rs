//! [`SealedStore`]: a store in which answers and checkpoints are kept encrypted.

use std::sync::Arc;

use async_trait::async_trait;
use selfsame_core::{
    Answer, Ask, AttemptId, Bell, Checkpoint, Claimed, Count, Erased, Facts, Fence, Fenced, Find,
    FullStore, Grant, Inspect, Lease, Record, RecordId, Recorded, Release, Replay, Resolution,
    Resolved, Store, StoreError, Sweep, Swept, Timestamp, Verdict,
};

use super::may_have_landed;
use super::shared_bodies::SharedBodies;
use crate::seal::Seal;

/// Any other store, with what its records keep [sealed](Seal) on the way in and opened on the way
/// out. What was recorded without a key is still read; what cannot be opened is an error.
///
/// Status, recovery point, tenant, key, route, method and path stay readable, for people who look for
/// them, and so does who resolved a key and why. So does
/// what phases gave, in the journal of a PostgreSQL store.
#[derive(Clone)]
pub struct SealedStore {
    inner: Arc<dyn FullStore>,
    seal: Seal,
    /// The last to hold answers on their way to clients: they are shared as clients get them.
    bodies: SharedBodies,
}

impl SealedStore {
    /// `store`, sealed by the keys that `seal` has at the time.
    pub fn new(store: Arc<dyn FullStore>, seal: Seal) -> Self {
        Self { inner: store, seal, bodies: SharedBodies::default() }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn inner(&self) -> &dyn FullStore {
        &*self.inner
    }

    pub(crate) fn seal(&self) -> &Seal {
        &self.seal
    }

    fn opened(&self, id: &RecordId, replay: Replay) -> Result<Replay, StoreError> {
        let Replay { answer, expires_at } = replay;
        let answer = self.seal.opened_answer(id, answer)?;
        Ok(Replay { answer: self.bodies.share(id, answer), expires_at })
    }

    /// What a claim comes to, opened. Not boxed, unlike the trait's.
    pub(super) async fn claimed(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        let (lease, error) = match self.inner.claim(ask).await? {
            Claimed::Replay(replay) => {
                return Ok(Claimed::Replay(Box::new(self.opened(&ask.id, *replay)?)));
            }
            Claimed::Run(grant) => match self.granted(grant) {
                Ok(grant) => return Ok(Claimed::Run(grant)),
                Err(closed) => closed,
            },
            other => return Ok(other),
        };
        // Nobody runs: the claim is given back, for the time when the key is there again.
        match self.inner.release(&lease, Release::NeverRan).await {
            Ok(_) => Err(error),
            Err(failed) => Err(may_have_landed(&failed)),
        }
    }

    /// Records the answer, closed. Not boxed, unlike the trait's.
    pub(super) async fn completed(
        &self,
        lease: &Lease,
        answer: &Answer,
    ) -> Result<Recorded, StoreError> {
        self.inner.complete(lease, &self.seal.closed_answer(&lease.id, answer)).await
    }

    /// The grant with its checkpoint opened, or the lease of one that stays closed.
    fn granted(&self, mut grant: Box<Grant>) -> Result<Box<Grant>, (Lease, StoreError)> {
        let Some(checkpoint) = grant.checkpoint.take() else { return Ok(grant) };
        match self.seal.opened_checkpoint(&grant.lease.id, checkpoint) {
            Ok(opened) => {
                grant.checkpoint = Some(opened);
                Ok(grant)
            }
            Err(error) => Err((grant.lease, error)),
        }
    }
}

#[async_trait]
impl Store for SealedStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        self.claimed(ask).await
    }

    fn answered(&self, ask: &Ask) -> Option<Replay> {
        // Why one stays closed is told by the claim.
        self.opened(&ask.id, self.inner.answered(ask)?).ok()
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
        self.inner.checkpoint(lease, &self.seal.closed_checkpoint(&lease.id, checkpoint)).await
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        self.completed(lease, answer).await
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        self.inner.release(lease, release).await
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        self.inner.cancel(id, attempt_id).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let found = self.inner.get(id).await?;
        found.map(|record| self.seal.opened(record)).transpose()
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        self.inner.bell()
    }
}

#[async_trait]
impl Sweep for SealedStore {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        self.inner.sweep(most).await
    }
}

#[async_trait]
impl Inspect for SealedStore {
    /// What cannot be opened is shown as it is kept: whoever looks at many is not stopped by one.
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        let found = self.inner.find(find, most).await?;
        let opened = |record: Record| self.seal.opened(record.clone()).unwrap_or(record);
        Ok(found.into_iter().map(opened).collect())
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        let verdict = match &resolution.verdict {
            Verdict::Complete(answer) => {
                Verdict::Complete(self.seal.closed_answer(id, answer).into_owned())
            }
            Verdict::Free => Verdict::Free,
        };
        let closed = Resolution { verdict, note: resolution.note.clone() };
        self.inner.resolve(id, fence, &closed).await
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
impl Facts for SealedStore {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.inner.fact_or(name, value).await
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.inner.set_fact(name, value).await
    }
}
