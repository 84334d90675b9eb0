//! [`Journal`]: the finished phases of runs, noted in a service's own transaction or alone.
//!
//! A note goes into the journal and into the key's row in one statement. In a service's
//! transaction the claim's row is locked first, by the last statement but one, so that a long phase
//! does not keep its own heartbeat waiting.

use std::sync::Arc;

use selfsame_core::{
    Answer, Birth, Checkpoint, Fenced, Lease, Phase, RecordId, Recorded, StoreError, Timestamp,
    wire,
};
use tokio::time::{Instant, sleep};
use tokio_postgres::types::ToSql;

use super::changes::{PAUSE, read};
use super::completions::COMPLETE_ONE;
use super::link::Link;
use super::rows::{self, Row};
use super::session::{Session, Target};
use super::store::completed;
use super::trouble::{Access, Fault};
use super::{PostgresStore, answers};
use crate::body::BoxError;
use crate::phases::{Param, Transaction};
use crate::seal::Seal;
use crate::stores::durable::damaged;
#[cfg(feature = "redis")]
use crate::stores::tiered::Cache;

const NOTE: &str = include_str!("journal.sql");
const FENCE: &str = include_str!("fence.sql");

const READ: &str = "select body, name, ordinal from selfsame.journal \
     where id = $1::bytea and birth = $2::bytea order by ordinal limit $3::bigint";

const IS_NOTED: &str = "select 1 from selfsame.journal \
     where id = $1::bytea and birth = $2::bytea and ordinal = $3::bigint and body = $4::bytea";

/// Finds the row only if no transaction is open that has it locked.
const IS_FREE: &str =
    "select 1 from selfsame.keys where id = $1::bytea for no key update skip locked";

/// The journal of a PostgreSQL store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Journal {
    aside: Arc<Link>,
    target: Target,
    seal: Seal,
    #[cfg(feature = "redis")]
    cache: Option<Arc<Cache>>,
}

/// What the journal knows of a run when it begins.
pub(crate) struct Known {
    pub(crate) phases: Vec<Phase>,
    first_point: i64,
}

/// A finished phase, with the claim under which it is noted.
pub(crate) struct Note {
    lease: Lease,
    phase: Phase,
    frame: Vec<u8>,
    checkpoint: Vec<u8>,
    first_point: i64,
}

/// Where a note stands that may have landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Noted,
    /// It is not there, and may still be made.
    Open,
    Lost,
}

impl PostgresStore {
    pub(crate) fn journal(&self) -> Journal {
        Journal {
            aside: self.aside.clone(),
            target: self.target.clone(),
            seal: Seal::none(),
            #[cfg(feature = "redis")]
            cache: None,
        }
    }
}

impl Known {
    pub(crate) fn note(&self, lease: Lease, phase: Phase) -> Note {
        let checkpoint = wire::encode_checkpoint(&phase.id, &point(&phase));
        let frame = wire::encode_phase(&phase);
        Note { lease, phase, frame, checkpoint, first_point: self.first_point }
    }
}

/// What stands behind the ordinal in the checkpoint of a phase.
const OF_PHASE: &str = " of the journal";

/// The checkpoint of a run that has come so far: people see where it stands, and a journal that was
/// lost is noticed. What the phase gave is in the journal.
fn point(phase: &Phase) -> Checkpoint {
    Checkpoint::new(phase.name.clone(), format!("phase {}{OF_PHASE}", phase.ordinal))
}

fn is_of_phase(checkpoint: &Checkpoint) -> bool {
    !checkpoint.is_sealed && checkpoint.data.ends_with(OF_PHASE.as_bytes())
}

impl Note {
    fn params(&self) -> [Param<'_>; 9] {
        let [id, attempt_id, fence] = claim(&self.lease);
        [
            id,
            attempt_id,
            fence,
            Param::Bytes(self.phase.birth.as_bytes()),
            Param::Number(self.phase.ordinal.into()),
            Param::Text(&self.phase.name),
            Param::Bytes(&self.frame),
            Param::Bytes(&self.checkpoint),
            Param::Number(self.first_point),
        ]
    }
}

