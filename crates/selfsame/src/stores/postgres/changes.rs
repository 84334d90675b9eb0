//! One record, changed by core's rules: read, decided, and written if it is still as it was read.

use std::time::Duration;

use selfsame_core::{Record, RecordId, StoreError, Timestamp};
use tokio::time::Instant;

use super::erase;
use super::link::Link;
use super::rows::{self, Row, Seen, its_checkpoint, key_columns};
use super::session::Session;
use super::trouble::{Access, Fault};
use super::writes::{Write, remove, write};

/// How long a row is left alone that somebody else changes or has locked.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

const READ: &str = concat!(
    "select n.now, ",
    key_columns!(),
    " from (select selfsame.clock() as now) n \
     left join lateral (select * from selfsame.keys where id = $1::bytea limit 1) k on true",
    its_checkpoint!()
);

/// What becomes of a record, and what its caller is told then.
pub(super) enum Change<T> {
    Nothing(T),
    Write(Box<Write>, T),
    /// The row goes; where rows of other tables refer to it, it is replaced instead.
    Remove {
        seen: Seen,
        or_else: Box<Write>,
        outcome: T,
    },
    /// It is a tombstone now, and nothing is kept of it.
    Erase(Seen, Box<Record>, T),
}

/// Changes the record `id` as `decide` says, given it and the time. No lock is waited for: whoever
/// is behind this call on the connection would wait too.
pub(super) async fn change<T>(
    link: &Link,
    id: &RecordId,
    time_out: Duration,
    decide: impl Fn(Option<Row>, Timestamp) -> Change<T>,
) -> Result<T, StoreError> {
    let until = Instant::now() + time_out;
    let session = link.session().await?;
    loop {
        let (row, now) = read(&session, id).await?;
        let (is_made, outcome) = match decide(row, now) {
            Change::Nothing(outcome) => (Ok(true), outcome),
            Change::Write(change, outcome) => {
                (write(&session, &[*change]).await.map(|made| !made.is_empty()), outcome)
            }
            Change::Remove { seen, or_else, outcome } => {
                let made = match remove(&session, &[seen]).await {
                    Err(fault) if fault.is_of_another_table() => write(&session, &[*or_else]).await,
                    removed => removed,
                };
                (made.map(|made| !made.is_empty()), outcome)
            }
            Change::Erase(seen, record, outcome) => {
                (erase::write(&session, seen, &record).await, outcome)
            }
        };
        if is_made? {
            return Ok(outcome);
        }
        if Instant::now() + PAUSE > until {
            return Err(Fault::not_written("the record's row is locked").error());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The row of `id`, without its answer, and the time.
pub(super) async fn read(
    session: &Session,
    id: &RecordId,
) -> Result<(Option<Row>, Timestamp), StoreError> {
    let found = session.query(Access::Read, READ, &[&&id.as_bytes()[..]]).await;
    let found = found?;
    let row = found.first().expect("there is always a time");
    let now = rows::time_at(row, 0);
    match row.get::<_, Option<&[u8]>>(1) {
        Some(_) => Ok((Some(rows::read(row, 1)?), now)),
        None => Ok((None, now)),
    }
}
