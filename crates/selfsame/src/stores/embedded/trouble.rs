//! What goes wrong: opening, one record, one batch, or the disk for good.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::{RecordId, StoreError, StoreErrorKind};
use tokio::time::Instant;

use super::closed::Closed;
use crate::stores::durable;

/// Time from which on a disk counts as one that hangs.
const STALL: Duration = Duration::from_secs(3);

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
        found: u64,
        /// The latest format this build knows.
        known: u64,
    },
    /// The file is not ours.
    #[error("{path} is not a store of selfsame; choose another folder", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The records are those of an earlier version of this crate.
    #[error(
        "{path} holds records of an earlier version, which this build cannot read; serve them with that \
         version until they have expired, or choose another folder",
        path = path.display()
    )]
    Earlier {
        /// The file.
        path: PathBuf,
    },
    /// What was durable once cannot be read any more.
    #[error(
        "{path} is damaged: {what}; run `selfsame store repair`, which keeps all that can be read, and \
         refuses keys that may be lost. In an empty folder, or in an older copy of this one, keys that \
         were used would be new, and run again",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A repair of the store, or a restore, was interrupted.
    #[error(
        "a repair of {path}, or a restore to it, is not finished; run that command again: `selfsame \
         store repair`, or `selfsame store restore` with the same backup",
        path = path.display()
    )]
    Unfinished {
        /// The folder.
        path: PathBuf,
    },
    /// The machine was booted since the store was written, and the wall clock says that this was
    /// longer ago than [`EmbeddedOptions::clock_gap_max`](super::EmbeddedOptions::clock_gap_max).
    #[error(
        "the clock shows {wall_clock}, and {path} was last written at {kept}, before the machine \
         was booted: that is more than max_clock_gap. If the clock is wrong, set it, and start \
         again: keys would expire early. If it is right, `selfsame store adopt-clock` accepts it, \
         and the store starts",
        path = path.display()
    )]
    ClockGap {
        /// The folder.
        path: PathBuf,
        /// The wall clock's time when the store was last written.
        kept: String,
        /// The wall clock's time now.
        wall_clock: String,
    },
    /// The folder is a backup. A copy does not know the keys that were used after it was made.
    #[error(
        "{path} is a backup, which does not know the keys that were used after it was made: they would be \
         new, and run again. Make a store of it with `selfsame store restore {path}`",
        path = path.display()
    )]
    Backup {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is a backup that was cut off.
    #[error(
        "{path} is a backup that was not finished, so it has only some of the keys; remove it, and make \
         another",
        path = path.display()
    )]
    IncompleteBackup {
        /// The folder.
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
    /// No new key is taken, for this reason: the little room that is left is kept for what runs.
    Full(String),
    /// No unknown key is taken for so long: it may be one that was lost.
    Closed(Duration),
    /// It was read from a file that is no longer needed: it lies elsewhere now.
    Moved,
    /// The disk could not do it: the whole batch is off.
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What the disk could not do.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing was written, and it may be tried again.
    Refused(io::Error),
    /// A write or a sync failed, and nobody knows how far it came.
    Disk(io::Error),
}

/// Raises the alarm over a record that cannot be trusted.
pub(super) fn damaged(id: &RecordId, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Trouble {
    Trouble::Damaged(durable::damaged(id, cause))
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

    /// The refusal of a batch of which something may have been written.
    pub(super) fn landed(self) -> Self {
        Self { kind: StoreErrorKind::MayHaveLanded, ..self }
    }

    pub(super) fn error(&self) -> StoreError {
        StoreError::new(self.kind, self.message.clone())
    }
}

/// Health of an embedded store's disk.
#[derive(Clone)]
pub struct EmbeddedHealth {
    pub(super) health: Arc<Health>,
    pub(super) closed: Arc<Closed>,
}

impl EmbeddedHealth {
    /// The failure after which the store writes nothing more until it is opened again.
    pub fn failure(&self) -> Option<&str> {
        self.health.broken.get().map(String::as_str)
    }

    /// How long the disk has not answered, once that is longer than any disk should take.
    pub fn stalled_for(&self) -> Option<Duration> {
        let busy_since = *self.health.busy_since.lock();
        busy_since.map(|since| since.elapsed()).filter(|stalled| *stalled >= STALL)
    }

    /// Why new keys are refused for now. It passes without a restart.
    pub fn shortage(&self) -> Option<String> {
        self.health.shortage.lock().clone()
    }

    /// How much longer keys that the store does not know are refused, because records were lost; none
    /// where they are taken.
    pub fn closed_for(&self) -> Option<Duration> {
        self.closed.time_left()
    }
}

impl fmt::Debug for EmbeddedHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmbeddedHealth({:?})", self.failure())
    }
}

/// Whether the disk can still be believed.
#[derive(Default)]
pub(super) struct Health {
    broken: OnceLock<String>,
    /// Since when the writer waits for the disk.
    busy_since: Mutex<Option<Instant>>,
    shortage: Mutex<Option<String>>,
}

impl Health {
    /// Notes that the writer begins a batch, or is done with it.
    pub(super) fn set_busy(&self, is_busy: bool) {
        *self.busy_since.lock() = is_busy.then(Instant::now);
    }

    /// Notes why new keys are refused, if they are.
    pub(super) fn set_shortage(&self, now: Option<&str>) {
        let mut shortage = self.shortage.lock();
        match (&*shortage, now) {
            (None, None) => return,
            (None, Some(cause)) => tracing::warn!(cause, "the store takes no new keys"),
            (Some(_), None) => tracing::info!("the store takes new keys again"),
            (Some(before), Some(cause)) if before == cause => return,
            (Some(_), Some(_)) => {}
        }
        *shortage = now.map(ToOwned::to_owned);
    }

    /// Whether new keys are refused.
    pub(super) fn is_short(&self) -> bool {
        self.shortage.lock().is_some()
    }

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
    pub(super) fn judge(&self, failure: &Failure) -> Refusal {
        let error = match failure {
            Failure::Refused(error) if error.kind() == io::ErrorKind::StorageFull => {
                return Refusal::new(
                    StoreErrorKind::NotWritten,
                    format!("the disk is full: {error}"),
                );
            }
            Failure::Refused(error) => {
                return Refusal::new(
                    StoreErrorKind::NotWritten,
                    format!("nothing was written: {error}"),
                );
            }
            Failure::Disk(error) => error,
        };
        let cause = error.to_string();
        if self.broken.set(cause.clone()).is_ok() {
            tracing::error!(
                cause,
                "the disk failed; the store writes nothing more until a restart"
            );
        }
        Refusal::new(StoreErrorKind::MayHaveLanded, format!("the disk failed: {cause}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_passes() {
        let health = Health::default();
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::PermissionDenied] {
            assert!(health.judge(&Failure::Refused(kind.into())).error().is_retryable());
            assert!(health.check().is_ok());
        }
    }

    #[test]
    fn after_a_failed_sync_nothing_is_written_again() {
        let health = Health::default();
        let failure = Failure::Disk(io::Error::other("input/output error"));
        let verdict = health.judge(&failure).error();
        assert_eq!(verdict.kind(), StoreErrorKind::MayHaveLanded);
        let refusal = health.check().expect_err("the disk failed").error();
        assert!(refusal.to_string().contains("restart"), "{refusal}");
    }
}
