//! The store's folder: made if missing, and locked, because one folder serves one process.
//!
//! The lock is on the folder itself where the system allows that, because a file in it may be removed.
//! The file `lock` tells who has it.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::OpenError;
use crate::private_files;

/// Name of the file that tells who has the folder.
const LOCK: &str = "lock";

/// The folder, ours until this is dropped.
pub(super) struct Folder {
    path: PathBuf,
    _locks: Vec<Locked>,
}

/// A file or folder that is locked until this is dropped. To close it would not be enough: a process that
/// somebody starts at this moment has it open, too, until it runs its own program.
pub(super) struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // Where that fails, closing it is all that is left.
        let _ = self.0.unlock();
    }
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let locked =
            private_files::make_folder(&path).and_then(|()| lock_file(&path)).and_then(lock);
        match locked {
            Ok(Lock::Ours(lock)) => match lock_folder(&path) {
                Ok(Some(of_folder)) => Ok(Self { path, _locks: vec![lock, of_folder] }),
                Ok(None) => Err(in_use(path, None)),
                Err(source) => Err(OpenError::Folder { path, source }),
            },
            Ok(Lock::Theirs { pid }) => Err(in_use(path, pid)),
            Err(source) => Err(OpenError::Folder { path, source }),
        }
    }

    /// Locks a folder that is only read. Nothing in it is changed.
    pub(super) fn open_to_read(path: &Path) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let lock = match File::open(path.join(LOCK)) {
            Ok(file) => lock_to_read(file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let of_folder = match lock_folder(&path) {
            Ok(lock) => lock,
            Err(source) => return Err(OpenError::Folder { path, source }),
        };
        match (lock, of_folder) {
            (Err(source), _) => Err(OpenError::Folder { path, source }),
            (Ok(Some(Lock::Theirs { pid })), _) => Err(in_use(path, pid)),
            (_, None) => Err(in_use(path, None)),
            (Ok(Some(Lock::Ours(lock))), Some(of_folder)) => {
                Ok(Self { path, _locks: vec![lock, of_folder] })
            }
            (Ok(None), Some(of_folder)) => Ok(Self { path, _locks: vec![of_folder] }),
        }
    }

    /// Why the store cannot be opened in it.
    pub(super) fn failure(&self, source: io::Error) -> OpenError {
        OpenError::Folder { path: self.path.clone(), source }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn in_use(path: PathBuf, pid: Option<u32>) -> OpenError {
    let holder = pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
    OpenError::InUse { path, holder }
}

enum Lock {
    Ours(Locked),
    Theirs { pid: Option<u32> },
}

/// Locks the folder itself; none where somebody else has it locked.
#[cfg(unix)]
pub(super) fn lock_folder(folder: &Path) -> io::Result<Option<Locked>> {
    let folder = File::open(folder)?;
    match folder.try_lock() {
        Ok(()) => Ok(Some(Locked(folder))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// A folder cannot be locked here, and a file that is locked cannot be removed.
#[cfg(not(unix))]
pub(super) fn lock_folder(folder: &Path) -> io::Result<Option<Locked>> {
    lock_file(folder).map(|file| Some(Locked(file)))
}

fn lock_file(folder: &Path) -> io::Result<File> {
    // Not truncated: it may hold the process id of whoever has the lock.
    private_files::options().create(true).truncate(false).open(folder.join(LOCK))
}

fn lock(file: File) -> io::Result<Lock> {
    match lock_to_read(file)? {
        Lock::Ours(mut locked) => {
            let file = &mut locked.0;
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())?;
            Ok(Lock::Ours(locked))
        }
        theirs => Ok(theirs),
    }
}

/// Locks the file without writing who has it.
fn lock_to_read(mut file: File) -> io::Result<Lock> {
    match file.try_lock() {
        Ok(()) => Ok(Lock::Ours(Locked(file))),
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let read = file.read_to_string(&mut text);
            Ok(Lock::Theirs { pid: read.ok().and_then(|_| text.trim().parse().ok()) })
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}
