//! Answers, in a table for each day of expiry that is dropped whole when the day is over.
//!
//! A completed record's expiry never moves, so an answer can be put with those that expire when it
//! does. Tables are made days ahead; an answer that is kept longer has its own made when it comes.

use std::time::Duration;

use selfsame_core::{RecordId, Timestamp};

use super::rows::{self, Place};
use super::session::Session;
use super::trouble::{Access, Fault};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// How many days there is always room for.
const DAYS_AHEAD: i32 = 3;

/// Also for the day after: it may be midnight.
const MAKE_ROOM: &str = "select selfsame.make_answers(array(select b + later from (\
     select (greatest(expires_at, selfsame.clock() + least(retention_ms, 3600000)) / 86400000)::int \
     as b from selfsame.keys where id = any($1::bytea[])) k, generate_series(0, 1) later))";

const MAKE_ROOM_UNTIL: &str = "select selfsame.make_answers(array(select \
     ((selfsame.clock() + left_ms) / 86400000)::int + later \
     from unnest($1::bigint[]) as g(left_ms), generate_series(0, 1) later))";

const MAKE_AHEAD: &str = "select selfsame.make_answers(array(select \
     (selfsame.clock() / 86400000)::int + ahead from generate_series(0, $1::integer) ahead))";

/// Makes the tables that the answers of these keys need, if they are completed now.
pub(super) async fn make_room(session: &Session, ids: &[RecordId]) -> Result<(), Fault> {
    let ids: Vec<_> = ids.iter().map(|id| &id.as_bytes()[..]).collect();
    session.query(Access::Read, MAKE_ROOM, &[&ids]).await.map(drop)
}

/// Makes the tables for answers that expire so long from now.
pub(super) async fn make_room_until(session: &Session, left: &[Duration]) -> Result<(), Fault> {
    let left: Vec<_> = left.iter().map(|left| rows::millis(*left)).collect();
    session.query(Access::Read, MAKE_ROOM_UNTIL, &[&left]).await.map(drop)
}

/// A number for an answer that is not recorded by the statement for completions.
pub(super) async fn next_row(session: &Session) -> Result<i64, Fault> {
    let next = session.query(Access::Read, "select nextval('selfsame.answer_rows')", &[]).await?;
    Ok(next[0].get(0))
}

/// Where the answer of that number lies, if it expires then.
pub(super) fn place(row: i64, expires_at: Timestamp) -> Place {
    let bucket = expires_at.as_millis() / DAY_MS;
    Place { bucket: i32::try_from(bucket).expect("no key lives that long"), row }
}

/// Makes room for the days to come, and drops what is over.
pub(super) async fn tend(session: &Session) -> Result<(), Fault> {
    session.query(Access::Read, MAKE_AHEAD, &[&DAYS_AHEAD]).await?;
    let dropped = session.query(Access::Read, "select selfsame.drop_answers()", &[]).await?;
    let dropped: i32 = dropped[0].get(0);
    if dropped > 0 {
        tracing::info!(dropped, "the answers of days that are over are gone");
    }
    Ok(())
}
