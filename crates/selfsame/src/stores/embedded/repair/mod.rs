//! Repair of a damaged folder, and restoring one from a copy.
//!
//! Both read what is left of a log ([`salvage`]), build a new store of it ([`rebuild`]), and put that in
//! the place of the old one ([`swap`]). The new store refuses unknown keys until those that were lost
//! would have expired. All happens within the folder, which keeps what else is in it, such as the spool.
//!
//! - A file, the marker, says that this is under way. While it is there, nobody can open the store.
//! - Records whose work has no outcome become held: their outcome may be what was lost.
//! - A record whose newest frame is damaged is refused, as it is in a store that opens.
//! - An answer is believed if it has not expired: only an erasure could follow it, and that overwrites it.
//! - A key is never free because of what was read. One that is gone is unknown, and refused as all such.

mod rebuild;
mod salvage;
mod swap;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use selfsame_core::StoreError;

pub(super) use self::swap::refuse_unfinished;
use self::swap::{Command, Marker, Phase};

use super::backup::refuse_incomplete;
use super::facts::FactsFile;
use super::folder::{Folder, lock_folder};
use super::{EmbeddedOptions, EmbeddedStore, Leases, OpenError};
use crate::private_files;
use crate::spool::Spool;

/// Least time for which a repaired store refuses unknown keys, unless another is asked for.
const CLOSED_FOR_MIN: Duration = Duration::from_secs(24 * 60 * 60);

/// How a store is repaired or restored.
#[derive(Debug, Clone, Default)]
pub struct RepairOptions {
    longest_life: Duration,
    closed_for: Option<Duration>,
    accepts_lost_facts: bool,
    spool: Option<Spool>,
}

impl RepairOptions {
    /// The longest time for which the store may have known a key. Unknown keys are refused for the
    /// longest of this, the longest life of any record that was read, and a day.
    #[must_use]
    pub fn longest_life(self, longest_life: Duration) -> Self {
        Self { longest_life, ..self }
    }

    /// The time for which unknown keys are refused, whatever the records say.
    #[must_use]
    pub fn closed_for(self, closed_for: Duration) -> Self {
        Self { closed_for: Some(closed_for), ..self }
    }

    /// The spool of the store. Its answers stay; releases and cancellations are dropped, because what a
    /// later attempt did may be lost.
    #[must_use]
    pub fn spool(self, spool: Spool) -> Self {
        Self { spool: Some(spool), ..self }
    }

    /// Accepts that the values which the installation agrees on are lost, above all its secret: without
    /// that no key is known again.
    #[must_use]
    pub fn accept_lost_facts(self) -> Self {
        Self { accepts_lost_facts: true, ..self }
    }
}

/// Result of a repair, or of a restore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// Records with their answers.
    pub completed: u64,
    /// Records that were held before.
    pub held: u64,
    /// Records that are held because their work has no outcome, as far as is known.
    pub newly_held: u64,
    /// Records of keys that were used, and whose answers are gone.
    pub tombstones: u64,
    /// Records that are refused because they are damaged.
    pub damaged: u64,
    /// Records that had expired, and were left behind.
    pub expired: u64,
    /// Number of places of the log that cannot be read.
    pub damaged_places: u64,
    /// The first of these places.
    pub first_places: Vec<String>,
    /// How long unknown keys are refused.
    pub closed_for: Duration,
    /// Where the damaged files are now.
    pub set_aside: Option<PathBuf>,
}

/// Why a store could not be repaired or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The store cannot be opened, and not because it is damaged.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Nothing in the folder is of a store.
    #[error("there is no store in {path}", path = path.display())]
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has a store already.
    #[error(
        "{path} holds a store already; move it away, or restore to another folder. To mend a damaged \
         one, run `selfsame store repair`",
        path = path.display()
    )]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// The values that the installation agrees on cannot be read.
    #[error(
        "{path} cannot be read: it holds the installation's secret, without which no key is known \
         again. It changes seldom: copy it from a backup, and repair again. Without one, and without \
         a secret_file, --accept-lost-facts goes on, and all keys are unknown then",
        path = path.display()
    )]
    Facts {
        /// The file.
        path: PathBuf,
    },
    /// A file or folder cannot be read or written.
    #[error("cannot use {path}", path = path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A record cannot be written.
    #[error("a record cannot be written")]
    Store(#[from] StoreError),
}

