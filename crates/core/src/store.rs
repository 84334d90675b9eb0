//! The traits of a store: [`Store`] on the hot path, [`Sweep`] to clean, [`Inspect`] to look and
//! resolve, [`Facts`] for what an installation agrees on.
//!
//! Each call is atomic by itself: one lock, one transaction, one script. There are no default
//! bodies, because a correctness method that a store forgot must not compile; the exceptions,
//! [`Store::answered`], [`Store::renew_all`] and [`Store::bell`], only save time.

use std::any::Any;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Answer, AttemptId, Bell, Birth, Checkpoint, Erased, Fence, Fenced, Fingerprint, Keepsake,
    Label, Lease, Record, RecordId, Recorded, Recover, Release, Resolution, Resolved, StateName,
    StoreError, TenantTag, Timestamp,
};

/// A wish to run.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The record to claim.
    pub id: RecordId,
    /// The request that wishes to run.
    pub fingerprint: Fingerprint,
    /// Random, the same when the same wish is asked again.
    pub attempt_id: AttemptId,
    /// How long the claim lives without renewal.
    pub lease: Duration,
    /// How long a key lives from its first use.
    pub retention: Duration,
    /// How long after that a completed key is still refused as used; zero if it is new at once.
    pub remember: Duration,
    /// What a run that ends without an outcome leads to.
    pub recover: Recover,
    /// What people see.
    pub label: Label,
    /// What is kept of the request if this is the key's first claim.
    pub keepsake: Option<Box<Keepsake>>,
}

/// What a claim came to. Boxed is what is large: it goes through many hands.
#[derive(Debug, Clone, PartialEq)]
pub enum Claimed {
    /// The caller runs, and nobody else.
    Run(Box<Grant>),
    /// The work is done: this is its answer.
    Replay(Box<Replay>),
    /// Somebody runs.
    Busy {
        /// How long that claim lives unless renewed.
        lease_left: Duration,
    },
    /// The key stands for another request.
    Reused,
    /// Whether the work was done is unknown; a person decides.
    Held {
        /// Whether this very claim found the lease over.
        newly: bool,
    },
    /// The key was used, and its answer is gone.
    Expired,
}

/// An answer that was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The answer.
    pub answer: Answer,
    /// When its key expires.
    pub expires_at: Timestamp,
}

/// The right to run, with where to go on.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// What every write from now on shows.
    pub lease: Lease,
    /// Which run this is, counted from 1.
    pub attempt: u32,
    /// What this run has in common with all others of the same work.
    pub birth: Birth,
    /// Where an earlier run stopped.
    pub checkpoint: Option<Checkpoint>,
    /// Whether a claim before this one died without an outcome.
    pub took_over: bool,
    /// When the key expires; the outcome can only make that later.
    pub expires_at: Timestamp,
}

/// The hot path.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The word for this kind of store in metrics, such as `memory` or `file`.
    fn name(&self) -> &'static str;

    /// Asks to run. Exactly one of many rivals gets [`Claimed::Run`]; the fingerprint is
    /// compared in the same step. Asking again with the same attempt id finds one's own claim.
    /// A replay locks and writes nothing.
    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError>;

    /// The answer that [`Store::claim`] would come to, where it is at hand. A store that has to
    /// look elsewhere says nothing, and is asked.
    fn answered(&self, _ask: &Ask) -> Option<Replay> {
        None
    }

    /// Makes the lease live on from now.
    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError>;

    /// Renews many leases, and returns what came of each, in their order. As [`Store::renew`] for
    /// each of them at the same time, unless the store has a cheaper way.
    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Fenced, StoreError>> {
        let mut calls: Vec<_> = leases.iter().map(|lease| (self.renew(lease), None)).collect();
        poll_fn(|cx| {
            let mut is_pending = false;
            for (call, outcome) in calls.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
                match call.as_mut().poll(cx) {
                    Poll::Ready(renewed) => *outcome = Some(renewed),
                    Poll::Pending => is_pending = true,
                }
            }
            if is_pending { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        calls.into_iter().map(|(_, outcome)| outcome.expect("each call was answered")).collect()
    }

    /// Saves where a later attempt goes on.
    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError>;

    /// Records the answer. Durable when this returns.
    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError>;

    /// Ends the claim without an answer to keep.
    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError>;

    /// Ends a claim whose work never began, as [`Release::NeverRan`] does, by its attempt id alone: whoever
    /// asked may not have heard which fence it got. See [`Record::cancel`].
    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError>;

    /// Reads an unexpired record, as [`Record::seen_at`] shows it. Never used to decide that a
    /// key is free.
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError>;

    /// What carries wake-ups between the nodes that share this store; nothing where there is one
    /// node. Nothing depends on it, so a store may leave it out.
    fn bell(&self) -> Option<Arc<dyn Bell>> {
        None
    }
}

/// Cleaning, in the background.
#[async_trait]
pub trait Sweep: Send + Sync + 'static {
    /// Takes away what expired, buries what is only remembered and holds what died, looking at
    /// no more than `most` records. Called again, it goes on where it stopped. Never touches a
    /// live or held record.
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError>;
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Swept {
    /// How many expired records are gone.
    pub removed: usize,
    /// How many completed records became tombstones.
    pub buried: usize,
    /// The dead claims that became held, without the requests they keep.
    pub held: Vec<Record>,
    /// Whether the sweep came to the end of the store, and begins anew next time.
    pub finished: bool,
}

/// Looking and resolving, for people.
#[async_trait]
pub trait Inspect: Send + Sync + 'static {
    /// Unexpired records that match, as [`Record::seen_at`] shows them, no more than `most`; without
    /// the requests they keep, which [`Store::get`] shows. Where many are large, a store may also
    /// leave out answers' headers and bodies and the data of checkpoints.
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError>;

    /// Decides about a held record as it was seen at `fence`.
    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError>;

    /// Takes away what these records keep, see [`Record::erase`], and tells what came of each, in their
    /// order. When this returns nothing of it is left in this store, nor where it is kept near.
    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError>;

    /// How many records there are in each state.
    async fn count(&self) -> Result<Count, StoreError>;

    /// The time by the clock that decides here.
    async fn now(&self) -> Result<Timestamp, StoreError>;
}

