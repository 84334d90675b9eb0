//! Records as rows of `keys`: written whole, and read back whole or not at all.

use std::error::Error;
use std::time::Duration;

use selfsame_core::{
    Ask, AttemptId, Birth, Checkpoint, Fence, Fingerprint, Keepsake, Key, Label, Record, RecordId,
    State, StoreError, TenantTag, Timestamp, wire,
};
use tokio_postgres::types::{FromSql, ToSql};

use crate::stores::durable::{self, COMPLETED, damaged, stand_in};

/// The columns that [`read`] takes, of a row `k` of `keys` and its checkpoint `c`.
macro_rules! key_columns {
    () => {
        "k.id, k.fingerprint, k.state, k.state_at, k.fence, k.attempt, k.attempt_id, k.birth, \
         k.recover, k.created_at, k.expires_at, k.retention_ms, k.remember_ms, k.tenant, \
         k.tenant_name, k.key, k.route, k.recovery_point, k.answer_bucket, k.answer_row, \
         k.version, k.sum, k.outline, c.body"
    };
}
pub(super) use key_columns;

/// How many columns those are.
const KEY_COLUMNS: usize = 24;

/// The checkpoint `c` of the row `k`.
macro_rules! its_checkpoint {
    () => {
        " left join lateral (select body from selfsame.checkpoints x \
         where x.id = k.id and k.recovery_point is not null limit 1) c on true "
    };
}
pub(super) use its_checkpoint;

/// The answer `a` of the row `k`.
macro_rules! its_answer {
    () => {
        " left join lateral (select body from selfsame.answers x \
         where x.bucket = k.answer_bucket and x.row = k.answer_row limit 1) a on true "
    };
}
pub(super) use its_answer;

/// The record's birth, where its row must hold it: most records are born by their only claim.
pub(super) fn later_birth(record: &Record) -> Option<&Birth> {
    Some(&record.birth).filter(|birth| **birth != Birth::by(record.attempt_id))
}

/// A keepsake without its request, as its column has it.
pub(super) fn outline(id: &RecordId, keepsake: &Option<Box<Keepsake>>) -> Option<Vec<u8>> {
    let rest = keepsake.clone()?.without_request()?;
    Some(wire::encode_keepsake(id, &rest))
}

/// The kept request, as its column has it.
pub(super) fn request(id: &RecordId, keepsake: &Option<Box<Keepsake>>) -> Option<Vec<u8>> {
    let request = keepsake.as_ref()?.request.clone()?;
    Some(wire::encode_keepsake(id, &Keepsake { request: Some(request), ..Keepsake::default() }))
}

/// A column of many rows, as a parameter of a statement.
pub(super) type Column<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// A record as its row has it.
pub(super) struct Row {
    /// The record, with a [`stand_in`] for its answer, and without the request it keeps.
    pub(super) record: Record,
    pub(super) seen: Seen,
}

/// Which state of a row was read: a write replaces that one, or nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) id: RecordId,
    pub(super) attempt_id: AttemptId,
    pub(super) version: i32,
}

/// Where an answer lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) bucket: i32,
    pub(super) row: i64,
}

impl Row {
    /// The same with the request that it keeps.
    pub(super) fn with_request(mut self, frame: Option<&[u8]>) -> Result<Self, StoreError> {
        let Some(frame) = frame else { return Ok(self) };
        let id = self.record.id;
        let kept = wire::decode_keepsake(&id, frame).map_err(|error| damaged(&id, error))?;
        self.record.keepsake.get_or_insert_default().request = kept.request;
        Ok(self)
    }

