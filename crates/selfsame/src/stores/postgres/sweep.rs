//! Cleaning, a stretch of keys at a time, by one process at a time.

use std::sync::LazyLock;

use selfsame_core::{AttemptId, Due, StoreError, Swept};

use super::answers;
use super::rows::{self, its_checkpoint, key_columns};
use super::session::Session;
use super::trouble::{Access, Fault};
use super::writes::{Write, remove, write};

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

/// How many keys lie in the next stretch, and the last of them.
const STRETCH: &str = "select count(*), (array_agg(id order by id desc))[1] from \
     (select id from selfsame.keys where id > $1::bytea order by id limit $2::bigint) k";

/// Those of a stretch with which there may be something to do.
const MAYBE_DUE: &str = concat!(
    "with time as materialized (select selfsame.clock() as now) select time.now, ",
    key_columns!(),
    " from time cross join lateral (select * from selfsame.keys x \
     where x.id > $1::bytea and x.id <= $2::bytea \
     and (x.expires_at <= time.now or (x.state = 1 and x.state_at <= time.now))) k",
    its_checkpoint!(),
    "order by k.id"
);

/// Sweeps the stretch behind `after`, and returns where it ends, unless the store ends there.
pub(super) async fn sweep(
    session: &Session,
    after: &[u8],
    most: usize,
) -> Result<(Swept, Option<Vec<u8>>), StoreError> {
    if !lead(session).await? {
        return Ok((Swept { finished: true, ..Swept::default() }, None));
    }
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let stretch = session.query(Access::Read, STRETCH, &[&after, &limit]).await?;
    let last: Option<Vec<u8>> = stretch[0].get(1);
    let mut swept = Swept { finished: stretch[0].get::<_, i64>(0) < limit, ..Swept::default() };
    if let Some(last) = &last {
        clean(session, after, last, &mut swept).await?;
    }
    if swept.finished {
        answers::tend(session).await?;
    }
    Ok((swept, last.filter(|_| !swept.finished)))
}

async fn lead(session: &Session) -> Result<bool, Fault> {
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

/// Does what is due to the keys behind `after` up to `last`, as they were seen, or leaves them to
/// the next walk.
async fn clean(
    session: &Session,
    after: &[u8],
    last: &[u8],
    swept: &mut Swept,
) -> Result<(), Fault> {
    let (mut expired, mut writes) = (Vec::new(), Vec::new());
    let mut buried = Vec::new();
    for row in session.query(Access::Read, MAYBE_DUE, &[&after, &last]).await? {
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
    if !expired.is_empty() {
        swept.removed = remove(session, &expired).await?.len();
    }
    if !writes.is_empty() {
        let written = write(session, &writes).await?;
        swept.buried = buried.iter().filter(|id| written.contains(id)).count();
        swept.held = written.len() - swept.buried;
    }
    Ok(())
}