/// What a person looks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Find {
    /// Records of this key, of whichever tenant.
    Key(String),
    /// Records whose id, in hexadecimal, begins so.
    IdPrefix(String),
    /// Records that wait for a person.
    Held,
    /// Records with [`Record::is_abandoned`], in the order of their ids.
    Abandoned {
        /// The id behind which they are looked for.
        after: Option<RecordId>,
    },
    /// Records that a filter lets through, in the order of their ids.
    Matching {
        /// Which records are meant.
        filter: Filter,
        /// Those with greater ids than this one's, to go on behind it.
        after: Option<RecordId>,
    },
}

impl Find {
    /// Records of one tenant, in the order of their ids.
    pub fn tenant(whose: Whose, after: Option<RecordId>) -> Self {
        Self::Matching { filter: Filter { tenant: Some(whose), ..Filter::default() }, after }
    }
}

/// Conditions on records. All that are set must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// The tenant.
    pub tenant: Option<Whose>,
    /// The state, as [`Record::state_name`] tells it.
    pub state: Option<StateName>,
    /// The route, as the configuration names it.
    pub route: Option<String>,
    /// The earliest first use.
    pub since: Option<Timestamp>,
}

impl Filter {
    /// Lets a record through, or not.
    pub fn lets_through<A>(&self, record: &Record<A>, now: Timestamp) -> bool {
        self.tenant.as_ref().is_none_or(|whose| whose.is_of(&record.label))
            && self.state.is_none_or(|state| record.state_name(now) == state)
            && self.route.as_deref().is_none_or(|route| *record.label.route == *route)
            && self.since.is_none_or(|since| record.created_at >= since)
    }
}

/// Which tenant is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// The one with this tag.
    Tag(TenantTag),
    /// Those that people know by this name.
    Name(String),
}

impl Whose {
    /// Whether a record with this label is theirs.
    pub fn is_of(&self, label: &Label) -> bool {
        match self {
            Self::Tag(tag) => label.tenant == *tag,
            Self::Name(name) => label.tenant_name.as_deref() == Some(name),
        }
    }
}

/// How many records there are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Somebody runs.
    pub claimed: u64,
    /// The answer is kept.
    pub completed: u64,
    /// May run again.
    pub failed: u64,
    /// Waits for a person.
    pub held: u64,
    /// Used, and its answer gone.
    pub tombstone: u64,
}

/// Small values that all nodes of an installation share, such as its secret.
#[async_trait]
pub trait Facts: Send + Sync + 'static {
    /// The value under `name`; `value` is put there first if there is none.
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError>;

    /// Puts `value` under `name`, whatever was there.
    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError>;
}

/// A store with all its sides. It can be asked of which type it is, because some stores can do more.
pub trait FullStore: Any + Store + Sweep + Inspect + Facts {}

impl<S: Store + Sweep + Inspect + Facts> FullStore for S {}
