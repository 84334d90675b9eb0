//! Answers, in tables of those that expire together.
//!
//! A completed record's expiry never moves, so an answer can be put with those that expire when
//! it does. They lie there in the order they came: taken away from the front, each page is freed as
//! a whole, where a million deletes here and there took half a minute. A full table is not dropped
//! at once: a million answers kept the only writer busy, and every claim waiting, for 600 ms.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::Connection;
use selfsame_core::Timestamp;

/// Buckets are counted in this unit.
const BUCKET_MS: u64 = 15 * 60 * 1000;

/// What is kept long goes into longer buckets, or a year's retention would mean 35,000 tables.
const LONG_RETENTION: Duration = Duration::from_secs(2 * 24 * 60 * 60);
const LONG_BUCKET: u64 = 6 * 4;

/// The most that is taken away at once.
const SLICE_ROWS: usize = 1024;
const SLICE_BYTES: i64 = 2 * 1024 * 1024;

const TABLE_PREFIX: &str = "answers_";

/// Where an answer lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) bucket: u64,
    pub(super) row: i64,
}

/// The answer's frame.
pub(super) fn answer_at(conn: &Connection, place: Place) -> rusqlite::Result<Vec<u8>> {
    let table = table(place.bucket);
    let mut statement = conn.prepare_cached(&format!("SELECT body FROM {table} WHERE row = ?1"))?;
    statement.query_row([place.row], |row| row.get(0))
}

/// The answer tables there are, as the writer knows them.
pub(super) struct Buckets {
    known: BTreeSet<u64>,
}

impl Buckets {
    pub(super) fn load(conn: &Connection) -> rusqlite::Result<Self> {
        let mut names =
            conn.prepare_cached("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
        let names = names.query_map([], |row| row.get::<_, String>(0))?;
        let number = |name: String| name.strip_prefix(TABLE_PREFIX)?.parse().ok();
        let known = names.filter_map(|name| name.map(number).transpose());
        Ok(Self { known: known.collect::<rusqlite::Result<_>>()? })
    }

    /// Appends an answer to the table of those that expire when it does.
    pub(super) fn append(
        &mut self,
        conn: &Connection,
        frame: &[u8],
        expires_at: Timestamp,
        now: Timestamp,
    ) -> rusqlite::Result<Place> {
        let bucket = bucket(expires_at, now);
        let table = table(bucket);
        if self.known.insert(bucket) {
            conn.execute_batch(&format!(
                "CREATE TABLE IF NOT EXISTS {table} \
                 (row INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT"
            ))?;
        }
        let mut insert = conn.prepare_cached(&format!("INSERT INTO {table} (body) VALUES (?1)"))?;
        let row = insert.insert([frame])?;
        Ok(Place { bucket, row })
    }

    /// Takes some answers away of the first table whose time is over, and with the last of them the
    /// table. Tells whether it has any left.
    pub(super) fn clear_some(
        &mut self,
        conn: &Connection,
        now: Timestamp,
    ) -> rusqlite::Result<bool> {
        let over = self.known.first().copied().filter(|&bucket| now >= end(bucket));
        let Some(bucket) = over else { return Ok(false) };
        let table = table(bucket);
        if let Some(last) = end_of_slice(conn, &table)? {
            conn.execute(&format!("DELETE FROM {table} WHERE row <= ?1"), [last])?;
            return Ok(true);
        }
        conn.execute_batch(&format!("DROP TABLE {table}"))?;
        self.known.remove(&bucket);
        Ok(false)
    }
}

/// The row up to which answers may be taken away at once, unless that is all of them.
fn end_of_slice(conn: &Connection, table: &str) -> rusqlite::Result<Option<i64>> {
    let mut rows = conn.prepare(&format!("SELECT row, length(body) FROM {table} ORDER BY row"))?;
    let mut rows = rows.query([])?;
    let (mut count, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        count += 1;
        bytes += row.get::<_, i64>(1)?;
        if count >= SLICE_ROWS || bytes >= SLICE_BYTES {
            return row.get(0).map(Some);
        }
    }
    Ok(None)
}

/// The bucket, named by its end, of what expires then.
fn bucket(expires_at: Timestamp, now: Timestamp) -> u64 {
    let bucket = expires_at.as_millis().div_ceil(BUCKET_MS);
    match expires_at.since(now) > LONG_RETENTION {
        true => bucket.next_multiple_of(LONG_BUCKET),
        false => bucket,
    }
}

fn end(bucket: u64) -> Timestamp {
    Timestamp::from_millis(bucket.saturating_mul(BUCKET_MS))
}

fn table(bucket: u64) -> String {
    format!("{TABLE_PREFIX}{bucket}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_millis(1_767_225_600_001)
    }

    #[test]
    fn no_bucket_ends_before_what_is_in_it() {
        for seconds in [0, 1, 899, 900, 86_400, 200_000, 90 * 86_400] {
            let expires_at = now() + Duration::from_secs(seconds);
            assert!(end(bucket(expires_at, now())) >= expires_at);
        }
    }

    #[test]
    fn what_never_expires_is_never_dropped() {
        let never = now() + Duration::MAX;
        assert_eq!(end(bucket(never, now())), never);
    }

    #[test]
    fn a_year_needs_few_tables() {
        let hours = 0..365 * 24;
        let expiries = hours.map(|hour| now() + Duration::from_secs(hour * 3600));
        let buckets: BTreeSet<u64> = expiries.map(|at| bucket(at, now())).collect();
        assert!(buckets.len() < 2000, "{} tables", buckets.len());
    }
}
