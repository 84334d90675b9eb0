//! [`Run`]: what a handler sees of its own run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use selfsame_core::{Checkpoint, Claim, Fenced, Key, Lease, Replay, Started, StoreError};

use crate::engine::Engine;
use crate::layer::Route;
use crate::quota::Place;
use crate::stores::Journal;

/// What a handler sees of its own run; found in the request's extensions.
///
/// A handler that saves a checkpoint after each phase can go on, after a crash, from the last one:
/// the next attempt finds it in [`Run::checkpoint`].
#[cfg_attr(
    feature = "postgres",
    doc = "On the PostgreSQL store, [`Run::phases`] keeps them for it, in its own transactions."
)]
#[derive(Debug, Clone)]
pub struct Run {
    pub(crate) state: Arc<RunState>,
}

/// What all copies of a [`Run`] share, with each other and with the layer.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "runs have no phases then"))]
pub(crate) struct RunState {
    pub(crate) claim: Claim<Started>,
    /// Its place among the tenant's runs, where those are counted.
    pub(crate) place: Option<Box<Place>>,
    /// What says how an answer is kept; there is none where a function runs.
    pub(crate) route: Option<Arc<Route>>,
    pub(crate) journal: Option<Journal>,
    pub(crate) has_phases: AtomicBool,
    /// Whether another run has taken over, as far as this one has noticed.
    pub(crate) is_lost: AtomicBool,
    /// The answer, where the handler has committed it with its own rows.
    pub(crate) finished: OnceLock<Box<Replay>>,
}

/// Why a checkpoint was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// Another claim has taken over: stop, and do nothing more.
    #[error("the claim was lost: another run has taken over")]
    Lost,
    /// The data is too large.
    #[error("the checkpoint has {bytes} bytes, {max} are allowed", max = Checkpoint::DATA_BYTES_MAX)]
    TooLarge {
        /// How large it is.
        bytes: usize,
    },
    /// The store failed.
    #[error("the checkpoint could not be stored")]
    Store(#[from] StoreError),
}

impl Run {
    /// The run of a request to `route`, or of a function.
    pub(crate) fn new(
        claim: Claim<Started>,
        place: Option<Box<Place>>,
        engine: &Engine,
        route: Option<&Arc<Route>>,
    ) -> Self {
        let state = RunState {
            claim,
            place,
            // Only phases ask for it, and there are none without a journal.
            route: route.filter(|_| engine.journal.is_some()).cloned(),
            journal: engine.journal.clone(),
            has_phases: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            finished: OnceLock::new(),
        };
        Self { state: Arc::new(state) }
    }

    pub(crate) fn claim(&self) -> &Claim<Started> {
        &self.state.claim
    }

    /// The answer, where the handler has committed it with its own rows.
    pub(crate) fn finished(&self) -> Option<&Replay> {
        self.state.finished.get().map(Box::as_ref)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state.is_lost.load(Ordering::Relaxed)
    }

    /// Which run this is, counted from 1. Above 1, an earlier run may have done part of the work.
    pub fn attempt(&self) -> u32 {
        self.state.claim.grant().attempt
    }

    /// The id of this run's record, for rows that refer to it.
    pub fn record(&self) -> &[u8] {
        self.state.claim.grant().lease.id.as_bytes()
    }

    /// What each write of this run shows, for who makes one on its behalf from elsewhere.
    pub fn lease(&self) -> &Lease {
        &self.state.claim.grant().lease
    }

    /// A key for what the phase `phase` calls elsewhere: the same for each attempt at this work, so
    /// that a call which was interrupted can be made again.
    pub fn derived_key(&self, phase: &str) -> Key {
        self.state.claim.grant().birth.derived_key(phase)
    }

    /// What the earlier run saved last, as it was when this one began.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.state.claim.grant().checkpoint.as_ref()
    }

    /// The name of the last phase the earlier run finished.
    pub fn recovery_point(&self) -> Option<&str> {
        self.checkpoint().map(|checkpoint| checkpoint.recovery_point.as_str())
    }

    /// Saves that the phase `recovery_point` is finished, with what the next one needs. Durable
    /// when this returns.
    pub async fn save(
        &self,
        recovery_point: impl Into<String>,
        data: impl Into<Bytes>,
    ) -> Result<(), SaveError> {
        let data = data.into();
        if data.len() > Checkpoint::DATA_BYTES_MAX {
            return Err(SaveError::TooLarge { bytes: data.len() });
        }
        let checkpoint = Checkpoint::new(recovery_point, data);
        match self.state.claim.checkpoint(&checkpoint).await? {
            Fenced::Applied => Ok(()),
            Fenced::Lost => Err(SaveError::Lost),
        }
    }
}

impl std::fmt::Debug for RunState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.claim.fmt(f)
    }
}