    /// The record with its answer, or as a tombstone without. One that expired keeps the
    /// stand-in: its answer may be gone already, and nobody may see it.
    pub(super) fn whole(self, frame: Option<&[u8]>, now: Timestamp) -> Result<Record, StoreError> {
        let Self { mut record, .. } = self;
        record.bury(now);
        if record.is_expired(now) {
            return Ok(record);
        }
        if let State::Completed { answer, .. } = &mut record.state {
            let frame = frame.ok_or_else(|| damaged(&record.id, "its answer is missing"))?;
            *answer = wire::decode_answer(&record.id, frame).map_err(|e| damaged(&record.id, e))?;
        }
        Ok(record)
    }
}

/// The checksum of the columns that no statement changes by itself.
pub(super) fn still(record: &Record) -> u64 {
    let still = Record {
        state: State::Failed,
        created_at: Timestamp::default(),
        expires_at: Timestamp::default(),
        checkpoint: None,
        ..record.clone()
    };
    let head = u64::from(wire::head_checksum(&still));
    (head ^ u64::from(record.checkpoint.is_some())).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What a statement adds to the checksum of the record's row when it gives it its first recovery
/// point.
pub(super) fn first_point(record: &Record) -> i64 {
    let without = Record { checkpoint: None, ..record.clone() };
    let with = Record { checkpoint: Some(Checkpoint::new("", "")), ..without.clone() };
    (still(&without) ^ still(&with)).cast_signed()
}

/// The checksum of the others, as the function `moving` has it.
fn moving(record: &Record, version: i32, answer: Option<Place>) -> u64 {
    let (state, state_at) = wire::state_code(&record.state);
    let (bucket, row) = answer.map_or((0, 0), |place| (i64::from(place.bucket) + 1, place.row + 1));
    u64::from(state).rotate_left(58)
        ^ state_at.as_millis().rotate_left(41)
        ^ record.created_at.as_millis().rotate_left(7)
        ^ record.expires_at.as_millis().rotate_left(23)
        ^ i64::from(version).cast_unsigned().rotate_left(13)
        ^ bucket.cast_unsigned().rotate_left(33)
        ^ row.cast_unsigned().rotate_left(50)
}

/// The checksum of all columns.
pub(super) fn sum(record: &Record, version: i32, answer: Option<Place>) -> i64 {
    (still(record) ^ moving(record, version, answer)).cast_signed()
}

/// PostgreSQL's integers are signed; what is asked was cut to fit by [`fit`].
pub(super) fn time(timestamp: Timestamp) -> i64 {
    timestamp.as_millis().cast_signed()
}

/// As [`time`].
pub(super) fn millis(duration: Duration) -> i64 {
    time(Timestamp::default() + duration)
}

/// The ask with what a row can hold: no time that statements could not add to another, and no NUL
/// in a name.
pub(super) fn fit(ask: &Ask) -> Ask {
    let fitting = durable::fit(ask).into_owned();
    Ask { label: fit_label(fitting.label), ..fitting }
}

/// The label with what a row can hold.
pub(super) fn fit_label(label: Label) -> Label {
    let tenant_name = label.tenant_name.map(|name| name.replace('\0', "\u{fffd}").into());
    Label { tenant_name, ..label }
}

/// A recovery point as a column shows it to people: `text` has no place for a NUL.
pub(super) fn shown(checkpoint: &Checkpoint) -> String {
    checkpoint.recovery_point.replace('\0', "\u{fffd}")
}

/// The id that stands at `first`.
pub(super) fn id_at(row: &tokio_postgres::Row, first: usize) -> Result<RecordId, StoreError> {
    let bytes = row.try_get::<_, &[u8]>(first).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.map(RecordId::from_bytes).ok_or_else(|| {
        tracing::error!("a stored record's id is damaged");
        StoreError::new(selfsame_core::StoreErrorKind::Damaged, "a stored record's id is damaged")
    })
}

/// The time that stands at `at`.
pub(super) fn time_at(row: &tokio_postgres::Row, at: usize) -> Timestamp {
    Timestamp::from_millis(row.get::<_, i64>(at).cast_unsigned())
}

/// The record whose [`key_columns!`] begin at `first`, if its checksum fits.
pub(super) fn read(row: &tokio_postgres::Row, first: usize) -> Result<Row, StoreError> {
    let id = id_at(row, first)?;
    parse(row, first).map_err(|cause| damaged(&id, cause))
}

/// The column behind those.
pub(super) const fn behind(first: usize) -> usize {
    first + KEY_COLUMNS
}

type Cause = Box<dyn Error + Send + Sync>;

fn parse(row: &tokio_postgres::Row, first: usize) -> Result<Row, Cause> {
    let mut columns = Columns { row, next: first };
    let id = RecordId::from_bytes(columns.bytes()?);
    let fingerprint = Fingerprint::from_bytes(columns.bytes()?);
    let state = u8::try_from(columns.take::<i16>()?)?;
    let state_at = Timestamp::from_millis(columns.number()?);
    let answer = (state == COMPLETED).then(stand_in);
    let fence = Fence::from_number(columns.number()?);
    let attempt = columns.take::<i32>()?.cast_unsigned();
    let attempt_id = AttemptId::from_bytes(columns.bytes()?);
    let birth = match columns.take::<Option<&[u8]>>()? {
        Some(bytes) => Birth::from_bytes(bytes.try_into()?),
        None => Birth::by(attempt_id),
    };
    let recover = u8::try_from(columns.take::<i16>()?)?;
    let mut record = Record {
        id,
        fingerprint,
        state: wire::state_from_code(state, state_at, answer).ok_or("its state is unknown")?,
        fence,
        attempt,
        attempt_id,
        birth,
        recover: wire::recover_from_code(recover).ok_or("its recovery is unknown")?,
        checkpoint: None,
        created_at: Timestamp::from_millis(columns.number()?),
        expires_at: Timestamp::from_millis(columns.number()?),
        retention: Duration::from_millis(columns.number()?),
        remember: Duration::from_millis(columns.number()?),
        label: Label {
            tenant: TenantTag::from_bytes(columns.bytes()?),
            tenant_name: columns.take::<Option<&str>>()?.map(Into::into),
            key: Key::from_stored(columns.take()?).ok_or("its key is none")?,
            route: columns.take::<&str>()?.into(),
        },
        keepsake: None,
    };
    let recovery_point: Option<&str> = columns.take()?;
    let (bucket, place): (Option<i32>, Option<i64>) = (columns.take()?, columns.take()?);
    let answer = bucket.zip(place).map(|(bucket, row)| Place { bucket, row });
    let (version, stored_sum) = (columns.take()?, columns.take::<i64>()?);
    if let Some(frame) = columns.take::<Option<&[u8]>>()? {
        record.keepsake = Some(Box::new(wire::decode_keepsake(&id, frame)?));
    }
    if recovery_point.is_some() {
        let frame: Option<&[u8]> = columns.take()?;
        let frame = frame.ok_or("its checkpoint is missing")?;
        record.checkpoint = Some(wire::decode_checkpoint(&id, frame)?);
    }
    let is_shown = record.checkpoint.as_ref().map(shown).as_deref() == recovery_point;
    let is_answered = answer.is_some() == (state == COMPLETED);
    if !is_shown || !is_answered || sum(&record, version, answer) != stored_sum {
        return Err("the checksum does not fit".into());
    }
    Ok(Row { record, seen: Seen { id, attempt_id, version } })
}

struct Columns<'a> {
    row: &'a tokio_postgres::Row,
    next: usize,
}

impl<'a> Columns<'a> {
    fn take<T: FromSql<'a>>(&mut self) -> Result<T, tokio_postgres::Error> {
        let value = self.row.try_get(self.next);
        self.next += 1;
        value
    }

    fn number(&mut self) -> Result<u64, tokio_postgres::Error> {
        self.take::<i64>().map(i64::cast_unsigned)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Cause> {
        Ok(self.take::<&[u8]>()?.try_into()?)
    }
}
