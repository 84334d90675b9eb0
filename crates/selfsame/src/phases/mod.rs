//! [`Phases`]: a run in named parts, each done once, for services on the PostgreSQL store.
//!
//! What a part gave is committed together with what it did. A later attempt finds it in the journal
//! and goes on behind it.

mod commit;
mod error;
mod finish;
mod key;
mod transaction;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use selfsame_core::{Fenced, Lease, Phase as Finished};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use commit::{Committed, Phase};
pub use error::PhaseError;
pub use key::DerivedKey;
pub use transaction::{Param, Transaction};

use crate::body::BoxError;
use crate::run::Run;
use crate::stores::{Journal, Known, Note};
use crate::telemetry;

/// A run in named parts, each done once. Made by [`Run::phases`].
///
/// ```
/// # use axum::{Extension, Json, http::StatusCode, response::{IntoResponse, Response}};
/// # use selfsame::{Run, phases::{DerivedKey, PhaseError}};
/// # use selfsame::BoxError;
/// # struct Failed(BoxError);
/// # impl<E: Into<BoxError>> From<E> for Failed { fn from(error: E) -> Self { Self(error.into()) } }
/// # async fn charge_card(key: DerivedKey, fare: i32) -> Result<String, BoxError> { Ok(key.into_string()) }
/// async fn create_ride(run: Run, db: &mut tokio_postgres::Client) -> Result<Response, Failed> {
///     let mut run = run.phases().await?;
///
///     // Rows of one's own, and what is to be known of them later, in one transaction.
///     let ride: i64 = run.phase("ride_created", async |phase| {
///         let tx = db.transaction().await?;
///         let row = tx.query_one("insert into rides (fare) values (20) returning id", &[]).await?;
///         phase.commit(tx, row.get(0)).await
///     }).await?;
///
///     // One effect elsewhere, under a key that is the same for each attempt.
///     let charge: String = run.call("charge_created", async |key| charge_card(key, 20).await).await?;
///
///     // The last rows and the answer, in one transaction.
///     let tx = db.transaction().await?;
///     tx.execute("update rides set charge = $1 where id = $2", &[&charge, &ride]).await?;
///     Ok(run.finish_with(tx, (StatusCode::CREATED, charge).into_response()).await?)
/// }
/// ```
///
/// The parts of a run have an order, and each its own name. A journal that was written by other code
/// is an error that names both.
///
/// # Two effects in one phase do not compile
///
/// Nobody could tell, after a crash between them, which of them was made. While a phase or a call is
/// under way, the run is borrowed:
///
/// ```compile_fail,E0499
/// # use selfsame::phases::*;
/// # async fn pay(key: DerivedKey) -> Result<String, selfsame::BoxError> { Ok(key.into_string()) }
/// # async fn example(mut run: Phases) -> Result<(), PhaseError> {
/// run.call("paid", async |key| {
///     let paid = pay(key).await?;
///     run.call("refunded", async |key| pay(key).await).await?;
///     Ok(paid)
/// }).await?;
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0499
/// # use selfsame::phases::*;
/// # async fn pay(key: DerivedKey) -> Result<String, selfsame::BoxError> { Ok(key.into_string()) }
/// # async fn example(mut run: Phases, db: &mut tokio_postgres::Client) -> Result<(), PhaseError> {
/// run.phase("booked", async |phase| {
///     let tx = db.transaction().await?;
///     let paid = run.call("paid", async |key| pay(key).await).await?;
///     phase.commit(tx, paid).await
/// }).await?;
/// # Ok(())
/// # }
/// ```
///
/// and a key is spent by its use:
///
/// ```compile_fail,E0382
/// # use selfsame::phases::*;
/// # async fn pay(key: DerivedKey) -> Result<String, selfsame::BoxError> { Ok(key.into_string()) }
/// # async fn example(mut run: Phases) -> Result<(), PhaseError> {
/// run.call("paid", async |key| {
///     pay(key).await?;
///     pay(key).await
/// }).await?;
/// # Ok(())
/// # }
/// ```
///
/// One after the other they do:
///
/// ```
/// # use selfsame::phases::*;
/// # async fn pay(key: DerivedKey) -> Result<String, selfsame::BoxError> { Ok(key.into_string()) }
/// # async fn example(mut run: Phases) -> Result<(), PhaseError> {
/// run.call("paid", async |key| pay(key).await).await?;
/// run.call("refunded", async |key| pay(key).await).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a run in phases ends with `finish` or `finish_with`"]
pub struct Phases {
    ledger: Arc<Ledger>,
    /// The names of those that are finished, in their order.
    finished: Vec<String>,
}

/// What is needed to note a phase.
struct Ledger {
    run: Run,
    journal: Journal,
    known: Known,
}

