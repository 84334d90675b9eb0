//! [`Claim`]: the right to run, as a type that knows whether the work has begun.
//!
//! | dropped as | what happens |
//! |---|---|
//! | [`Claim<Unstarted>`] | the key is given back: nothing ran |
//! | [`Claim<Started>`] | the key is kept: the work may be done; its outcome or the lease's end decides |
//!
//! An answer can only be recorded for work that was begun:
//!
//! ```
//! # use selfsame_core::*;
//! async fn record(claim: Claim<Unstarted>, answer: Answer) -> Result<Recorded, StoreError> {
//!     claim.start().complete(&answer).await
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use selfsame_core::*;
//! async fn record(claim: Claim<Unstarted>, answer: Answer) -> Result<Recorded, StoreError> {
//!     claim.complete(&answer).await
//! }
//! ```

use std::sync::Arc;

use crate::{Answer, Checkpoint, Fenced, Grant, Lease, Recorded, Release, Store, StoreError};

/// Takes back the leases of claims that were dropped before their work began.
pub trait Releaser: Send + Sync + 'static {
    /// Called from `Drop`: must not block, start a task or panic. A lease that cannot be taken
    /// is left to run out.
    fn give_back(&self, lease: Lease, sent: Sent);
}

/// Number of times that a claim was sent to its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Once: the store has seen it.
    Once,
    /// Perhaps more than once, because no acknowledgement came: a copy may still arrive, and claim the key
    /// again once it is free.
    Repeatedly,
}

/// The right to run.
#[derive(Debug)]
pub struct Claim<Stage> {
    grant: Box<Grant>,
    store: Arc<dyn Store>,
    sent: Sent,
    _stage: Stage,
}

/// Nothing ran yet.
#[derive(Debug)]
pub struct Unstarted {
    give_back: GiveBack,
}

/// The work may have been done.
#[derive(Debug)]
pub struct Started;

struct GiveBack(Option<(Lease, Sent, Arc<dyn Releaser>)>);

impl std::fmt::Debug for GiveBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GiveBack")
    }
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        if let Some((lease, sent, releaser)) = self.0.take() {
            releaser.give_back(lease, sent);
        }
    }
}

impl Claim<Unstarted> {
    /// The claim that `store` granted.
    pub fn new(
        grant: Box<Grant>,
        sent: Sent,
        store: Arc<dyn Store>,
        releaser: Arc<dyn Releaser>,
    ) -> Self {
        let give_back = GiveBack(Some((grant.lease, sent, releaser)));
        Self { grant, store, sent, _stage: Unstarted { give_back } }
    }

    /// The work begins: from here on it may have been done.
    pub fn start(self) -> Claim<Started> {
        let Self { grant, store, sent, _stage: Unstarted { mut give_back } } = self;
        give_back.0 = None;
        Claim { grant, store, sent, _stage: Started }
    }
}

impl Claim<Started> {
    /// Makes the lease live on from now.
    pub async fn renew(&self) -> Result<Fenced, StoreError> {
        self.store.renew(&self.grant.lease).await
    }

    /// Saves where a later attempt goes on.
    pub async fn checkpoint(&self, checkpoint: &Checkpoint) -> Result<Fenced, StoreError> {
        self.store.checkpoint(&self.grant.lease, checkpoint).await
    }

    /// Records the answer. May be called again after an error: a repeated completion is
    /// recognised.
    pub async fn complete(&self, answer: &Answer) -> Result<Recorded, StoreError> {
        self.store.complete(&self.grant.lease, answer).await
    }

    /// Ends the claim of work that provably never ran.
    pub async fn never_ran(&self) -> Result<Fenced, StoreError> {
        self.store.release(&self.grant.lease, Release::NeverRan).await
    }

    /// Ends the claim of work that ran and has no answer to keep.
    pub async fn release(&self, release: Release) -> Result<Fenced, StoreError> {
        self.store.release(&self.grant.lease, release).await
    }
}

impl<Stage> Claim<Stage> {
    /// What the store granted.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Number of times that the claim was sent to its store.
    pub fn sent(&self) -> Sent {
        self.sent
    }
}

impl std::fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}
