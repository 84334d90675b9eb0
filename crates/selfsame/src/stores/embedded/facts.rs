//! Small values under a name, and the one that counts the starts of the store.

use rusqlite::{Connection, OptionalExtension, params};

use super::Leases;

/// Kept beside the facts of the installation, under a name that is none of theirs.
const BOOT_FACT: &str = "embedded/boot";

/// Which start of the store this is, and what it makes of the leases of earlier ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Boot {
    pub(super) number: u64,
    pub(super) leases: Leases,
}

impl Boot {
    /// Counts this start. Where leases outlive their boot nothing is written: a store on a full
    /// disk must still open, and replay.
    pub(super) fn begin(conn: &Connection, leases: Leases) -> rusqlite::Result<Self> {
        let last = fact(conn, BOOT_FACT)?.and_then(|text| String::from_utf8(text).ok());
        let mut number = last.and_then(|text| text.parse().ok()).unwrap_or(0);
        if leases == Leases::EndAtBoot {
            number += 1;
            set_fact(conn, BOOT_FACT, number.to_string().as_bytes())?;
        }
        Ok(Self { number, leases })
    }

    /// Whether a lease of the start `number` is over, whatever its time.
    pub(super) fn ends_leases_of(self, number: u64) -> bool {
        self.leases == Leases::EndAtBoot && self.number != number
    }
}

/// The value under `name`.
pub(super) fn fact(conn: &Connection, name: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = conn.prepare_cached("SELECT value FROM facts WHERE name = ?1")?;
    statement.query_row([name], |row| row.get(0)).optional()
}

/// Puts `value` under `name`.
pub(super) fn set_fact(conn: &Connection, name: &str, value: &[u8]) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached("REPLACE INTO facts VALUES (?1, ?2)")?;
    statement.execute(params![name, value]).map(drop)
}
