//! [`Snapshot`]: what is read beside the writer, each time as of one moment.

use std::sync::Arc;

use rusqlite::{Connection, Params, Rows, params};
use selfsame_core::{Ask, Claimed, Clock, Count, Find, Record, RecordId, Timestamp};

use super::Leases;
use super::facts::{Boot, fact};
use super::rows::{self, Row, select_keys, time};
use super::trouble::Trouble;
use crate::stores::columns::{count_state, id_range};

/// A read connection and what belongs to it.
pub(super) struct Snapshot {
    conn: Connection,
    clock: Arc<dyn Clock>,
    boot: Boot,
    now: Timestamp,
}

/// A stretch of the store in the order of ids, as a sweep sees it.
pub(super) struct Stretch {
    /// Records with which there is something to do.
    pub(super) due: Vec<RecordId>,
    /// The id it ends with, unless the store ends there.
    pub(super) last: Option<Vec<u8>>,
}

/// A row met on the way through many.
struct Met {
    id: Vec<u8>,
    /// Absent where it is damaged.
    row: Option<Row>,
}

impl Snapshot {
    pub(super) fn new(conn: Connection, clock: Arc<dyn Clock>, boot: Boot) -> Self {
        let now = clock.now();
        Self { conn, clock, boot, now }
    }

    /// Begins to read, as of now. The state is fixed before the time is taken: the other way
    /// round, a table could be dropped in between and its answers seem lost, not expired.
    pub(super) fn begin(&mut self) -> rusqlite::Result<()> {
        self.conn.prepare_cached("BEGIN")?.execute([])?;
        self.conn.prepare_cached("SELECT 1 FROM sqlite_schema LIMIT 1")?.exists([])?;
        self.now = self.clock.now();
        Ok(())
    }

    pub(super) fn end(&mut self) -> rusqlite::Result<()> {
        match self.conn.is_autocommit() {
            true => Ok(()),
            false => self.conn.prepare_cached("COMMIT")?.execute([]).map(drop),
        }
    }

    /// What a claim comes to, where that needs no write, and by which record. That a key is free is
    /// never said here.
    pub(super) fn settled(&self, ask: &Ask) -> Result<Option<(Claimed, Record)>, Trouble> {
        let Some(row) = rows::find(&self.conn, &ask.id, self.boot)? else { return Ok(None) };
        let record = row.whole(&self.conn, self.now)?;
        match selfsame_core::claim(Some(&record), ask, self.now) {
            (claimed, None) => Ok(Some((claimed, record))),
            (_, Some(_)) => Ok(None),
        }
    }

    pub(super) fn get(&self, id: &RecordId) -> Result<Option<Record>, Trouble> {
        match rows::find(&self.conn, id, self.boot)? {
            Some(row) if !row.record.is_expired(self.now) => {
                row.whole(&self.conn, self.now).map(Some)
            }
            _ => Ok(None),
        }
    }

    pub(super) fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, Trouble> {
        match find {
            Find::Key(key) => self.collect(select_keys!("WHERE key = ?1"), [key], most, |_| true),
            Find::Held => {
                let is_held = |record: &Record| record.is_held(self.now);
                self.collect(select_keys!("WHERE state IN (1, 4)"), [], most, is_held)
            }
            Find::IdPrefix(prefix) => match id_range(prefix) {
                Some((low, high)) => {
                    let ids = params![low, high];
                    self.collect(select_keys!("WHERE id BETWEEN ?1 AND ?2"), ids, most, |_| true)
                }
                None => Ok(Vec::new()),
            },
        }
    }

    pub(super) fn count(&self) -> Result<Count, Trouble> {
        let mut statement = self.conn.prepare_cached(include_str!("count.sql"))?;
        let keep = self.boot.leases == Leases::Keep;
        let mut rows =
            statement.query(params![time(self.now), self.boot.number.cast_signed(), keep])?;
        let mut count = Count::default();
        while let Some(row) = rows.next()? {
            let records = row.get::<_, i64>(1)?.cast_unsigned();
            count_state(&mut count, row.get(0)?, records);
        }
        Ok(count)
    }

    /// Looks at no more than `most` records after `after`. In the order of ids, so that what a
    /// sweep deletes lies together in the tree.
    pub(super) fn walk(&self, after: &[u8], most: usize) -> Result<Stretch, Trouble> {
        let sql = select_keys!("WHERE id > ?1 ORDER BY id LIMIT ?2");
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params![after, i64::try_from(most).unwrap_or(i64::MAX)])?;
        let mut stretch = Stretch { due: Vec::new(), last: None };
        let mut seen = 0;
        while let Some(Met { id, row }) = self.next(&mut rows)? {
            seen += 1;
            stretch.last = Some(id);
            let record = row.map(|row| row.record);
            stretch
                .due
                .extend(record.filter(|record| record.due(self.now).is_some()).map(|r| r.id));
        }
        stretch.last.take_if(|_| seen < most);
        Ok(stretch)
    }

    pub(super) fn fact(&self, name: &str) -> Result<Option<Vec<u8>>, Trouble> {
        Ok(fact(&self.conn, name)?)
    }

    fn collect(
        &self,
        sql: &str,
        params: impl Params,
        most: usize,
        is_meant: impl Fn(&Record) -> bool,
    ) -> Result<Vec<Record>, Trouble> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut found = Vec::new();
        while found.len() < most
            && let Some(Met { row, .. }) = self.next(&mut rows)?
        {
            let meant = |row: &Row| !row.record.is_expired(self.now) && is_meant(&row.record);
            match row.filter(meant).map(|row| row.whole(&self.conn, self.now)) {
                Some(Err(Trouble::Sqlite(error))) => return Err(Trouble::Sqlite(error)),
                Some(Ok(record)) => found.push(record),
                Some(Err(Trouble::Damaged(_))) | None => {}
            }
        }
        Ok(found)
    }

    /// The next row. A damaged one has raised its alarm, and does not stop whoever looks at many.
    fn next(&self, rows: &mut Rows<'_>) -> Result<Option<Met>, Trouble> {
        let Some(row) = rows.next()? else { return Ok(None) };
        let id = row.get_ref(0)?.as_bytes().unwrap_or_default().to_vec();
        let Ok(known) = id.as_slice().try_into().map(RecordId::from_bytes) else {
            tracing::error!("a stored record's id is damaged");
            return Ok(Some(Met { id, row: None }));
        };
        match rows::read(&self.conn, &known, row, self.boot) {
            Ok(row) => Ok(Some(Met { id, row: Some(row) })),
            Err(Trouble::Damaged(_)) => Ok(Some(Met { id, row: None })),
            Err(trouble) => Err(trouble),
        }
    }
}
