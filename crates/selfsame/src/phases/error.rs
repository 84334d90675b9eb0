//! [`PhaseError`]: why a run in phases cannot go on.

use selfsame_core::{Phase as Finished, StoreError};

use crate::body::BoxError;

/// Why a run in phases cannot go on.
///
/// A handler answers it with a 500 or 503 of its own: the key is free then, and the next attempt goes on
/// behind the last phase that was finished. What a client shall hear for good, such as a card that was
/// declined, is no error but the output of a phase.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PhaseError {
    /// Another run has taken over, and nothing of this phase was kept. Stop, and do nothing more:
    /// the layer tells the client what that run has answered.
    #[error("the claim was lost: another run has taken over, and nothing of this phase was kept")]
    Lost,
    /// The work failed. Nothing of it was noted.
    #[error("the phase {phase:?} failed")]
    Failed {
        /// The phase.
        phase: String,
        /// The work's own error.
        source: BoxError,
    },
    /// The transaction was not committed. Nothing of it was kept.
    #[error("the phase {phase:?} was not committed")]
    NotCommitted {
        /// The phase.
        phase: String,
        /// What the database or its driver said.
        source: BoxError,
    },
    /// The connection was lost before the end was acknowledged, and the journal cannot be read now.
    /// The next attempt finds out.
    #[error("whether the phase {phase:?} was committed is not known yet; a retry finds out")]
    Unsettled {
        /// The phase.
        phase: String,
        /// What the database or its driver said.
        source: BoxError,
    },
    /// The journal was written by code with other phases.
    #[error(
        "the journal has the phase {journal:?} where the code has {code:?}: this key was begun by \
         other code; finish it with that code, or give a changed phase a place behind all others"
    )]
    OtherCode {
        /// The phase of the journal.
        journal: String,
        /// The phase of the code.
        code: String,
    },
    /// A name is used twice in one run.
    #[error("the run has two phases named {phase:?}; give each its own name")]
    Duplicate {
        /// The name.
        phase: String,
    },
    /// A name cannot be one.
    #[error(
        "{phase:?} cannot be the name of a phase; write 1 to {max} bytes without control characters",
        max = Finished::NAME_BYTES_MAX
    )]
    Name {
        /// The name.
        phase: String,
    },
    /// A run has too many phases.
    #[error("a run may have {max} phases, not more", max = Finished::COUNT_MAX)]
    TooMany,
    /// What the phase gave cannot be written as JSON.
    #[error("what the phase {phase:?} gave cannot be written as JSON")]
    Output {
        /// The phase.
        phase: String,
        /// Why.
        source: serde_json::Error,
    },
    /// What the phase gave is too large.
    #[error(
        "what the phase {phase:?} gave has {bytes} bytes, {max} are allowed; keep it in a table of \
         your own, and give its id",
        max = Finished::OUTPUT_BYTES_MAX
    )]
    TooLarge {
        /// The phase.
        phase: String,
        /// How large it is.
        bytes: usize,
    },
    /// What the phase gave to an earlier attempt does not fit the type that is asked for.
    #[error("what the phase {phase:?} gave to an earlier attempt does not fit the code's type")]
    Unreadable {
        /// The phase.
        phase: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The answer cannot be committed with a transaction.
    #[error(
        "a stream, or an answer of more than {max} bytes, cannot be committed with a transaction; \
         commit, then use `finish`"
    )]
    NotKept {
        /// The limit.
        max: usize,
    },
    /// The run is a function's, whose result is what it returns.
    #[error("a function's result is what it returns; `finish_with` is for a request's answer")]
    NoRequest,
    /// The run is in phases already.
    #[error("this run is in phases already; ask for them once")]
    Begun,
    /// The store has no journal, or its claims are not where that is.
    #[error("phases need a PostgresStore with the claims in it, given to the layer as it is")]
    NoJournal,
    /// The journal could not be read.
    #[error("the journal cannot be read")]
    Store(#[from] StoreError),
}

impl PhaseError {
    /// What the work of `phase` ended with.
    pub(super) fn of(phase: &str, error: BoxError) -> Self {
        match error.downcast() {
            Ok(ours) => *ours,
            Err(source) => Self::Failed { phase: phase.to_owned(), source },
        }
    }

    pub(super) fn other_code(journal: &Finished, code: &str) -> Self {
        Self::OtherCode { journal: journal.name.clone(), code: code.to_owned() }
    }
}