impl Run {
    /// This run in named parts, with what earlier attempts have finished of it. Once per attempt.
    pub async fn phases(self) -> Result<Phases, PhaseError> {
        let journal = self.state.journal.clone().ok_or(PhaseError::NoJournal)?;
        if self.state.has_phases.swap(true, Ordering::Relaxed) {
            return Err(PhaseError::Begun);
        }
        let grant = self.claim().grant();
        let known = journal.open(&grant.lease, &grant.birth).await.inspect_err(|error| {
            self.state.has_phases.store(false, Ordering::Relaxed);
            if error.is_damaged() {
                telemetry::damaged_record();
            }
        });
        match known? {
            Some(known) => {
                let ledger = Arc::new(Ledger { run: self, journal, known });
                Ok(Phases { ledger, finished: Vec::new() })
            }
            None => Err(self.fenced()),
        }
    }

    /// Another run has taken over: the layer shall tell its client what that one says.
    fn fenced(&self) -> PhaseError {
        self.state.is_lost.store(true, Ordering::Relaxed);
        telemetry::fenced_write();
        let record = self.claim().grant().lease.id;
        tracing::warn!(record = record.short(), "a stale phase was fenced off");
        PhaseError::Lost
    }
}

impl Phases {
    /// Which run this is, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.ledger.run.attempt()
    }

    /// The id of this run's record, for rows that refer to it.
    pub fn record(&self) -> &[u8] {
        self.ledger.run.record()
    }

    /// Runs `work` and gives what it commits; or what an earlier attempt committed under this name,
    /// and `work` does not run.
    ///
    /// `work` does as it likes with a transaction of its own, and ends it by
    /// [`Phase::commit`]. If it fails, nothing is kept, and the phase can be tried again.
    pub async fn phase<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        work: impl AsyncFnOnce(Phase) -> Result<Committed<T>, BoxError>,
    ) -> Result<T, PhaseError> {
        if let Some(output) = self.find(name)? {
            return Ok(output);
        }
        let phase = Phase::new(self.ledger.clone(), self.next(), name);
        match work(phase).await {
            Ok(committed) => {
                let output = committed.of(name)?;
                self.finished.push(name.to_owned());
                Ok(output)
            }
            Err(error) => Err(PhaseError::of(name, error)),
        }
    }

    /// Runs `effect`, which does one thing elsewhere, and notes what it gave; or gives what an earlier
    /// attempt noted under this name, and `effect` does not run.
    ///
    /// If the run ends between the effect and the note, the next attempt makes the call again, under
    /// the same key. Whoever is called must honour it.
    pub async fn call<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        effect: impl AsyncFnOnce(DerivedKey) -> Result<T, BoxError>,
    ) -> Result<T, PhaseError> {
        if let Some(output) = self.find(name)? {
            return Ok(output);
        }
        let key = DerivedKey::new(self.ledger.run.derived_key(name));
        let output = effect(key).await.map_err(|error| PhaseError::of(name, error))?;
        let note = self.ledger.note(self.next(), name, &output)?;
        match self.ledger.journal.note(&note).await {
            Ok(Fenced::Applied) => {
                self.finished.push(name.to_owned());
                Ok(output)
            }
            Ok(Fenced::Lost) => Err(self.ledger.run.fenced()),
            Err(error) => {
                Err(PhaseError::Unsettled { phase: name.to_owned(), source: error.into() })
            }
        }
    }

    /// What an earlier attempt finished under this name.
    fn find<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, PhaseError> {
        let is_name = !name.is_empty()
            && name.len() <= Finished::NAME_BYTES_MAX
            && !name.contains(char::is_control);
        if !is_name {
            return Err(PhaseError::Name { phase: name.to_owned() });
        }
        if self.finished.iter().any(|finished| finished == name) {
            return Err(PhaseError::Duplicate { phase: name.to_owned() });
        }
        let Some(found) = self.ledger.known.phases.get(self.finished.len()) else {
            return match self.next() <= Finished::COUNT_MAX {
                true => Ok(None),
                false => Err(PhaseError::TooMany),
            };
        };
        if found.name != name {
            return Err(PhaseError::other_code(found, name));
        }
        let output = serde_json::from_slice(&found.output)
            .map_err(|source| PhaseError::Unreadable { phase: name.to_owned(), source })?;
        self.finished.push(name.to_owned());
        Ok(Some(output))
    }

    /// The ordinal of the next phase.
    fn next(&self) -> u32 {
        u32::try_from(self.finished.len()).map_or(u32::MAX, |finished| finished + 1)
    }
}

impl Ledger {
    fn lease(&self) -> &Lease {
        &self.run.claim().grant().lease
    }

    fn note(&self, ordinal: u32, name: &str, output: &impl Serialize) -> Result<Note, PhaseError> {
        let output = serde_json::to_vec(output)
            .map_err(|source| PhaseError::Output { phase: name.to_owned(), source })?;
        if output.len() > Finished::OUTPUT_BYTES_MAX {
            return Err(PhaseError::TooLarge { phase: name.to_owned(), bytes: output.len() });
        }
        let birth = self.run.claim().grant().birth;
        let (name, output) = (name.to_owned(), Bytes::from(output));
        let phase = Finished { id: self.lease().id, birth, ordinal, name, output };
        Ok(self.known.note(*self.lease(), phase))
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.run.fmt(f)
    }
}
