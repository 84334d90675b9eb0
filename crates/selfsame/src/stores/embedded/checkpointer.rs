//! Keeping the write-ahead log short, off the path of the commits.
//!
//! A thread with a connection of its own copies the log's pages into the file while the writer
//! goes on. Under steady load it never quite catches up, so the log would never begin anew: once
//! it is long, and the thread has done most of the work, the writer copies the little that is
//! left and begins the log at its start. The log's file is not cut but written over: a file
//! that grows costs up to three times as much per commit.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rusqlite::Connection;

use super::trouble::Health;

/// How many pages make a copy worth its syncs: 32 MiB.
const COPY_PAGES: u64 = 4096;

/// From this length on the log is to begin anew: 128 MiB.
const LONG_PAGES: u64 = 16_384;

/// What the writer may copy itself without being felt: 4 MiB.
const FEW_PAGES: u64 = 512;

/// How often the thread copies what was written during its last copy.
const ROUNDS_MAX: usize = 4;

/// The log as the writer sees it.
pub(super) struct Log {
    wake: SyncSender<()>,
    long_pages: u64,
}

impl Log {
    /// The writer's side, and what wakes the thread.
    pub(super) fn new() -> (Self, Receiver<()>) {
        let (wake, wakes) = sync_channel(1);
        (Self { wake, long_pages: LONG_PAGES }, wakes)
    }

    /// Called by the writer between two batches.
    pub(super) fn tend(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let length = checkpoint(conn, "PRAGMA wal_checkpoint(NOOP)")?;
        if length.left() >= COPY_PAGES {
            // Full means that the thread is awake, or about to be.
            let _ = self.wake.try_send(());
        }
        let is_long = length.pages >= self.long_pages;
        if is_long && (length.left() <= FEW_PAGES || length.pages >= 2 * LONG_PAGES) {
            let begun = !checkpoint(conn, "PRAGMA wal_checkpoint(RESTART)")?.is_kept;
            // With a long read in the way it is tried again later, and not after each commit.
            self.long_pages = if begun { LONG_PAGES } else { length.pages + COPY_PAGES };
        }
        Ok(())
    }
}

/// The thread: copies when woken, until the writer is gone or the disk fails.
pub(super) fn run(conn: &Connection, wakes: &Receiver<()>, health: &Health) {
    for () in wakes {
        for _ in 0..ROUNDS_MAX {
            match checkpoint(conn, "PRAGMA wal_checkpoint(PASSIVE)") {
                Ok(length) if length.left() <= FEW_PAGES / 2 => break,
                Ok(_) => {}
                Err(error) => {
                    health.judge(&error);
                    break;
                }
            }
        }
        if health.check().is_err() {
            return;
        }
    }
}

/// How long the log is, and how much of it has been copied.
struct Length {
    /// Whether somebody was in the way of what was asked for.
    is_kept: bool,
    pages: u64,
    copied: u64,
}

impl Length {
    fn left(&self) -> u64 {
        self.pages.saturating_sub(self.copied)
    }
}

fn checkpoint(conn: &Connection, pragma: &str) -> rusqlite::Result<Length> {
    // SQLite says -1 where it could not look.
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    conn.prepare_cached(pragma)?.query_row([], |row| {
        let (pages, copied) = (number(row.get(1)?), number(row.get(2)?));
        Ok(Length { is_kept: row.get(0)?, pages, copied })
    })
}
