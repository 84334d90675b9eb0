//! What is read beside the hot path: one record, or many.

use selfsame_core::{
    Count, Filter, Find, Record, RecordId, StateName, StoreError, Timestamp, Whose,
};
use tokio_postgres::types::ToSql;

use super::rows::{self, its_answer, its_checkpoint, key_columns};
use super::session::Session;
use super::trouble::Access;
use crate::stores::durable::{count_state, id_range};

/// How many rows are read at a time, because each may come with its answer.
const PAGE: usize = 64;

macro_rules! select_whole {
    ($which:literal) => {
        select_whole!("", $which)
    };
    ($more:literal, $which:literal) => {
        concat!(
            "with time as materialized (select selfsame.clock() as now) select time.now, ",
            key_columns!(),
            ", a.body",
            $more,
            " from time, (select * from selfsame.keys where ",
            $which,
            ") k",
            its_checkpoint!(),
            its_answer!(),
        )
    };
}

const GET: &str = select_whole!(", k.request", "id = $1::bytea");
const BY_KEY: &str = concat!(
    select_whole!("id > $1::bytea and key = $3::text order by id limit $2::bigint"),
    "order by k.id"
);
const MATCHING: &str = concat!(
    select_whole!(
        "id > $1::bytea and ($3::bytea is null and $4::text is null \
         or tenant = $3::bytea or tenant_name = $4::text) \
         and state = any ($5::smallint[]) and ($6::text is null or route = $6::text) \
         and ($7::bigint is null or created_at >= $7::bigint) order by id limit $2::bigint"
    ),
    "order by k.id"
);
const MAYBE_HELD: &str = concat!(
    select_whole!("id > $1::bytea and state in (1, 4) order by id limit $2::bigint"),
    "order by k.id"
);
const MAYBE_ABANDONED: &str = concat!(
    select_whole!(
        "id > $1::bytea and request is not null and state in (1, 4) order by id limit $2::bigint"
    ),
    "order by k.id"
);
const BY_ID: &str = concat!(
    select_whole!(
        "id > $1::bytea and id between $3::bytea and $4::bytea order by id limit $2::bigint"
    ),
    "order by k.id"
);

/// The record of `id`, unless it expired.
pub(super) async fn get(session: &Session, id: &RecordId) -> Result<Option<Record>, StoreError> {
    let found = read(session, GET, &[&&id.as_bytes()[..]]).await?;
    match found.first() {
        Some(row) => {
            let now = rows::time_at(row, 0);
            let read = rows::read(row, 1)?.with_request(row.get(rows::behind(1) + 1))?;
            Ok(read.whole(row.get(rows::behind(1)), now)?.seen_at(now))
        }
        None => Ok(None),
    }
}

/// Unexpired records that match, no more than `most`.
pub(super) async fn find(
    session: &Session,
    find: &Find,
    most: usize,
) -> Result<Vec<Record>, StoreError> {
    match find {
        Find::Key(key) => {
            // Neither a key nor a `text` has a NUL.
            let key = key.replace('\0', "\u{fffd}");
            collect(session, (BY_KEY, &[&key]), None, most, |_, _| true).await
        }
        Find::Held => collect(session, (MAYBE_HELD, &[]), None, most, Record::is_held).await,
        // What the statement selects keeps its request, and a claim is all that is not yet known.
        Find::Abandoned { after } => {
            let is_left = |record: &Record, now| !record.is_leased(now);
            collect(session, (MAYBE_ABANDONED, &[]), *after, most, is_left).await
        }
        Find::Matching { filter, after } => matching(session, filter, *after, most).await,
        Find::IdPrefix(prefix) => match id_range(prefix) {
            Some((low, high)) => {
                let ends: [&(dyn ToSql + Sync); 2] = [&&low[..], &&high[..]];
                collect(session, (BY_ID, &ends), None, most, |_, _| true).await
            }
            None => Ok(Vec::new()),
        },
    }
}

async fn matching(
    session: &Session,
    filter: &Filter,
    after: Option<RecordId>,
    most: usize,
) -> Result<Vec<Record>, StoreError> {
    let fit = |text: &String| text.replace('\0', "\u{fffd}");
    // A tag or a name that is null is nobody's, unless both are: then everybody's.
    let (tag, name) = match &filter.tenant {
        Some(Whose::Tag(tag)) => (Some(tag.as_bytes()), None),
        Some(Whose::Name(name)) => (None, Some(fit(name))),
        None => (None, None),
    };
    // What ageing makes of a state is for core's rules: the statement only leaves out what cannot be.
    let states: &[i16] = match filter.state {
        Some(StateName::Held) => &[1, 4],
        Some(StateName::Claimed) => &[1],
        Some(StateName::Completed) => &[2],
        Some(StateName::Failed) => &[3],
        Some(StateName::Tombstone) => &[2, 5],
        None => &[1, 2, 3, 4, 5],
    };
    let route = filter.route.as_ref().map(fit);
    let since = filter.since.map(rows::time);
    let wanted: [&(dyn ToSql + Sync); 5] = [&tag, &name, &states, &route, &since];
    let is_meant = |record: &Record, now| filter.lets_through(record, now);
    collect(session, (MATCHING, &wanted), after, most, is_meant).await
}

pub(super) async fn count(session: &Session) -> Result<Count, StoreError> {
    let mut count = Count::default();
    for row in read(session, include_str!("count.sql"), &[]).await? {
        let records = row.get::<_, i64>(1).cast_unsigned();
        // A number that is none counts nowhere either.
        count_state(&mut count, row.get::<_, i16>(0).try_into().unwrap_or(0), records);
    }
    Ok(count)
}

/// Bytes of the schema's tables, with their indexes.
pub(super) async fn bytes(session: &Session) -> Result<u64, StoreError> {
    let bytes = read(session, include_str!("bytes.sql"), &[]).await?;
    Ok(bytes[0].get::<_, i64>(0).try_into().unwrap_or(0))
}

pub(super) async fn now(session: &Session) -> Result<Timestamp, StoreError> {
    let time = read(session, "select selfsame.clock()", &[]).await?;
    Ok(rows::time_at(&time[0], 0))
}

/// Goes through the rows that a statement selects for what is wanted, in the order of ids behind
/// `after` and page by page. A damaged one has raised its alarm, and does not stop whoever looks at
/// many.
async fn collect(
    session: &Session,
    (sql, wanted): (&'static str, &[&(dyn ToSql + Sync)]),
    after: Option<RecordId>,
    most: usize,
    is_meant: impl Fn(&Record, Timestamp) -> bool,
) -> Result<Vec<Record>, StoreError> {
    let mut found = Vec::new();
    let mut after = after.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    loop {
        let limit = PAGE as i64;
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&after, &limit];
        params.extend(wanted);
        let page = read(session, sql, &params).await?;
        for row in &page {
            let Ok((record, now)) = whole(row) else { continue };
            if found.len() < most && is_meant(&record, now) {
                found.extend(record.seen_at(now));
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE && found.len() < most => {
                after = last.get::<_, &[u8]>(1).to_vec();
            }
            _ => return Ok(found),
        }
    }
}

/// The record of a row of [`select_whole!`], and the time.
fn whole(row: &tokio_postgres::Row) -> Result<(Record, Timestamp), StoreError> {
    let now = rows::time_at(row, 0);
    let record = rows::read(row, 1)?.whole(row.get(rows::behind(1)), now)?;
    Ok((record, now))
}

async fn read(
    session: &Session,
    sql: &'static str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<tokio_postgres::Row>, StoreError> {
    Ok(session.query(Access::Read, sql, params).await?)
}
