//! Completions of many callers: the answers and the key rows they belong to, in one statement.

use std::collections::HashMap;

use selfsame_core::{Lease, RecordId, StoreError, Timestamp};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::lane::{Call, is_sent, one_for_each};
use super::session::Session;
use super::trouble::{Access, Fault};
use super::{answers, rows};

const COMPLETE_MANY: &str = concat!(
    "with given as (select * from unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bytea[]) \
     as g(id, attempt_id, fence, body))",
    include_str!("complete.sql")
);

/// Also made in the transaction of a service, see `journal`.
pub(super) const COMPLETE_ONE: &str = concat!(
    "with given as (select * from (values ($1::bytea, $2::bytea, $3::bigint, $4::bytea)) \
     as g(id, attempt_id, fence, body))",
    include_str!("complete.sql")
);

/// An answer to be recorded under a lease.
pub(super) struct Completion {
    pub(super) lease: Lease,
    /// The answer, encoded by its caller: the lane has enough to do.
    pub(super) frame: Vec<u8>,
}

impl Call for Completion {
    /// When the key expires, if the answer was recorded now.
    type Outcome = Option<Timestamp>;

    fn bytes(&self) -> usize {
        self.frame.len()
    }

    async fn make(
        session: &Session,
        calls: &[Self],
    ) -> Result<Vec<Result<Self::Outcome, StoreError>>, Fault> {
        // A second one of a key finds it completed.
        let sent = one_for_each(calls, |call| call.lease.id);
        let recorded = match record(session, &sent).await {
            Err(fault) if fault.code == Some(SqlState::CHECK_VIOLATION) => {
                // No table has room for an answer that is kept so long.
                let ids: Vec<_> = sent.iter().map(|call| call.lease.id).collect();
                answers::make_room(session, &ids).await?;
                record(session, &sent).await?
            }
            other => other?,
        };
        let outcome = |call: &Self| match is_sent(&sent, call) {
            true => recorded.get(&call.lease.id).copied(),
            false => None,
        };
        Ok(calls.iter().map(|call| Ok(outcome(call))).collect())
    }
}

async fn record(
    session: &Session,
    calls: &[&Completion],
) -> Result<HashMap<RecordId, Timestamp>, Fault> {
    let ids: Vec<_> = calls.iter().map(|call| &call.lease.id.as_bytes()[..]).collect();
    let attempt_ids: Vec<_> =
        calls.iter().map(|call| &call.lease.attempt_id.as_bytes()[..]).collect();
    let fences: Vec<_> = calls.iter().map(|call| call.lease.fence.number().cast_signed()).collect();
    let frames: Vec<_> = calls.iter().map(|call| call.frame.as_slice()).collect();
    let many: [&(dyn ToSql + Sync); 4] = [&ids, &attempt_ids, &fences, &frames];
    let rows = match calls {
        [_] => {
            let one: [&(dyn ToSql + Sync); 4] = [&ids[0], &attempt_ids[0], &fences[0], &frames[0]];
            session.query(Access::Write, COMPLETE_ONE, &one).await?
        }
        _ => session.query(Access::Write, COMPLETE_MANY, &many).await?,
    };
    let until = |row: &tokio_postgres::Row| rows::time_at(row, 1);
    Ok(rows.iter().filter_map(|row| Some((rows::id_at(row, 0).ok()?, until(row)))).collect())
}
