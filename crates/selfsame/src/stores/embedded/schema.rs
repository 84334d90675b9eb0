//! `records.db`: its format, and the connections to it.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, ffi};

use super::OpenError;

/// The format this build writes.
const FORMAT: i64 = 1;

/// "SELF": what `file` and `sqlite3` know our files by.
const APPLICATION_ID: i64 = 0x5345_4c46;

/// Only an operator's `sqlite3` can be in the way, and only for a moment.
const BUSY_TIME_OUT: Duration = Duration::from_millis(20);

/// Small, because SQLite walks the whole cache at the end of a commit that split a page; what is
/// not in it is in the system's cache.
const CACHE_KIB: i64 = 4 * 1024;

/// Of an answer of usual size several fit, so that little is left over; and few pages split.
const PAGE_BYTES: i64 = 8192;

/// A day's worth of answer tables, and the other statements.
const STATEMENTS_MAX: usize = 128;

/// The connection that writes, over a file of the right format.
pub(super) fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    let failed = |source| failure(path, source);
    let conn = Connection::open(path).map_err(failed)?;
    // Says nothing to a file that is there already.
    conn.pragma_update(None, "page_size", PAGE_BYTES).map_err(failed)?;
    prepare(&conn).map_err(failed)?;
    match format_of(&conn).map_err(failed)? {
        Format::Empty => create(&conn).map_err(failed)?,
        Format::Ours(FORMAT) => {}
        Format::Ours(found) if found > FORMAT => {
            return Err(OpenError::Newer { path: path.to_owned(), found, known: FORMAT });
        }
        Format::Ours(_) | Format::Foreign => {
            return Err(OpenError::Foreign { path: path.to_owned() });
        }
    }
    make_durable(&conn).map_err(failed)?;
    Ok(conn)
}

/// The connection of the thread that moves the log into the file.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, OpenError> {
    let open = || -> rusqlite::Result<Connection> {
        let conn = Connection::open(path)?;
        prepare(&conn)?;
        make_durable(&conn)?;
        Ok(conn)
    };
    open().map_err(|source| failure(path, source))
}

/// A connection that can only read.
pub(super) fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> rusqlite::Result<Connection> {
        let conn = Connection::open_with_flags(path, flags)?;
        prepare(&conn)?;
        Ok(conn)
    };
    open().map_err(|source| failure(path, source))
}

fn failure(path: &Path, source: rusqlite::Error) -> OpenError {
    match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => OpenError::Foreign { path: path.to_owned() },
        _ => OpenError::File { path: path.to_owned(), source: source.into() },
    }
}

fn prepare(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY_TIME_OUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    conn.pragma_update(None, "temp_store", "memory")
}

/// Every commit is on the disk when it returns, and moves nothing out of the log by itself: at
/// SQLite's default of 1,000 pages that was the whole of the slowest requests' time.
fn make_durable(conn: &Connection) -> rusqlite::Result<()> {
    let mode =
        conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))?;
    if mode != "wal" {
        return Err(rusqlite::Error::SqliteFailure(
            ffi::Error::new(ffi::SQLITE_CANTOPEN),
            Some("this file system cannot share memory between connections".to_owned()),
        ));
    }
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))
}

enum Format {
    Empty,
    Ours(i64),
    Foreign,
}

fn format_of(conn: &Connection) -> rusqlite::Result<Format> {
    let number = |pragma| conn.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let (application, format) = (number("application_id")?, number("user_version")?);
    let table = conn.query_row("SELECT 1 FROM sqlite_schema", [], |_| Ok(())).optional()?;
    Ok(match (application, table) {
        (APPLICATION_ID, _) => Format::Ours(format),
        (0, None) => Format::Empty,
        _ => Format::Foreign,
    })
}

/// One transaction, so that a crash in its middle leaves an empty file and not half a schema.
fn create(conn: &Connection) -> rusqlite::Result<()> {
    let schema = include_str!("schema.sql");
    conn.execute_batch(&format!(
        "BEGIN IMMEDIATE;
         PRAGMA application_id = {APPLICATION_ID};
         PRAGMA user_version = {FORMAT};
         {schema}
         COMMIT;"
    ))
}
