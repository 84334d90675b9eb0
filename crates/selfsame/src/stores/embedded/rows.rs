//! Records as rows of `keys`: written whole, and read back whole or not at all.

use std::error::Error;
use std::time::Duration;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, params};
use selfsame_core::{
    AttemptId, Birth, Fence, Fingerprint, Key, Label, Record, RecordId, State, TenantTag,
    Timestamp, wire,
};

use super::expiry::{self, Place};
use super::facts::Boot;
use super::trouble::{Trouble, damaged, unreadable};
use crate::stores::columns::{COMPLETED, later_birth, stand_in};

/// A query for rows that [`read`] takes.
macro_rules! select_keys {
    ($which:literal) => {
        concat!(
            "SELECT id, fingerprint, state, state_at, fence, attempt, attempt_id, birth, recover, \
             created_at, expires_at, retention_ms, remember_ms, tenant, tenant_name, key, route, \
             recovery_point, boot, answer_bucket, answer_row, sum FROM keys ",
            $which
        )
    };
}
pub(super) use select_keys;

/// A statement that [`write`] gives a row to.
macro_rules! write_keys {
    ($verb:literal, $conflict:literal) => {
        concat!(
            $verb,
            " INTO keys VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, \
             ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22) ",
            $conflict
        )
    };
}

/// A record as its row has it.
pub(super) struct Row {
    /// The record, with a [`stand_in`] for its answer.
    pub(super) record: Record,
    boot: u64,
    answer: Option<Place>,
}

impl Row {
    /// The record with its answer, or as a tombstone without. One that expired keeps the
    /// stand-in: its answer may be gone already, and nobody may see it.
    pub(super) fn whole(self, conn: &Connection, now: Timestamp) -> Result<Record, Trouble> {
        let Self { mut record, answer: place, .. } = self;
        record.bury(now);
        if record.is_expired(now) {
            return Ok(record);
        }
        if let (State::Completed { answer, .. }, Some(place)) = (&mut record.state, place) {
            let frame = expiry::answer_at(conn, place).map_err(|e| unreadable(&record.id, e))?;
            *answer =
                wire::decode_answer(&record.id, &frame).map_err(|e| damaged(&record.id, e))?;
        }
        Ok(record)
    }
}

