//! Erasure of a record: a tombstone stays, and its answer, its checkpoint and its journal go with the same
//! statement.

use selfsame_core::{Erased, Record, RecordId, StoreError, Timestamp, wire};
use tokio_postgres::types::ToSql;

use super::PostgresStore;
use super::changes::{Change, change};
use super::rows::{self, Row, Seen};
use super::session::Session;
use super::trouble::{Access, Fault};

pub(super) async fn erase(store: &PostgresStore, id: &RecordId) -> Result<Erased, StoreError> {
    let decide = |row: Option<Row>, now: Timestamp| {
        let Some(Row { mut record, seen }) = row.filter(|row| !row.record.is_expired(now)) else {
            return Change::Nothing(Erased::Missing);
        };
        match record.erase(now) {
            Erased::Done => Change::Erase(seen, Box::new(record), Erased::Done),
            refused => Change::Nothing(refused),
        }
    };
    change(&store.aside, id, store.target.time_out, decide).await
}

/// Makes the row a tombstone, if it is still as it was seen.
pub(super) async fn write(session: &Session, seen: Seen, record: &Record) -> Result<bool, Fault> {
    let (state, state_at) = wire::state_code(&record.state);
    let sum = rows::sum(record, seen.version.wrapping_add(1), None);
    let (state, state_at) = (i16::from(state), rows::time(state_at));
    let expires_at = rows::time(record.expires_at);
    let params: [&(dyn ToSql + Sync); 7] = [
        &&seen.id.as_bytes()[..],
        &&seen.attempt_id.as_bytes()[..],
        &seen.version,
        &state,
        &state_at,
        &expires_at,
        &sum,
    ];
    let erased = session.query(Access::Write, include_str!("erase.sql"), &params).await?;
    Ok(!erased.is_empty())
}
