//! [`Record`] and its states: what is known of a key, and how each write changes it.
//!
//! What becomes of it by itself, as time goes on, is in `ageing`. All of this is pure. A store that
//! can read, change and write a record in one atomic step uses it as it is; a store with a language
//! of its own says the same in that language, and the conformance suite compares.

mod ageing;
mod erasing;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use ageing::{Due, StateName};
pub use erasing::Erased;

use crate::{
    Answer, Ask, AttemptId, Birth, Checkpoint, Fence, Fenced, Fingerprint, Keepsake, Kept, Key,
    Lease, Note, RecordId, Recorded, TenantTag, Timestamp,
};

/// An outcome is kept at least this long, or for the retention where that is shorter.
const KEPT_AFTER_OUTCOME: Duration = Duration::from_secs(60 * 60);

/// What is known of a key; its answer as a store keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record<A = Answer> {
    /// Its identity.
    pub id: RecordId,
    /// The request it stands for.
    pub fingerprint: Fingerprint,
    /// Where its work stands.
    pub state: State<A>,
    /// The fence of the last claim.
    pub fence: Fence,
    /// How many runs may have been sent.
    pub attempt: u32,
    /// The attempt id of the last claim.
    pub attempt_id: AttemptId,
    /// What all attempts have in common.
    pub birth: Birth,
    /// What a run that ended without an outcome leads to.
    pub recover: Recover,
    /// The last recovery point.
    pub checkpoint: Option<Checkpoint>,
    /// When the key was first used.
    pub created_at: Timestamp,
    /// When the key may be new again; no live lease, no hold and no tombstone ends by it.
    pub expires_at: Timestamp,
    /// How long a key lives from its first use.
    pub retention: Duration,
    /// How long after its expiry a completed key is a tombstone.
    pub remember: Duration,
    /// What people see.
    pub label: Label,
    /// What is kept of the request that claimed it first.
    pub keepsake: Option<Box<Keepsake>>,
}

/// Where a record's work stands.
#[derive(Debug, Clone, PartialEq)]
pub enum State<A = Answer> {
    /// Somebody runs, or ran and was not heard of again.
    Claimed {
        /// When the claim is dead unless renewed.
        lease_until: Timestamp,
    },
    /// The work is done; this is its answer.
    Completed {
        /// When it was recorded.
        at: Timestamp,
        /// What every retry gets.
        answer: A,
    },
    /// The last run ended in a way that allows another.
    Failed,
    /// Whether the work was done is unknown; a person decides.
    Held {
        /// Since when.
        since: Timestamp,
    },
    /// The key was used, its answer is gone, and it must not run again.
    Tombstone,
}

/// What a run that ended without an outcome leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recover {
    /// The next retry runs again, from the last recovery point.
    Resume,
    /// Nothing runs again until a person resolves the key.
    Hold,
    /// Resume where a recovery point was saved under this key, else hold.
    Auto,
}

/// Who and what a record is about, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The tenant's tag.
    pub tenant: TenantTag,
    /// The tenant's name, where it is not a credential.
    pub tenant_name: Option<Box<str>>,
    /// The key as the client sent it.
    pub key: Key,
    /// The route that took it.
    pub route: Arc<str>,
}

impl Label {
    /// What stands behind the route of a record that was only observed.
    const OBSERVED: &str = " (observed)";

    /// The same for a record that is only observed.
    #[must_use]
    pub fn observed(self) -> Self {
        Self { route: format!("{}{}", self.route, Self::OBSERVED).into(), ..self }
    }

    /// Whether the record is only observed: no request is answered from it.
    pub fn is_observed(&self) -> bool {
        self.route.ends_with(Self::OBSERVED)
    }
}

/// How a claim ends that has no answer to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Release {
    /// The work provably never began: the attempt does not count.
    NeverRan,
    /// The work ended in a way that allows another run.
    Retry,
    /// As `Retry`, and if this was the first attempt no record stays at all.
    Forget,
    /// The work is over and nobody knows how far it came.
    Crashed,
    /// Nothing was heard of the work, which may still be going on: where it may run again, it
    /// does so only after the lease.
    Unheard,
    /// As `Retry`, but nobody is there to ask for another run: where there may be one, the key
    /// stays abandoned, else a person decides.
    Postponed,
    /// As `Postponed`, and the work provably never began: the attempt does not count.
    PostponedUnrun,
    /// A person decides, whatever `recover` says.
    Hold,
}

