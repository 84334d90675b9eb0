//! The store's file, looked at while no gateway has it open.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;

/// The file in the store's `folder`.
pub(crate) fn open_records(folder: &Path) -> Connection {
    Connection::open(folder.join("records.db")).expect("a SQLite file")
}

/// Row 12: whatever was going on when the gateway died, the file is whole. A copy is looked at:
/// the next gateway shall find the original as it was left.
pub(crate) fn assert_whole(folder: &Path) {
    let copy = TempDir::new().expect("a temporary folder");
    for name in ["records.db", "records.db-wal"] {
        let from = folder.join(name);
        if from.exists() {
            fs::copy(from, copy.path().join(name)).expect("copied");
        }
    }
    let records = open_records(copy.path());
    let verdict = records.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    assert_eq!(verdict.expect("readable"), "ok");
}
