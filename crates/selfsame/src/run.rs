//! [`Run`]: what a handler sees of its own run.

use std::sync::Arc;

use bytes::Bytes;
use selfsame_core::{Checkpoint, Claim, Fenced, Key, Started, StoreError};

/// What a handler sees of its own run; found in the request's extensions.
///
/// A handler that saves a checkpoint after each phase can go on, after a crash, from the last one:
/// the next attempt finds it in [`Run::checkpoint`].
#[derive(Debug, Clone)]
pub struct Run {
    claim: Arc<Claim<Started>>,
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
    pub(crate) fn new(claim: Arc<Claim<Started>>) -> Self {
        Self { claim }
    }

    /// Which run this is, counted from 1. Above 1, an earlier run may have done part of the work.
    pub fn attempt(&self) -> u32 {
        self.claim.grant().attempt
    }

    /// A key for what the phase `phase` calls elsewhere: the same for each attempt at this work, so
    /// that a call which was interrupted can be made again.
    pub fn derived_key(&self, phase: &str) -> Key {
        self.claim.grant().birth.derived_key(phase)
    }

    /// What the earlier run saved last, as it was when this one began.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.claim.grant().checkpoint.as_ref()
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
        let checkpoint = Checkpoint { recovery_point: recovery_point.into(), data };
        match self.claim.checkpoint(&checkpoint).await? {
            Fenced::Applied => Ok(()),
            Fenced::Lost => Err(SaveError::Lost),
        }
    }
}