impl Release {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::NeverRan,
        Self::Retry,
        Self::Forget,
        Self::Crashed,
        Self::Unheard,
        Self::Postponed,
        Self::PostponedUnrun,
        Self::Hold,
    ];
}

/// A decision about a held key.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// The decision.
    pub verdict: Verdict,
    /// Author and reason.
    pub note: Option<Box<Note>>,
}

/// Decision about a held key.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one of these at a time")]
pub enum Verdict {
    /// The work was not done: the next retry runs.
    Free,
    /// The work was done: this is its answer.
    Complete(Answer),
}

impl Resolution {
    /// The work was not done: the next retry runs.
    pub fn free() -> Self {
        Self { verdict: Verdict::Free, note: None }
    }

    /// The work was done: this is its answer.
    pub fn complete(answer: Answer) -> Self {
        Self { verdict: Verdict::Complete(answer), note: None }
    }

    /// Adds author and reason.
    #[must_use]
    pub fn noted(self, note: Note) -> Self {
        Self { note: Some(Box::new(note)), ..self }
    }
}

/// What came of a [`Resolution`].
#[must_use = "only a held key can be resolved"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// It is so now.
    Done,
    /// The record is not held, or no longer as it was seen; nothing was changed.
    NotHeld,
    /// There is no such record.
    Missing,
}

impl<A> Record<A> {
    /// The record of a key's first claim.
    pub fn first(ask: &Ask, now: Timestamp) -> Self {
        Self {
            id: ask.id,
            fingerprint: ask.fingerprint,
            state: State::Claimed { lease_until: now + ask.lease },
            fence: Fence::FIRST,
            attempt: 1,
            attempt_id: ask.attempt_id,
            birth: Birth::by(ask.attempt_id),
            recover: ask.recover,
            checkpoint: None,
            created_at: now,
            expires_at: now + ask.retention,
            retention: ask.retention,
            remember: ask.remember,
            label: ask.label.clone(),
            keepsake: ask.keepsake.clone(),
        }
    }

    /// The record after another claim of it: the fence grows, the recovery point stays.
    #[must_use]
    pub fn claimed_again(&self, ask: &Ask, now: Timestamp) -> Self
    where
        A: Clone,
    {
        Self {
            state: State::Claimed { lease_until: now + ask.lease },
            fence: self.fence.next(),
            attempt: self.attempt.saturating_add(1),
            attempt_id: ask.attempt_id,
            recover: ask.recover,
            ..self.clone()
        }
    }

    /// The same with its answer as every reader knows it.
    pub fn restored(&self) -> Record
    where
        A: Kept,
    {
        Record {
            id: self.id,
            fingerprint: self.fingerprint,
            state: match &self.state {
                State::Claimed { lease_until } => State::Claimed { lease_until: *lease_until },
                State::Completed { at, answer } => {
                    State::Completed { at: *at, answer: answer.restored() }
                }
                State::Failed => State::Failed,
                State::Held { since } => State::Held { since: *since },
                State::Tombstone => State::Tombstone,
            },
            fence: self.fence,
            attempt: self.attempt,
            attempt_id: self.attempt_id,
            birth: self.birth,
            recover: self.recover,
            checkpoint: self.checkpoint.clone(),
            created_at: self.created_at,
            expires_at: self.expires_at,
            retention: self.retention,
            remember: self.remember,
            label: self.label.clone(),
            keepsake: self.keepsake.clone(),
        }
    }

    /// The request that it keeps for who runs it again without its client.
    pub fn kept_request(&self) -> Option<&Bytes> {
        self.keepsake.as_ref()?.request.as_ref()
    }

    /// The same without that request: it is large, and for nobody who looks at many records.
    #[must_use]
    pub fn without_request(mut self) -> Self {
        self.keepsake = self.keepsake.and_then(Keepsake::without_request);
        self
    }

    /// Whether `lease` is the record's last claim.
    pub fn is_claimed_by(&self, lease: &Lease) -> bool {
        self.fence == lease.fence && self.attempt_id == lease.attempt_id
    }

    /// The lease lives on from now.
    pub fn renew(&mut self, lease: &Lease, now: Timestamp) -> Fenced {
        self.change(lease, |record| {
            record.state = State::Claimed { lease_until: now + lease.length };
        })
    }

    /// A phase is finished.
    pub fn checkpoint(&mut self, lease: &Lease, checkpoint: Checkpoint) -> Fenced {
        self.change(lease, |record| record.checkpoint = Some(checkpoint))
    }

