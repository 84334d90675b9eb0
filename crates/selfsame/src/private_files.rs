//! Files and folders that only their owner may read, whatever the umask.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// What a folder answers that belongs to others, or whose file system knows no syncs of folders.
const CANNOT_SYNC: [io::ErrorKind; 3] =
    [io::ErrorKind::PermissionDenied, io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported];

/// Makes a folder, and those above it. Each is synced into the one above: after a power cut, what is in a
/// folder that was forgotten would be lost. So is one that is there, with the names in it: a process
/// that died may have made them and not synced them.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    if path.is_dir() {
        sync_folder(path)?;
        return match sync_folder(above) {
            Err(error) if CANNOT_SYNC.contains(&error.kind()) => Ok(()),
            synced => synced,
        };
    }
    make_folder(above)?;
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => Err(error),
        _ => sync_folder(above),
    }
}

/// Options to read and write a file, which is private if it is made by them.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes durable which files the folder has.
#[cfg(unix)]
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Elsewhere a folder cannot be opened as a file, and the file system syncs its entries itself.
#[cfg(not(unix))]
pub(crate) fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// Runs `work`, which may wait for the disk, where nobody waits for it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
