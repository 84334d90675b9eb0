//! What goes wrong: opening, one record, one batch, or the disk for good.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use selfsame_core::{RecordId, StoreError, StoreErrorKind};

use crate::stores::columns;

/// Why an embedded store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder cannot be made or written.
    #[error(
        "cannot use the folder {path}; choose a folder that this user can make and write",
        path = path.display()
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process, or another store of this one, has it open.
    #[error(
        "the folder {path} is in use by {holder}; one folder serves one process: \
         stop that one, or choose another folder",
        path = path.display()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who has it open, as far as that is known.
        holder: String,
    },
    /// The records were written by a later version of this crate.
    #[error(
        "{path} has format {found}, this build reads up to format {known}; use the newer build",
        path = path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The latest format this build knows.
        known: i64,
    },
    /// The file is not ours.
    #[error("{path} is not a store of selfsame; choose another folder", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened or prepared.
    #[error("cannot open {path}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Why one piece of work came to nothing.
#[derive(Debug)]
pub(super) enum Trouble {
    /// One record cannot be trusted: whoever asked for it hears of it, and nobody else.
    Damaged(StoreError),
    /// SQLite could not do it: the whole batch is off.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Raises the alarm over a record that cannot be trusted.
pub(super) fn damaged(id: &RecordId, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Trouble {
    Trouble::Damaged(columns::damaged(id, cause))
}

/// What SQLite cannot do now says nothing of the record; any other trouble in reading it does.
pub(super) fn unreadable(id: &RecordId, error: rusqlite::Error) -> Trouble {
    use ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory, SystemIoFailure,
    };
    match error.sqlite_error_code() {
        Some(
            CannotOpen | DatabaseBusy | DatabaseLocked | DiskFull | OutOfMemory | SystemIoFailure,
        ) => Trouble::Sqlite(error),
        _ => damaged(id, error),
    }
}

/// Why a batch came to nothing, to be told to each of its callers.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    kind: StoreErrorKind,
    message: String,
}

impl Refusal {
    pub(super) fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(super) fn error(&self) -> StoreError {
        StoreError::new(self.kind, self.message.clone())
    }
}

/// Whether the disk can still be believed.
#[derive(Default)]
pub(super) struct Health {
    broken: OnceLock<String>,
}

impl Health {
    /// Nothing more is written once the disk failed a write or a sync: the system may have
    /// dropped what it could not write, and a second sync would then succeed without it.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        match self.broken.get() {
            None => Ok(()),
            Some(cause) => Err(Refusal::new(
                StoreErrorKind::NotWritten,
                format!(
                    "the store stopped writing, because the disk failed ({cause}); \
                     mend it, then restart"
                ),
            )),
        }
    }

    /// What to tell the callers of a batch that failed. A full disk passes, a failed one does
    /// not. What a failed sync left in the log may still be found there after a restart.
    pub(super) fn judge(&self, error: &rusqlite::Error) -> Refusal {
        if is_full(error) {
            return Refusal::new(StoreErrorKind::NotWritten, format!("the disk is full: {error}"));
        }
        if error.sqlite_error_code() != Some(ErrorCode::SystemIoFailure) {
            return Refusal::new(
                StoreErrorKind::NotWritten,
                format!("nothing was written: {error}"),
            );
        }
        // SQLite has one sentence for all of these; its code says whether a write or a sync failed.
        let code = error.sqlite_extended_error_code().unwrap_or_default();
        let cause = format!("{error}, code {code} of SQLite");
        if self.broken.set(cause.clone()).is_ok() {
            tracing::error!(
                cause,
                "the disk failed; the store writes nothing more until a restart"
            );
        }
        Refusal::new(StoreErrorKind::MayHaveLanded, format!("the disk failed: {cause}"))
    }
}

/// The log's index cannot grow on a full disk either, which SQLite tells in its own way.
fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || error.sqlite_extended_error_code() == Some(SQLITE_IOERR_SHMSIZE)
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi::{self, SQLITE_BUSY, SQLITE_FULL, SQLITE_IOERR_FSYNC};

    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn a_full_disk_passes() {
        let health = Health::default();
        for code in [SQLITE_FULL, SQLITE_IOERR_SHMSIZE, SQLITE_BUSY] {
            assert!(health.judge(&failure(code)).error().is_retryable());
            assert!(health.check().is_ok());
        }
    }

    #[test]
    fn after_a_failed_sync_nothing_is_written_again() {
        let health = Health::default();
        let verdict = health.judge(&failure(SQLITE_IOERR_FSYNC)).error();
        assert_eq!(verdict.kind(), StoreErrorKind::MayHaveLanded);
        let refusal = health.check().expect_err("the disk failed").error();
        assert!(refusal.to_string().contains("restart"), "{refusal}");
    }
}
