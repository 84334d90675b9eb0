//! Rows that are put in the place of others, and rows that are taken away: those that are still as
//! they were seen, and no others.

use std::collections::HashSet;

use selfsame_core::{Record, RecordId, wire};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::rows::{self, Column, Place, Seen};
use super::session::Session;
use super::trouble::{Access, Fault};

/// A row to be put in the place of the one that was seen.
pub(super) struct Write {
    seen: Seen,
    pub(super) record: Record,
    saves_checkpoint: bool,
    answer: Option<(Place, Vec<u8>)>,
}

impl Write {
    /// The record's checkpoint, if it has one, is the one that was seen.
    pub(super) fn new(seen: Seen, record: Record) -> Self {
        Self { seen, record, saves_checkpoint: false, answer: None }
    }

    /// The record's checkpoint is new.
    pub(super) fn with_checkpoint(self) -> Self {
        Self { saves_checkpoint: true, ..self }
    }

    /// The record is completed now, with this answer at this place.
    pub(super) fn with_answer(self, place: Place, frame: Vec<u8>) -> Self {
        Self { answer: Some((place, frame)), ..self }
    }

    fn place(&self) -> Option<Place> {
        self.answer.as_ref().map(|(place, _)| *place)
    }

    fn checkpoint(&self) -> Option<Vec<u8>> {
        let checkpoint = self.record.checkpoint.as_ref().filter(|_| self.saves_checkpoint)?;
        Some(wire::encode_checkpoint(&self.record.id, checkpoint))
    }
}

/// Makes the writes, and returns which rows were still as they were seen. They are sorted by id.
pub(super) async fn write(session: &Session, writes: &[Write]) -> Result<HashSet<RecordId>, Fault> {
    let columns = columns(writes);
    let params: Vec<_> = columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
    Ok(ids(&session.query(Access::Write, include_str!("write.sql"), &params).await?))
}

/// Puts rows there as they are, and returns which were new.
pub(super) async fn import(
    session: &Session,
    writes: &[Write],
) -> Result<HashSet<RecordId>, Fault> {
    let columns = columns(writes);
    let params: Vec<_> = columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
    Ok(ids(&session.query(Access::Write, include_str!("import.sql"), &params).await?))
}

/// In the order in which the statements take them.
fn columns(writes: &[Write]) -> [Column<'_>; 27] {
    fn each<'a, T: ToSql + Sync + Send + 'a>(
        writes: &'a [Write],
        value: impl Fn(&'a Write, &'a Record) -> T,
    ) -> Column<'a> {
        Box::new(writes.iter().map(|write| value(write, &write.record)).collect::<Vec<_>>())
    }
    [
        each(writes, |w, _| &w.seen.id.as_bytes()[..]),
        each(writes, |w, _| &w.seen.attempt_id.as_bytes()[..]),
        each(writes, |w, _| w.seen.version),
        each(writes, |_, r| r.fingerprint.to_bytes().to_vec()),
        each(writes, |_, r| i16::from(wire::state_code(&r.state).0)),
        each(writes, |_, r| rows::time(wire::state_code(&r.state).1)),
        each(writes, |_, r| r.fence.number().cast_signed()),
        each(writes, |_, r| r.attempt.cast_signed()),
        each(writes, |_, r| &r.attempt_id.as_bytes()[..]),
        each(writes, |_, r| rows::later_birth(r).map(|birth| &birth.as_bytes()[..])),
        each(writes, |_, r| i16::from(wire::recover_code(r.recover))),
        each(writes, |_, r| rows::time(r.created_at)),
        each(writes, |_, r| rows::time(r.expires_at)),
        each(writes, |_, r| rows::millis(r.retention)),
        each(writes, |_, r| rows::millis(r.remember)),
        each(writes, |_, r| r.label.tenant.as_bytes()),
        each(writes, |_, r| r.label.tenant_name.as_deref()),
        each(writes, |_, r| r.label.key.as_str()),
        each(writes, |_, r| &*r.label.route),
        each(writes, |_, r| r.checkpoint.as_ref().map(rows::shown)),
        each(writes, |w, _| w.place().map(|place| place.bucket)),
        each(writes, |w, _| w.place().map(|place| place.row)),
        each(writes, |w, r| rows::sum(r, w.seen.version.wrapping_add(1), w.place())),
        each(writes, |w, _| w.checkpoint()),
        each(writes, |w, _| w.answer.as_ref().map(|(_, frame)| frame)),
        each(writes, |_, r| rows::outline(&r.id, &r.keepsake)),
        each(writes, |_, r| rows::request(&r.id, &r.keepsake)),
    ]
}

/// Takes rows away, and returns which were still as they were seen. They are sorted by id.
pub(super) async fn remove(session: &Session, seen: &[Seen]) -> Result<HashSet<RecordId>, Fault> {
    remove_by(include_str!("remove.sql"), session, seen).await
}

/// Removes rows as [`remove`] does, except those that another table does not let go. Costs a
/// subtransaction a row.
pub(super) async fn remove_each(
    session: &Session,
    seen: &[Seen],
) -> Result<HashSet<RecordId>, Fault> {
    const REMOVE_EACH: &str =
        "select selfsame.remove_each($1::bytea[], $2::bytea[], $3::integer[])";
    remove_by(REMOVE_EACH, session, seen).await
}

async fn remove_by(
    sql: &'static str,
    session: &Session,
    seen: &[Seen],
) -> Result<HashSet<RecordId>, Fault> {
    let ids_seen: Vec<_> = seen.iter().map(|seen| &seen.id.as_bytes()[..]).collect();
    let attempt_ids: Vec<_> = seen.iter().map(|seen| &seen.attempt_id.as_bytes()[..]).collect();
    let versions: Vec<_> = seen.iter().map(|seen| seen.version).collect();
    let params: [&(dyn ToSql + Sync); 3] = [&ids_seen, &attempt_ids, &versions];
    Ok(ids(&session.query(Access::Write, sql, &params).await?))
}

fn ids(changed: &[Row]) -> HashSet<RecordId> {
    changed.iter().filter_map(|row| rows::id_at(row, 0).ok()).collect()
}