fn claim(lease: &Lease) -> [Param<'_>; 3] {
    [
        Param::Bytes(lease.id.as_bytes()),
        Param::Bytes(lease.attempt_id.as_bytes()),
        Param::Number(lease.fence.number().cast_signed()),
    ]
}

impl Journal {
    /// The same, with answers sealed.
    pub(crate) fn sealed_by(self, seal: &Seal) -> Self {
        Self { seal: seal.clone(), ..self }
    }

    /// The same, of a store that is behind a cache.
    #[cfg(feature = "redis")]
    pub(in crate::stores) fn before(self, cache: &Arc<Cache>) -> Self {
        Self { cache: Some(cache.clone()), ..self }
    }

    /// An answer was committed under `lease`, past the store's own calls.
    pub(crate) async fn ended(&self, lease: &Lease) {
        #[cfg(feature = "redis")]
        if let Some(cache) = &self.cache {
            cache.end(lease).await;
        }
        #[cfg(not(feature = "redis"))]
        let _ = lease;
    }

    /// What is known of the run that `lease` is for, if the lease is still its last claim.
    pub(crate) async fn open(
        &self,
        lease: &Lease,
        birth: &Birth,
    ) -> Result<Option<Known>, StoreError> {
        let session = self.aside.session().await?;
        let (row, _) = read(&session, &lease.id).await?;
        let Some(Row { record, .. }) = row.filter(|row| row.record.is_claimed_by(lease)) else {
            return Ok(None);
        };
        let first_point = rows::first_point(&record);
        let Some(checkpoint) = record.checkpoint else {
            return Ok(Some(Known { phases: Vec::new(), first_point }));
        };
        let phases = phases(&session, &lease.id, birth).await?;
        if is_of_phase(&checkpoint) && phases.last().map(point) != Some(checkpoint) {
            return Err(damaged(&lease.id, "its journal is not whole"));
        }
        Ok(Some(Known { phases, first_point }))
    }

    /// Makes the note in the caller's transaction, which is to be committed next.
    pub(crate) async fn note_in<T: Transaction>(
        &self,
        transaction: &mut T,
        note: &Note,
    ) -> Result<Fenced, BoxError> {
        let noted = self.write_in(transaction, &note.lease, NOTE, &note.params()).await?;
        Ok(match noted {
            Some(_) => Fenced::Applied,
            None => Fenced::Lost,
        })
    }

    /// Records the answer in the caller's transaction, which is to be committed next.
    pub(crate) async fn complete_in<T: Transaction>(
        &self,
        transaction: &mut T,
        lease: &Lease,
        answer: &Answer,
    ) -> Result<Recorded, BoxError> {
        let frame = wire::encode_answer(&lease.id, &self.seal.closed_answer(&lease.id, answer));
        let [id, attempt_id, fence] = claim(lease);
        let params = [id, attempt_id, fence, Param::Bytes(&frame)];
        let expires_at = self.write_in(transaction, lease, COMPLETE_ONE, &params).await?;
        Ok(match expires_at {
            Some(at) => Recorded::Until(Timestamp::from_millis(at.cast_unsigned())),
            None => Recorded::Lost,
        })
    }

