//! [`Admin`]: looking records up, and deciding about those that are held, for people.
//!
//! With the feature `admin` there is also `AdminService`, the same over HTTP.

#[cfg(feature = "admin")]
mod query;
#[cfg(feature = "admin")]
mod requests;
#[cfg(feature = "admin")]
mod service;
#[cfg(feature = "admin")]
mod view;

use std::sync::Arc;

use selfsame_core::FullStore;
pub use selfsame_core::{
    Count, Erased, Fence, Filter, Find, Note, Record, RecordId, Resolution, Resolved, StateName,
    TenantTag, Timestamp, Verdict, Whose,
};

use crate::{Idempotency, StoreError};

#[cfg(feature = "admin")]
pub use requests::{CompleteRequest, EraseRequest, FreeRequest, TenantErased, TenantRequest};
#[cfg(feature = "admin")]
pub use service::AdminService;
#[cfg(feature = "admin")]
pub use view::{RecordView, date};

/// The most records that one step of a tenant's erasure takes.
const ERASED_AT_ONCE: usize = 200;

/// Records as an operator sees and resolves them. Cheap to clone.
///
/// ```
/// # use std::sync::Arc;
/// # use selfsame::{Idempotency, stores::MemoryStore};
/// use selfsame::admin::{Note, Resolution};
///
/// # async fn example(idempotency: Idempotency) -> Result<(), selfsame::StoreError> {
/// let admin = idempotency.admin();
/// for record in admin.held(None, 100).await? {
///     // Somebody looked it up: the work was not done.
///     let free = Resolution::free().noted(Note::new("alice", Some("no such charge")));
///     let _resolved = admin.resolve(&record.id, record.fence, &free).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Admin {
    store: Arc<dyn FullStore>,
}

/// Progress of an erasure of a tenant's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erasure {
    /// Records that are erased.
    pub erased: usize,
    /// Records that run, and were left alone.
    pub running: usize,
    /// Where to go on, unless that was all.
    pub next: Option<RecordId>,
}

impl Idempotency {
    /// The records of this store, for people. Whoever can call it can free and erase keys.
    pub fn admin(&self) -> Admin {
        Admin { store: self.engine().people.clone() }
    }
}

impl Admin {
    /// The record with this id, unless it expired.
    pub async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.store.get(id).await
    }

    /// Unexpired records that match, no more than `most`.
    pub async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        self.store.find(find, most).await
    }

    /// Records that wait for a person, in the order of their ids, behind `after`.
    pub async fn held(
        &self,
        after: Option<RecordId>,
        most: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let filter = Filter { state: Some(StateName::Held), ..Filter::default() };
        self.store.find(&Find::Matching { filter, after }, most).await
    }

    /// Decides about a held record as it was seen at `fence`: one that has moved on is left alone.
    pub async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        let resolved = self.store.resolve(id, fence, resolution).await?;
        if resolved == Resolved::Done {
            let verdict = match resolution.verdict {
                Verdict::Free => "free",
                Verdict::Complete(_) => "complete",
            };
            let (by, reason) = said(resolution.note.as_deref());
            tracing::info!(record = id.short(), verdict, by, reason, "a held key was resolved");
        }
        Ok(resolved)
    }

    /// Takes away what a record keeps; retries are told that the key was used.
    pub async fn erase(&self, id: &RecordId, note: Option<&Note>) -> Result<Erased, StoreError> {
        let erased = self.store.erase(std::slice::from_ref(id)).await?;
        let erased = erased.first().copied().unwrap_or(Erased::Missing);
        if erased == Erased::Done {
            let (by, reason) = said(note);
            crate::telemetry::erased(1);
            tracing::info!(record = id.short(), by, reason, "a record was erased");
        }
        Ok(erased)
    }

    /// Erases some of a tenant's records behind `after`; called again, it goes on where it stopped.
    pub async fn erase_tenant(
        &self,
        whose: Whose,
        after: Option<RecordId>,
        note: Option<&Note>,
    ) -> Result<Erasure, StoreError> {
        let found = self.store.find(&Find::tenant(whose, after), ERASED_AT_ONCE).await?;
        let next = found.last().filter(|_| found.len() == ERASED_AT_ONCE).map(|last| last.id);
        // Tombstones too: what an erasure that was cut off has left is taken away by the next.
        let ids: Vec<RecordId> = found.iter().map(|record| record.id).collect();
        let outcomes = self.store.erase(&ids).await?;
        let count = |outcome| outcomes.iter().filter(|erased| **erased == outcome).count();
        let (erased, running) = (count(Erased::Done), count(Erased::Running));
        crate::telemetry::erased(erased);
        let (by, reason) = said(note);
        tracing::info!(erased, running, by, reason, "records of a tenant were erased");
        Ok(Erasure { erased, running, next })
    }

    /// The number of records in each state. That reads the whole store.
    pub async fn count(&self) -> Result<Count, StoreError> {
        self.store.count().await
    }

    /// The time by the clock that decides.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }
}

fn said(note: Option<&Note>) -> (Option<&str>, Option<&str>) {
    (note.map(|note| &*note.by), note.and_then(|note| note.reason.as_deref()))
}