    /// The work is done. Saying so twice changes nothing and is no error: the first
    /// acknowledgement may have been lost.
    pub fn complete(&mut self, lease: &Lease, answer: A, now: Timestamp) -> Recorded {
        let is_completed = matches!(self.state, State::Completed { .. });
        if self.is_claimed_by(lease) && is_completed && !self.is_tombstone(now) {
            return Recorded::Until(self.expires_at);
        }
        match self.change(lease, |record| record.finish(answer, now)) {
            Fenced::Applied => Recorded::Until(self.expires_at),
            Fenced::Lost => Recorded::Lost,
        }
    }

    /// The claim ends without an answer to keep.
    pub fn release(&mut self, lease: &Lease, release: Release, now: Timestamp) -> Fenced {
        self.change(lease, |record| match release {
            Release::NeverRan => record.unrun(),
            Release::Retry | Release::Forget => record.state = State::Failed,
            Release::Crashed if record.is_resumable() => record.state = State::Failed,
            Release::Unheard if record.is_resumable() => {}
            Release::Postponed if record.is_resumable() => record.abandon(now),
            Release::PostponedUnrun if record.is_resumable() => {
                record.attempt = record.attempt.saturating_sub(1);
                record.abandon(now);
            }
            Release::Crashed
            | Release::Unheard
            | Release::Postponed
            | Release::PostponedUnrun
            | Release::Hold => {
                // The owner has said its last word: a renewal of its own that is still under way
                // must not make the key busy again.
                record.fence = record.fence.next();
                record.state = State::Held { since: now };
            }
        })
    }

    /// The claim of this attempt ends, whose work provably never began; also where the record became held
    /// because the claim's lease ran out. A later claim, and what a person decided, stay as they are: the
    /// one has an attempt id of its own, the other leaves neither a claim nor a hold.
    pub fn cancel(&mut self, attempt_id: AttemptId) -> Fenced {
        let is_open = matches!(self.state, State::Claimed { .. } | State::Held { .. });
        if !is_open || self.attempt_id != attempt_id {
            return Fenced::Lost;
        }
        self.unrun();
        Fenced::Applied
    }

    /// Whether a `release` by `lease` takes the record away instead of changing it.
    pub fn is_forgotten_by(&self, lease: &Lease, release: Release) -> bool {
        let first = self.attempt == 1 && self.checkpoint.is_none();
        release == Release::Forget && first && self.is_owned_by(lease)
    }

    /// A person's decision about a held key, as seen at `fence`. The fence grows, so whoever
    /// ran before can change nothing any more.
    pub fn resolve(&mut self, fence: Fence, resolution: Resolution, now: Timestamp) -> Resolved
    where
        A: From<Answer>,
    {
        if self.fence != fence || !self.is_held(now) {
            return Resolved::NotHeld;
        }
        self.fence = self.fence.next();
        if let Some(note) = resolution.note {
            let note = Box::new(Note { at: now, ..*note });
            self.keepsake.get_or_insert_default().note = Some(note);
        }
        match resolution.verdict {
            Verdict::Free => {
                self.state = State::Failed;
                self.keep_after_outcome(now);
            }
            Verdict::Complete(answer) => self.finish(answer.into(), now),
        }
        Resolved::Done
    }

    /// Its own claim may still speak while claimed, and while held: a late answer is the truth.
    fn is_owned_by(&self, lease: &Lease) -> bool {
        let open = matches!(self.state, State::Claimed { .. } | State::Held { .. });
        open && self.is_claimed_by(lease)
    }

    fn change(&mut self, lease: &Lease, change: impl FnOnce(&mut Self)) -> Fenced {
        if !self.is_owned_by(lease) {
            return Fenced::Lost;
        }
        change(self);
        Fenced::Applied
    }

    /// The key is free, and the attempt does not count.
    fn unrun(&mut self) {
        self.attempt = self.attempt.saturating_sub(1);
        self.state = State::Failed;
    }

    /// The owner has said its last word, and its claim is over at once.
    fn abandon(&mut self, now: Timestamp) {
        self.fence = self.fence.next();
        self.state = State::Claimed { lease_until: now };
    }

    fn finish(&mut self, answer: A, now: Timestamp) {
        self.state = State::Completed { at: now, answer };
        self.keepsake = self.keepsake.take().and_then(Keepsake::without_request);
        self.keep_after_outcome(now);
    }

    fn keep_after_outcome(&mut self, now: Timestamp) {
        let kept_until = now + self.retention.min(KEPT_AFTER_OUTCOME);
        self.expires_at = self.expires_at.max(kept_until);
    }
}

#[cfg(test)]
mod tests;