/// The checksum of all columns.
fn sum(record: &Record, boot: u64, answer: Option<Place>) -> u64 {
    let place = answer.map_or([0; 3], |place| [1, place.bucket, place.row.cast_unsigned()]);
    let beside = [boot, u64::from(record.checkpoint.is_some()), place[0], place[1], place[2]];
    // Each step can be undone, so another value in any one column gives another sum.
    beside.iter().fold(u64::from(wire::head_checksum(record)), |sum, value| {
        (sum ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

/// The row of `id`.
pub(super) fn find(conn: &Connection, id: &RecordId, boot: Boot) -> Result<Option<Row>, Trouble> {
    let mut statement = conn.prepare_cached(select_keys!("WHERE id = ?1"))?;
    let mut rows = statement.query([id.as_bytes()])?;
    let found = rows.next().map_err(|error| unreadable(id, error))?;
    found.map(|row| read(conn, id, row, boot)).transpose()
}

/// The row under a cursor of [`select_keys!`], if its checksum fits.
pub(super) fn read(
    conn: &Connection,
    id: &RecordId,
    row: &rusqlite::Row<'_>,
    boot: Boot,
) -> Result<Row, Trouble> {
    let (mut row, recovery_point, stored_sum) = parse(row).map_err(|cause| damaged(id, cause))?;
    if recovery_point.is_some() {
        let frame = conn
            .prepare_cached("SELECT body FROM checkpoints WHERE id = ?1")?
            .query_row([id.as_bytes()], |row| row.get::<_, Vec<u8>>(0))
            .optional()
            .map_err(|error| unreadable(id, error))?;
        let frame = frame.ok_or_else(|| damaged(id, "its checkpoint is missing"))?;
        let checkpoint = wire::decode_checkpoint(id, &frame).map_err(|e| damaged(id, e))?;
        row.record.checkpoint = Some(checkpoint);
    }
    let shown = row.record.checkpoint.as_ref().map(|checkpoint| &checkpoint.recovery_point);
    if sum(&row.record, row.boot, row.answer) != stored_sum || shown != recovery_point.as_ref() {
        return Err(damaged(id, "the checksum does not fit"));
    }
    if let State::Claimed { lease_until } = &mut row.record.state
        && boot.ends_leases_of(row.boot)
    {
        *lease_until = Timestamp::default();
    }
    Ok(row)
}

/// Writes the row of a record that is most likely new. Whether it was: a row that is there already
/// stays as it is.
pub(super) fn add(conn: &Connection, record: &Record, boot: Boot) -> rusqlite::Result<bool> {
    let sql = write_keys!("INSERT", "ON CONFLICT (id) DO NOTHING");
    Ok(write(conn, sql, record, None, boot)? == 1)
}

/// Writes the record's row; a completed one's answer is at `answer`.
pub(super) fn save(
    conn: &Connection,
    record: &Record,
    answer: Option<Place>,
    boot: Boot,
) -> rusqlite::Result<()> {
    write(conn, write_keys!("REPLACE", ""), record, answer, boot).map(drop)
}

/// Writes the end of a claim over its row. Whether it was still there, as `claimed` was written.
pub(super) fn finish(
    conn: &Connection,
    claimed: &Record,
    record: &Record,
    answer: Place,
    boot: Boot,
) -> rusqlite::Result<bool> {
    let (state, state_at) = wire::state_code(&record.state);
    let mut statement = conn.prepare_cached(
        "UPDATE keys SET state = ?1, state_at = ?2, expires_at = ?3, answer_bucket = ?4, \
         answer_row = ?5, sum = ?6 WHERE id = ?7 AND sum = ?8 AND fence = ?9 AND attempt_id = ?10",
    )?;
    let changed = statement.execute(params![
        state,
        time(state_at),
        time(record.expires_at),
        answer.bucket.cast_signed(),
        answer.row,
        sum(record, boot.number, Some(answer)).cast_signed(),
        record.id.as_bytes(),
        sum(claimed, boot.number, None).cast_signed(),
        record.fence.number().cast_signed(),
        record.attempt_id.as_bytes(),
    ])?;
    Ok(changed == 1)
}

/// How many rows were written.
fn write(
    conn: &Connection,
    sql: &str,
    record: &Record,
    answer: Option<Place>,
    boot: Boot,
) -> rusqlite::Result<usize> {
    let (state, state_at) = wire::state_code(&record.state);
    let label = &record.label;
    let mut statement = conn.prepare_cached(sql)?;
    statement.execute(params![
        record.id.as_bytes(),
        record.fingerprint.to_bytes(),
        state,
        time(state_at),
        record.fence.number().cast_signed(),
        record.attempt,
        record.attempt_id.as_bytes(),
        later_birth(record).map(Birth::as_bytes),
        wire::recover_code(record.recover),
        time(record.created_at),
        time(record.expires_at),
        time(Timestamp::default() + record.retention),
        time(Timestamp::default() + record.remember),
        label.tenant.as_bytes(),
        label.tenant_name,
        label.key.as_str(),
        label.route,
        record.checkpoint.as_ref().map(|checkpoint| &checkpoint.recovery_point),
        boot.number.cast_signed(),
        answer.map(|place| place.bucket.cast_signed()),
        answer.map(|place| place.row),
        sum(record, boot.number, answer).cast_signed(),
    ])
}

/// Writes the record's checkpoint.
pub(super) fn save_checkpoint(conn: &Connection, record: &Record) -> rusqlite::Result<()> {
    let Some(checkpoint) = &record.checkpoint else { return Ok(()) };
    let body = wire::encode_checkpoint(&record.id, checkpoint);
    let mut statement = conn.prepare_cached("REPLACE INTO checkpoints VALUES (?1, ?2)")?;
    statement.execute(params![record.id.as_bytes(), body]).map(drop)
}

/// Takes the record's checkpoint away.
pub(super) fn delete_checkpoint(conn: &Connection, id: &RecordId) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached("DELETE FROM checkpoints WHERE id = ?1")?;
    statement.execute([id.as_bytes()]).map(drop)
}

/// Takes the record away. Its answer stays until its table is dropped; nothing leads there.
pub(super) fn delete(conn: &Connection, record: &Record) -> rusqlite::Result<()> {
    if record.checkpoint.is_some() {
        delete_checkpoint(conn, &record.id)?;
    }
    let mut statement = conn.prepare_cached("DELETE FROM keys WHERE id = ?1")?;
    statement.execute([record.id.as_bytes()]).map(drop)
}

/// SQLite's integers are signed. Casting loses nothing, where clamping would change a record
/// that never expires and make its checksum wrong.
pub(super) fn time(timestamp: Timestamp) -> i64 {
    timestamp.as_millis().cast_signed()
}

type Cause = Box<dyn Error + Send + Sync>;

/// The row without its checkpoint, with the recovery point and the checksum it shows.
fn parse(row: &rusqlite::Row<'_>) -> Result<(Row, Option<String>, u64), Cause> {
    let mut columns = Columns { row, next: 0 };
    let id = RecordId::from_bytes(columns.take()?);
    let fingerprint = Fingerprint::from_bytes(columns.take()?);
    let state: u8 = columns.take()?;
    let state_at = Timestamp::from_millis(columns.number()?);
    let answer = (state == COMPLETED).then(stand_in);
    let fence = Fence::from_number(columns.number()?);
    let attempt = columns.take()?;
    let attempt_id = AttemptId::from_bytes(columns.take()?);
    let birth = columns.take::<Option<_>>()?.map_or(Birth::by(attempt_id), Birth::from_bytes);
    let record = Record {
        id,
        fingerprint,
        state: wire::state_from_code(state, state_at, answer).ok_or("its state is unknown")?,
        fence,
        attempt,
        attempt_id,
        birth,
        recover: wire::recover_from_code(columns.take()?).ok_or("its recovery is unknown")?,
        checkpoint: None,
        created_at: Timestamp::from_millis(columns.number()?),
        expires_at: Timestamp::from_millis(columns.number()?),
        retention: Duration::from_millis(columns.number()?),
        remember: Duration::from_millis(columns.number()?),
        label: Label {
            tenant: TenantTag::from_bytes(columns.take()?),
            tenant_name: columns.take()?,
            key: Key::from_stored(&columns.take::<String>()?).ok_or("its key is none")?,
            route: columns.take()?,
        },
    };
    let recovery_point = columns.take()?;
    let boot = columns.number()?;
    let (bucket, place): (Option<i64>, Option<i64>) = (columns.take()?, columns.take()?);
    let answer =
        bucket.zip(place).map(|(bucket, row)| Place { bucket: bucket.cast_unsigned(), row });
    if answer.is_some() != (state == COMPLETED) {
        return Err("its state and its answer do not fit".into());
    }
    Ok((Row { record, boot, answer }, recovery_point, columns.number()?))
}

struct Columns<'a> {
    row: &'a rusqlite::Row<'a>,
    next: usize,
}

impl Columns<'_> {
    fn take<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        let value = self.row.get(self.next);
        self.next += 1;
        value
    }

    fn number(&mut self) -> rusqlite::Result<u64> {
        self.take::<i64>().map(i64::cast_unsigned)
    }
}
