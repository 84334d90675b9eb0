//! [`AuditedStore`]: a store whose changes are noted in the audit log.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use selfsame::stores::{AuditEntry, SystemClock};
use selfsame_core::{
    Answer, Ask, AttemptId, Bell, Checkpoint, Claimed, Clock, Count, Erased, Facts, Fence, Fenced,
    Find, FullStore, Inspect, Label, Lease, Record, RecordId, Recorded, Release, Replay,
    Resolution, Resolved, State, Store, StoreError, Sweep, Swept, TenantTag, Timestamp, Verdict,
};

use super::Audit;

/// How many claims are known by more than their lease, until their runs end.
const RUNNING_MAX: usize = 64 * 1024;

/// Notes claims and what became of them. What was only observed is not noted.
pub(crate) struct AuditedStore {
    inner: Arc<dyn FullStore>,
    audit: Audit,
    clock: SystemClock,
    running: Mutex<HashMap<AttemptId, Whom>>,
}

/// Whom an event is about, as far as that is known.
#[derive(Clone, Default)]
struct Whom {
    tenant: Option<TenantTag>,
    route: Option<Box<str>>,
    key: Option<Box<str>>,
    attempt: Option<u32>,
    is_observed: bool,
}

impl Whom {
    fn of(label: &Label, attempt: u32) -> Self {
        Self {
            tenant: Some(label.tenant),
            route: Some((*label.route).into()),
            key: Some(label.key.as_str().into()),
            attempt: Some(attempt),
            is_observed: label.is_observed(),
        }
    }
}

impl AuditedStore {
    pub(crate) fn new(inner: Arc<dyn FullStore>, audit: Audit) -> Self {
        Self { inner, audit, clock: SystemClock::new(), running: Mutex::default() }
    }

    /// Notes an event, with what else is to be told of it.
    fn note(
        &self,
        event: &'static str,
        record: &RecordId,
        whom: Whom,
        told: impl FnOnce(&mut AuditEntry),
    ) {
        if whom.is_observed {
            return;
        }
        let mut entry = AuditEntry {
            entry: AttemptId::random(),
            at: self.clock.now(),
            event,
            record: *record,
            tenant: whom.tenant,
            route: whom.route,
            key: whom.key.filter(|_| self.audit.shows_keys()),
            attempt: whom.attempt,
            fence: None,
            status: None,
            by: None,
            reason: None,
        };
        told(&mut entry);
        self.audit.note(entry);
    }

    fn began(&self, lease: &Lease, whom: Whom) {
        let mut running = self.running.lock();
        if running.len() < RUNNING_MAX {
            running.insert(lease.attempt_id, whom);
        }
    }

    /// Whose run has ended; of one that an earlier process began, only the record is known.
    fn ended(&self, lease: &Lease) -> Whom {
        self.running.lock().remove(&lease.attempt_id).unwrap_or_default()
    }

    /// Whom a record is about, before something is done to it.
    async fn whom(&self, id: &RecordId) -> Whom {
        let found = self.inner.get(id).await.ok().flatten();
        found.map(|record| Whom::of(&record.label, record.attempt)).unwrap_or_default()
    }

    /// What a claim that has no answer has come to.
    async fn released_as(&self, lease: &Lease, release: Release) -> &'static str {
        let unless_held = match release {
            Release::NeverRan | Release::Retry | Release::Forget => return "freed",
            Release::Hold => return "held",
            Release::Crashed | Release::Unheard => "interrupted",
            Release::Postponed | Release::PostponedUnrun => "postponed",
        };
        let record = self.inner.get(&lease.id).await.ok().flatten();
        match record.map(|record| record.state) {
            Some(State::Held { .. }) => "held",
            _ => unless_held,
        }
    }
}

#[async_trait]
impl Store for AuditedStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        let claimed = self.inner.claim(ask).await?;
        match &claimed {
            Claimed::Run(grant) => {
                let whom = Whom::of(&ask.label, grant.attempt);
                self.began(&grant.lease, whom.clone());
                let fence = Some(grant.lease.fence.number());
                self.note("claimed", &ask.id, whom, |entry| entry.fence = fence);
            }
            Claimed::Held { newly: true } => {
                let whom = Whom { attempt: None, ..Whom::of(&ask.label, 0) };
                self.note("held", &ask.id, whom, |_| {});
            }
            _ => {}
        }
        Ok(claimed)
    }

    fn answered(&self, ask: &Ask) -> Option<Replay> {
        self.inner.answered(ask)
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
        let recorded = self.inner.complete(lease, answer).await?;
        let event = match recorded {
            Recorded::Until(_) => "completed",
            Recorded::Lost => "fenced",
        };
        let status = Some(answer.status.as_u16());
        let fence = Some(lease.fence.number());
        self.note(event, &lease.id, self.ended(lease), |entry| {
            (entry.fence, entry.status) = (fence, status);
        });
        Ok(recorded)
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        let released = self.inner.release(lease, release).await?;
        let event = match released {
            Fenced::Applied => self.released_as(lease, release).await,
            Fenced::Lost => "fenced",
        };
        let fence = Some(lease.fence.number());
        self.note(event, &lease.id, self.ended(lease), |entry| entry.fence = fence);
        Ok(released)
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        let cancelled = self.inner.cancel(id, attempt_id).await?;
        // Of a claim that was not heard of nothing was noted, and nothing of the record is known here.
        let begun = self.running.lock().remove(&attempt_id);
        if let (Fenced::Applied, Some(whom)) = (cancelled, begun) {
            self.note("freed", id, whom, |_| {});
        }
        Ok(cancelled)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.inner.get(id).await
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        self.inner.bell()
    }
}

#[async_trait]
impl Sweep for AuditedStore {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        let swept = self.inner.sweep(most).await?;
        for record in &swept.held {
            let whom = Whom::of(&record.label, record.attempt);
            self.note("held", &record.id, whom, |entry| entry.fence = Some(record.fence.number()));
        }
        Ok(swept)
    }
}

#[async_trait]
impl Inspect for AuditedStore {
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        self.inner.find(find, most).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        let whom = self.whom(id).await;
        let resolved = self.inner.resolve(id, fence, resolution).await?;
        if resolved == Resolved::Done {
            let (event, status) = match &resolution.verdict {
                Verdict::Free => ("resolved-free", None),
                Verdict::Complete(answer) => ("resolved-complete", Some(answer.status.as_u16())),
            };
            self.note(event, id, whom, |entry| {
                (entry.fence, entry.status) = (Some(fence.number()), status);
                entry.by = resolution.note.as_ref().map(|note| note.by.clone());
                entry.reason = resolution.note.as_ref().and_then(|note| note.reason.clone());
            });
        }
        Ok(resolved)
    }

    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError> {
        let mut whom = Vec::with_capacity(ids.len());
        for id in ids {
            whom.push(self.whom(id).await);
        }
        let outcomes = self.inner.erase(ids).await?;
        for ((id, whom), erased) in ids.iter().zip(whom).zip(&outcomes) {
            if *erased == Erased::Done {
                self.note("erased", id, whom, |_| {});
            }
        }
        Ok(outcomes)
    }

    async fn count(&self) -> Result<Count, StoreError> {
        self.inner.count().await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }
}

#[async_trait]
impl Facts for AuditedStore {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.inner.fact_or(name, value).await
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.inner.set_fact(name, value).await
    }
}