    /// The two last statements of a caller's transaction: one that locks the claim's row, if the
    /// claim still stands, and one that writes.
    async fn write_in<T: Transaction>(
        &self,
        transaction: &mut T,
        lease: &Lease,
        write: &str,
        params: &[Param<'_>],
    ) -> Result<Option<i64>, BoxError> {
        let fence = self.target.in_schema(FENCE);
        match transaction.number(&fence, &claim(lease)).await? {
            Some(_) => transaction.number(&self.target.in_schema(write), params).await,
            None => Ok(None),
        }
    }

    /// Makes the note by itself. Durable when this returns.
    pub(crate) async fn note(&self, note: &Note) -> Result<Fenced, StoreError> {
        let until = Instant::now() + self.target.time_out;
        loop {
            let tried = self.try_note(note).await;
            if let Ok(true) = tried {
                return Ok(Fenced::Applied);
            }
            // The acknowledgement may be all that was lost.
            let error = match (self.standing(note).await, tried) {
                (Ok(Standing::Noted), _) => return Ok(Fenced::Applied),
                (Ok(Standing::Lost), _) => return Ok(Fenced::Lost),
                (Ok(Standing::Open), Ok(_)) => {
                    Fault::not_written("the record's row is locked").error()
                }
                (Ok(Standing::Open), Err(error)) | (Err(error), _) => error,
            };
            if Instant::now() + PAUSE > until {
                return Err(error);
            }
            sleep(PAUSE).await;
        }
    }

    async fn try_note(&self, note: &Note) -> Result<bool, StoreError> {
        let session = self.aside.session().await?;
        let params = note.params();
        let params: Vec<_> = params.iter().map(Param::as_sql).collect();
        Ok(!session.query(Access::Write, NOTE, &params).await?.is_empty())
    }

    /// Where a note stands whose commit was not acknowledged. That transaction has locked the
    /// claim's row, so once the row is free it is over, in one way or the other.
    pub(crate) async fn settle(&self, note: &Note) -> Result<Standing, StoreError> {
        self.until_free(&note.lease.id).await?;
        self.standing(note).await
    }

    /// As [`settle`](Self::settle), for an answer: nothing if it may still be recorded.
    pub(crate) async fn settle_answer(
        &self,
        lease: &Lease,
    ) -> Result<Option<Recorded>, StoreError> {
        self.until_free(&lease.id).await?;
        completed(&self.aside, lease, self.target.time_out).await
    }

    /// Makes sure that there is a table for the answer of `id`: a statement that fails would take
    /// the caller's transaction with it.
    pub(crate) async fn make_room(&self, id: &RecordId) -> Result<(), StoreError> {
        let session = self.aside.session().await?;
        Ok(answers::make_room(&session, &[*id]).await?)
    }

    async fn standing(&self, note: &Note) -> Result<Standing, StoreError> {
        let session = self.aside.session().await?;
        let [id, _, _, birth, ordinal, _, frame, ..] = note.params();
        let params: [&(dyn ToSql + Sync); 4] =
            [id.as_sql(), birth.as_sql(), ordinal.as_sql(), frame.as_sql()];
        if !session.query(Access::Read, IS_NOTED, &params).await?.is_empty() {
            return Ok(Standing::Noted);
        }
        let (row, _) = read(&session, &note.lease.id).await?;
        Ok(match row.is_some_and(|row| row.record.is_claimed_by(&note.lease)) {
            true => Standing::Open,
            false => Standing::Lost,
        })
    }

    async fn until_free(&self, id: &RecordId) -> Result<(), StoreError> {
        let until = Instant::now() + self.target.time_out;
        loop {
            let error = match self.is_free(id).await {
                Ok(true) => return Ok(()),
                Ok(false) => Fault::not_written("the record's row is locked").error(),
                Err(error) => error,
            };
            if Instant::now() + PAUSE > until {
                return Err(error);
            }
            sleep(PAUSE).await;
        }
    }

    async fn is_free(&self, id: &RecordId) -> Result<bool, StoreError> {
        let session = self.aside.session().await?;
        let free = session.query(Access::Read, IS_FREE, &[&&id.as_bytes()[..]]).await?;
        Ok(!free.is_empty() || read(&session, id).await?.0.is_none())
    }
}

/// The finished phases of one life of a key, in their order.
async fn phases(session: &Session, id: &RecordId, birth: &Birth) -> Result<Vec<Phase>, StoreError> {
    let most = i64::from(Phase::COUNT_MAX);
    let params: [&(dyn ToSql + Sync); 3] = [&&id.as_bytes()[..], &&birth.as_bytes()[..], &most];
    let mut phases = Vec::new();
    for (row, ordinal) in session.query(Access::Read, READ, &params).await?.iter().zip(1..) {
        let phase = wire::decode_phase(row.get(0)).map_err(|cause| damaged(id, cause))?;
        let is_at_home = phase.id == *id && phase.birth == *birth && phase.ordinal == ordinal;
        let (name, column): (&str, i32) = (row.get(1), row.get(2));
        if !is_at_home || phase.name != name || i64::from(column) != i64::from(ordinal) {
            return Err(damaged(id, "a phase of its journal is missing or somebody else's"));
        }
        phases.push(phase);
    }
    Ok(phases)
}
