//! Cleaning, a stretch of the table at a time, by one process at a time.
//!
//! In the order in which rows lie there, and not in that of their ids: rows that came together expire
//! together, so each page is changed once.

use std::fmt;
use std::sync::LazyLock;

use selfsame_core::{AttemptId, Due, State, StoreError, Swept};
use tokio_postgres::types::ToSql;

use super::answers;
use super::rows::{self, Seen, its_checkpoint, key_columns};
use super::session::Session;
use super::trouble::{Access, Fault};
use super::writes::{Write, remove, remove_each, write};

/// Whoever has this lock sweeps, until its connection ends.
const LEAD: &str = "select pg_try_advisory_lock(hashtext('selfsame. sweep'))";

/// Behind a pooler no lock lasts: whoever wrote down its name last sweeps, until this long after.
const LEAD_FOR_MS: i64 = 60_000;
const LEAD_A_WHILE: &str = "insert into selfsame.facts as f (name, value) \
     values ('sweeper', int8send(selfsame.clock() + $2::bigint) || $1::bytea) \
     on conflict (name) do update set value = excluded.value \
     where substr(f.value, 9) = $1 \
     or ('x' || encode(substr(f.value, 1, 8), 'hex'))::bit(64)::bigint <= selfsame.clock() \
     returning true";

/// The name of this process.
static PROCESS: LazyLock<AttemptId> = LazyLock::new(AttemptId::random);

/// How many pages are looked through at once, where few of them hold anything.
const PAGES_MAX: u32 = 1000;

/// How many keys lie in the next stretch, and where the last of them does; how many pages there are;
/// and how many keys are gone.
const EXPIRE: &str = include_str!("expire.sql");

/// Those of a stretch with which there may be something to do, in no order: asked for that of their
/// ids, the database would walk through the whole index.
const MAYBE_DUE: &str = concat!(
    "with time as materialized (select selfsame.clock() as now) select time.now, ",
    key_columns!(),
    " from time cross join lateral (select * from selfsame.keys x \
     where x.ctid > $1::text::tid and x.ctid <= $2::text::tid \
     and (x.expires_at <= time.now or (x.state = 1 and x.state_at <= time.now))) k",
    its_checkpoint!()
);

/// A place in the table: a page, and a row on it, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spot {
    page: u32,
    row: u16,
}

/// As a `tid` is written.
impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.page, self.row)
    }
}

impl Spot {
    fn read(text: &str) -> Option<Self> {
        let (page, row) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
        Some(Self { page: page.parse().ok()?, row: row.parse().ok()? })
    }
}

/// Sweeps the stretch behind `after`, and returns where it ends, unless the store ends there.
pub(super) async fn sweep(
    session: &Session,
    after: Spot,
    most: usize,
) -> Result<(Swept, Option<Spot>), StoreError> {
    if !lead(session).await? {
        return Ok((Swept { finished: true, ..Swept::default() }, None));
    }
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let farthest = Spot { page: after.page.saturating_add(PAGES_MAX), row: 0 };
    let expire = async |deletes: bool| {
        let (after, farthest) = (after.to_string(), farthest.to_string());
        let params: [&(dyn ToSql + Sync); 4] = [&after, &farthest, &limit, &deletes];
        session.query(Access::Write, EXPIRE, &params).await
    };
    let stretch = match expire(true).await {
        // Of the rows that expired, some are referred to: `clean` removes the others.
        Err(fault) if fault.is_of_another_table() => expire(false).await?,
        expired => expired?,
    };
    let (found, pages): (i64, i64) = (stretch[0].get(0), stretch[0].get(2));
    let (last, expired): (Option<&str>, i64) = (stretch[0].get(1), stretch[0].get(3));
    let end = last.and_then(Spot::read).filter(|_| found >= limit).unwrap_or(farthest);
    let finished = end == farthest && i64::from(end.page) >= pages;
    let mut swept = Swept { finished, ..Swept::default() };
    if expired < found {
        clean(session, &after.to_string(), &end.to_string(), &mut swept).await?;
    }
    swept.removed += usize::try_from(expired).unwrap_or_default();
    if finished {
        answers::tend(session).await?;
    }
    Ok((swept, Some(end).filter(|_| !finished)))
}

pub(super) async fn lead(session: &Session) -> Result<bool, Fault> {
    if session.is_pooled() {
        let process = &PROCESS.as_bytes()[..];
        let won = session.query(Access::Write, LEAD_A_WHILE, &[&process, &LEAD_FOR_MS]).await?;
        return Ok(!won.is_empty());
    }
    if session.leads() {
        return Ok(true);
    }
    let has_won = session.query(Access::Read, LEAD, &[]).await?[0].get(0);
    if has_won {
        session.set_leads();
    }
    Ok(has_won)
}

/// Does what core's rules say is due to the keys behind `after` up to `end`, as they were seen, or
/// leaves them to the next walk.
async fn clean(session: &Session, after: &str, end: &str, swept: &mut Swept) -> Result<(), Fault> {
    let (mut expired, mut writes) = (Vec::new(), Vec::new());
    let mut buried = Vec::new();
    for row in session.query(Access::Read, MAYBE_DUE, &[&after, &end]).await? {
        let now = rows::time_at(&row, 0);
        // A damaged one has raised its alarm.
        let Ok(read) = rows::read(&row, 1) else { continue };
        let (mut record, seen) = (read.record, read.seen);
        match record.due(now) {
            Some(Due::Removal) => expired.push(seen),
            Some(Due::Burial) => {
                record.bury(now);
                buried.push(seen.id);
                writes.push(Write::new(seen, record));
            }
            Some(Due::Hold) => {
                record.settle(now);
                writes.push(Write::new(seen, record));
            }
            None => {}
        }
    }
    expired.sort_unstable_by_key(|seen: &Seen| seen.id);
    writes.sort_unstable_by_key(|write| write.record.id);
    if !expired.is_empty() {
        swept.removed = remove_expired(session, &expired).await?;
    }
    if !writes.is_empty() {
        let written = write(session, &writes).await?;
        swept.buried = buried.iter().filter(|id| written.contains(id)).count();
        let held = writes.into_iter().map(|write| write.record);
        let held = held.filter(|record| matches!(record.state, State::Held { .. }));
        swept.held = held.filter(|record| written.contains(&record.id)).collect();
    }
    Ok(())
}

/// Removes rows, except those that another table does not let go.
async fn remove_expired(session: &Session, expired: &[Seen]) -> Result<usize, Fault> {
    let fault = match remove(session, expired).await {
        Err(fault) if fault.is_of_another_table() => fault,
        removed => return Ok(removed?.len()),
    };
    let removed = remove_each(session, expired).await?.len();
    if session.warns_of_references() {
        tracing::warn!(
            cause = %fault.error(),
            kept = expired.len() - removed,
            "expired keys stay because other tables refer to them; declare their foreign keys \
             `on delete set null` or `on delete cascade`"
        );
    }
    Ok(removed)
}
