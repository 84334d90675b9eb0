//! [`StoreWatch`]: reports the size of the store to its budget, and limits it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use selfsame::Idempotency;
use selfsame::stores::{EmbeddedStore, PostgresStore};
use tokio_util::sync::CancellationToken;

use crate::config::StoreLimit;

/// Pause between two looks at the size of a store in a folder, which are cheap.
const FILE_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two looks at the size of a database's tables.
const DATABASE_PAUSE: Duration = Duration::from_secs(5);

/// Largest limit that follows from a disk.
const DISK_LIMIT_MAX: u64 = 64 << 30;
/// Percentage of what a store could take on its disk that it may take.
const DISK_PERCENT: u64 = 90;

/// A store that knows its size. A store in a folder is not kept open by this.
pub(crate) enum StoreSize {
    File { store: Weak<EmbeddedStore>, folder: PathBuf },
    Database(Arc<PostgresStore>),
}

/// Room on the disk of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DiskRoom {
    /// Bytes that the store takes.
    taken: u64,
    /// Bytes that are available to this process.
    available: u64,
}

impl DiskRoom {
    /// Bytes that the store could take.
    fn total(self) -> u64 {
        self.taken.saturating_add(self.available)
    }

    /// The limit that leaves a tenth of the disk, so that what runs can be recorded.
    fn limit(self) -> u64 {
        (self.total() / 100 * DISK_PERCENT).min(DISK_LIMIT_MAX)
    }
}

/// Keeps the budget of a store up to date.
pub(crate) struct StoreWatch {
    size: StoreSize,
    limit: Mutex<StoreLimit>,
    idempotency: Idempotency,
}

impl StoreWatch {
    pub(crate) fn new(size: StoreSize, limit: StoreLimit, idempotency: Idempotency) -> Self {
        Self { size, limit: Mutex::new(limit), idempotency }
    }

    /// Applies another limit from now on. Looks at the disk.
    pub(crate) fn change(&self, limit: StoreLimit) {
        *self.limit.lock() = limit;
        self.warn_unless_fit();
        self.apply_limit();
    }

    /// Warns where the limit is more than the disk can hold.
    pub(crate) fn warn_unless_fit(&self) {
        let (limit, room) = (*self.limit.lock(), self.size.disk_room());
        if let (StoreLimit::Bytes(max_store_bytes), Some(room)) = (limit, room)
            && max_store_bytes > room.total()
        {
            tracing::warn!(
                max_store_bytes,
                disk_bytes = room.total(),
                "max_store_bytes is more than the store's disk can hold: it can fill up before new \
                 keys are refused"
            );
        }
    }

    /// Reports the size until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let pause = match &self.size {
            StoreSize::File { .. } => FILE_PAUSE,
            StoreSize::Database(_) => DATABASE_PAUSE,
        };
        loop {
            let this = self.clone();
            // A disk may be slow to tell.
            let _panicked = tokio::task::spawn_blocking(move || this.apply_limit()).await;
            if let Some(bytes) = self.size.bytes().await {
                self.idempotency.store_budget().report(bytes);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Gives the budget its limit.
    fn apply_limit(&self) {
        let limit = self.limit.lock();
        let bytes_max = match *limit {
            StoreLimit::Off => None,
            StoreLimit::Bytes(bytes_max) => Some(bytes_max),
            StoreLimit::Disk => Some(self.size.disk_room().map_or(DISK_LIMIT_MAX, DiskRoom::limit)),
        };
        self.idempotency.store_budget().set_limit(bytes_max);
    }
}

impl StoreSize {
    async fn bytes(&self) -> Option<u64> {
        match self {
            Self::File { store, .. } => store.upgrade().map(|store| store.bytes()),
            Self::Database(store) => match store.bytes().await {
                Ok(bytes) => Some(bytes),
                Err(error) => {
                    tracing::debug!(%error, "the size of the store is not known at the moment");
                    None
                }
            },
        }
    }

    /// Room on the disk of a store in a folder, where the disk tells.
    fn disk_room(&self) -> Option<DiskRoom> {
        let Self::File { store, folder } = self else { return None };
        let taken = store.upgrade()?.bytes();
        match available(folder) {
            Ok(available) => available.map(|available| DiskRoom { taken, available }),
            Err(error) => {
                tracing::debug!(%error, "the room on the store's disk is not known at the moment");
                None
            }
        }
    }
}

/// Bytes that this process may still write to the file system of `folder`; none where that does not
/// tell its size, as some in user space.
pub(crate) fn available(folder: &Path) -> io::Result<Option<u64>> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok((disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_limit_leaves_a_tenth_of_a_small_disk() {
        let limit = |taken, available| DiskRoom { taken, available }.limit();
        assert_eq!(limit(0, 1000), 900);
        assert_eq!(limit(600, 400), 900, "the same disk, however much the store takes of it");
        assert_eq!(limit(600, 0), 540, "others have filled it");
        assert_eq!(limit(0, 0), 0);
        assert_eq!(limit(10 * GIB, 10 * GIB), 20 * GIB / 100 * 90);
        assert_eq!(limit(0, 72 * GIB), 64 * GIB);
        assert_eq!(limit(u64::MAX, u64::MAX), 64 * GIB);
    }

    #[test]
    fn a_disk_tells_how_much_is_available() {
        let folder = tempfile::TempDir::new().expect("a folder");
        assert!(available(folder.path()).is_ok_and(|bytes| bytes > Some(0)));
        assert!(available(&folder.path().join("missing")).is_err());
    }
}
