//! [`Phase`]: the end of a transaction, with the journal's two statements as its last.

use std::sync::Arc;

use selfsame_core::Fenced;
use serde::Serialize;

use super::{Ledger, PhaseError, Transaction};
use crate::body::BoxError;
use crate::stores::Standing;

/// A phase under way, which is ended by [`commit`](Self::commit).
#[derive(Debug)]
#[must_use = "a phase is ended by `commit`"]
pub struct Phase {
    ledger: Arc<Ledger>,
    ordinal: u32,
    name: String,
}

/// A phase that was committed, with what it gave.
#[derive(Debug)]
#[must_use = "it is what the work of a phase gives"]
pub struct Committed<T> {
    name: String,
    output: T,
}

impl<T> Committed<T> {
    /// What the phase `name` gave.
    pub(super) fn of(self, name: &str) -> Result<T, PhaseError> {
        match self.name == name {
            true => Ok(self.output),
            false => {
                let (journal, code) = (self.name, name.to_owned());
                Err(PhaseError::OtherCode { journal, code })
            }
        }
    }
}

impl Phase {
    pub(super) fn new(ledger: Arc<Ledger>, ordinal: u32, name: &str) -> Self {
        Self { ledger, ordinal, name: name.to_owned() }
    }

    /// Commits `transaction`, and with it that this phase is finished and gave `output`.
    ///
    /// If another run has taken over, nothing is committed. If the connection is lost before the
    /// commit is acknowledged, the journal tells what became of it.
    ///
    /// # Errors
    ///
    /// A [`PhaseError`], in a box so that it can be the last word of the phase's work.
    pub async fn commit<T: Serialize>(
        self,
        mut transaction: impl Transaction,
        output: T,
    ) -> Result<Committed<T>, BoxError> {
        let Self { ledger, ordinal, name } = self;
        let note = ledger.note(ordinal, &name, &output)?;
        match ledger.journal.note_in(&mut transaction, &note).await {
            Ok(Fenced::Applied) => {}
            Ok(Fenced::Lost) => return Err(ledger.run.fenced().into()),
            Err(source) => return Err(PhaseError::NotCommitted { phase: name, source }.into()),
        }
        let Err(source) = transaction.commit().await else {
            return Ok(Committed { name, output });
        };
        tracing::warn!(error = %source, phase = name, "a commit was not acknowledged");
        match ledger.journal.settle(&note).await {
            Ok(Standing::Noted) => Ok(Committed { name, output }),
            Ok(Standing::Open) => Err(PhaseError::NotCommitted { phase: name, source }.into()),
            Ok(Standing::Lost) => Err(ledger.run.fenced().into()),
            Err(_) => Err(PhaseError::Unsettled { phase: name, source }.into()),
        }
    }
}
