//! Answers, in tables that are dropped whole when all in them has expired.
//!
//! A completed record's expiry never moves, so an answer can be put with those that expire when
//! it does. A million deletes took half a minute; a dropped table takes half a second.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::Connection;
use selfsame_core::Timestamp;

/// Buckets are counted in this unit, and this short: a drop keeps the only writer busy.
const BUCKET_MS: u64 = 15 * 60 * 1000;

/// What is kept long goes into longer buckets, or a year's retention would mean 35,000 tables.
const LONG_RETENTION: Duration = Duration::from_secs(2 * 24 * 60 * 60);
const LONG_BUCKET: u64 = 6 * 4;

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
                "CREATE TABLE {table} (row INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT"
            ))?;
        }
        let mut insert = conn.prepare_cached(&format!("INSERT INTO {table} (body) VALUES (?1)"))?;
        let row = insert.insert([frame])?;
        Ok(Place { bucket, row })
    }

    /// Drops one table whose answers have all expired.
    pub(super) fn drop_one(&mut self, conn: &Connection, now: Timestamp) -> rusqlite::Result<()> {
        let over = self.known.first().copied().filter(|&bucket| now >= end(bucket));
        if let Some(bucket) = over {
            conn.execute_batch(&format!("DROP TABLE {}", table(bucket)))?;
            self.known.remove(&bucket);
        }
        Ok(())
    }
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
