//! The store's folder: made if missing, and locked, because one folder serves one process.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::OpenError;

/// The folder, ours until this is dropped.
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let locked = make(&path).and_then(|()| lock_file(&path)).and_then(lock);
        match locked {
            Ok(Lock::Ours(lock)) => Ok(Self { path, _lock: lock }),
            Ok(Lock::Theirs { pid }) => {
                let holder =
                    pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
                Err(OpenError::InUse { path, holder })
            }
            Err(source) => Err(OpenError::Folder { path, source }),
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

enum Lock {
    Ours(File),
    Theirs { pid: Option<u32> },
}

/// Each folder made is synced into the one above it: after a power cut a store whose folder was
/// forgotten would be a new, empty one, and would run every key again.
fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    make(above)?;
    match private_folder().create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => Err(error),
        _ => sync_folder(above),
    }
}

#[cfg(unix)]
fn private_folder() -> DirBuilder {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

#[cfg(not(unix))]
fn private_folder() -> DirBuilder {
    DirBuilder::new()
}

/// How a file is opened that only its owner may read, and made so where it is made.
pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes durable which files the folder has.
#[cfg(unix)]
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Elsewhere a folder cannot be opened as a file, and the file system syncs its entries itself.
#[cfg(not(unix))]
pub(super) fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

fn lock_file(folder: &Path) -> io::Result<File> {
    // Not truncated: it may hold the process id of whoever has the lock.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(folder.join("lock"))
}

fn lock(mut file: File) -> io::Result<Lock> {
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())?;
            Ok(Lock::Ours(file))
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let read = file.read_to_string(&mut text);
            Ok(Lock::Theirs { pid: read.ok().and_then(|_| text.trim().parse().ok()) })
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}