impl EmbeddedStore {
    /// Repairs the store in the folder `path`, if it is damaged: puts a new one in its place, of all
    /// that can be read. Returns none, and changes nothing, where the store opens. An interrupted repair
    /// is finished, or begins anew. Blocks.
    pub async fn repair(
        path: impl AsRef<Path>,
        options: EmbeddedOptions,
        repair: RepairOptions,
    ) -> Result<Option<Repaired>, RepairError> {
        let path = path.as_ref();
        let marker = Marker::read(path).map_err(|error| failed(path, error))?;
        if marker.is_none() {
            if !swap::has_store(path).map_err(|error| failed(path, error))? {
                return Err(RepairError::NoStore { path: path.to_owned() });
            }
            let look = options.clone().leases(Leases::Keep).leave_kept_time().any_clock_gap();
            match Self::open(path, look) {
                Ok(_sound) => return Ok(None),
                Err(error) if is_damage(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let folder = Folder::open(path)?;
        let job = Job { folder: &folder, source: path, command: Command::Repair, options, repair };
        job.run().await.map(Some)
    }

    /// Makes a store in the folder `path` of the copy of one in `backup`, which stays as it is. Keys that
    /// were used since the copy was made are unknown, so unknown keys are refused as after a repair. An
    /// interrupted restore is finished, or begins anew. Blocks.
    pub async fn restore(
        backup: impl AsRef<Path>,
        path: impl AsRef<Path>,
        options: EmbeddedOptions,
        repair: RepairOptions,
    ) -> Result<Repaired, RepairError> {
        let (backup, path) = (backup.as_ref(), path.as_ref());
        let in_backup = |error| failed(backup, error);
        if !swap::has_store(backup).map_err(in_backup)? {
            return Err(RepairError::NoStore { path: backup.to_owned() });
        }
        refuse_unfinished(backup)?;
        refuse_incomplete(backup)?;
        // Nobody may write to it meanwhile.
        let Some(_lock) = lock_folder(backup).map_err(in_backup)? else {
            let holder = "another process".to_owned();
            return Err(OpenError::InUse { path: backup.to_owned(), holder }.into());
        };
        let folder = Folder::open(path)?;
        let is_begun = Marker::read(path).map_err(|error| failed(path, error))?.is_some();
        if !is_begun && swap::has_store(path).map_err(|error| failed(path, error))? {
            return Err(RepairError::Occupied { path: path.to_owned() });
        }
        let command = Command::Restore;
        Job { folder: &folder, source: backup, command, options, repair }.run().await
    }
}

/// A repair or a restore, of a folder that is locked.
struct Job<'a> {
    folder: &'a Folder,
    /// Where the log is.
    source: &'a Path,
    command: Command,
    options: EmbeddedOptions,
    repair: RepairOptions,
}

impl Job<'_> {
    async fn run(self) -> Result<Repaired, RepairError> {
        let path = self.folder.path();
        let failed = |error| failed(path, error);
        match Marker::read(path).map_err(failed)? {
            Some(marker) if marker.phase != Phase::Build => {}
            Some(marker) if marker.command != self.command => {
                return Err(OpenError::Unfinished { path: path.to_owned() }.into());
            }
            _ => self.build().await?,
        }
        // Before anybody can open the store.
        if let Some(spool) = &self.repair.spool {
            let in_spool =
                |error| RepairError::File { path: spool.folder().to_owned(), source: error };
            spool.keep_answers_only().map_err(in_spool)?;
        }
        let mut repaired = swap::finish(path).map_err(failed)?;
        repaired.set_aside = repaired.set_aside.map(|name| path.join(name));
        Ok(repaired)
    }

    /// Builds the new store beside the old one.
    async fn build(&self) -> Result<(), RepairError> {
        let path = self.folder.path();
        let failed = |error| failed(path, error);
        let facts = self.facts()?;
        Marker::new(self.command, Phase::Build).write(path).map_err(failed)?;
        let new = swap::new_folder(path);
        remove_folder(&new).map_err(failed)?;
        let built = rebuild::build(self, &new, facts).await;
        let mut repaired = match built {
            Ok(repaired) => repaired,
            Err(error) => {
                // It would only take room, on a disk that may be full.
                let _ = fs::remove_dir_all(&new);
                return Err(error);
            }
        };
        let phase = match self.command {
            Command::Repair => {
                let name = swap::name_for_damaged(path, self.options.machine.wall());
                repaired.set_aside = Some(name.into());
                Phase::Out
            }
            Command::Restore => Phase::In,
        };
        let marker = Marker { repaired, ..Marker::new(self.command, phase) };
        private_files::sync_folder(&new).and_then(|()| marker.write(path)).map_err(failed)
    }

    /// The values that the installation agrees on.
    fn facts(&self) -> Result<Vec<(String, Vec<u8>)>, RepairError> {
        match FactsFile::open(self.source, false) {
            Ok(facts) => Ok(facts.all()),
            Err(OpenError::Damaged { .. }) if self.repair.accepts_lost_facts => Ok(Vec::new()),
            Err(OpenError::Damaged { path, .. }) => Err(RepairError::Facts { path }),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a store could not be opened because of what its files hold.
fn is_damage(error: &OpenError) -> bool {
    match error {
        OpenError::Damaged { .. } => true,
        OpenError::Folder { source, .. } => is_bad_sector(source),
        OpenError::File { source, .. } => is_bad_sector(&**source),
        _ => false,
    }
}

/// Whether the disk could not read something.
fn is_bad_sector(error: &(dyn Error + 'static)) -> bool {
    const EIO: i32 = 5;
    let error = error.downcast_ref::<io::Error>();
    cfg!(unix) && error.is_some_and(|error| error.raw_os_error() == Some(EIO))
}

fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn failed(path: &Path, source: io::Error) -> RepairError {
    RepairError::File { path: path.to_owned(), source }
}
