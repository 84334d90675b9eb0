//! Backups: a consistent copy of a store that is open, in a folder of its own.
//!
//! The log is copied in pieces while it grows, in several rounds, each of which copies what was added
//! during the one before. The writer is only asked how far the log has come.
//!
//! - A segment only grows at its end, so what was copied stays right. One that is removed meanwhile can
//!   still be read, and goes from the copy, too, once the copy says that nothing of it is needed.
//! - Erasure overwrites payloads, behind tombstones that are durable. What the copy has of a record
//!   that is erased meanwhile may be overwritten or not; the last round is copied while nothing is
//!   overwritten, so the copy has the tombstones behind all that it has overwritten.
//! - The tables of the index never change. They are those of the moment of the last round, so the copy is
//!   what a crash at that moment leaves. The facts are those of the same moment.
//!
//! A copy has the file `backup.incomplete` from its beginning. Once all of it is durable and was verified,
//! that becomes the file `backup`. Neither is opened as a store: keys that were used after the
//! copy was made would be new.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use selfsame_core::{StoreError, Timestamp};
use tokio::time::Instant;

use super::frame::HEAD_LEN;
use super::index::{FOLDER, Table};
use super::log::LogPart;
use super::segment::{Segment, write_all_at};
use super::verification::{DamagedPlace, Verified, verify};
use super::{EmbeddedStore, OpenError, facts};
use crate::private_files::{self, blocking};

/// The mark of a backup.
const BACKUP: &str = "backup";
/// The mark of one that is being made, or was cut off.
const INCOMPLETE: &str = "backup.incomplete";
const FIRST_LINE: &str = "selfsame backup 1";

/// Bytes that are copied and made durable at a time.
const PIECE: u64 = 1024 * 1024;

/// The longest pause after a piece. Pauses are as long as the piece took.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Bytes that are left for the last round, for which erasures wait.
const LAST_ROUND: u64 = 8 * 1024 * 1024;

/// Rounds after which the last one is made, however much is left.
const ROUNDS_MAX: usize = 16;

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The wall clock's time when it was asked for. Keys that were used before are in it.
    pub made: Timestamp,
    /// Records in it.
    pub records: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Damaged places that it has because the store has them.
    pub damaged: u64,
}

/// Why there is no backup. What there was of it is removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// One is being made.
    #[error("another backup of this store is being made; wait until it is done")]
    InProgress,
    /// The folder has files.
    #[error("{path} is there already, and a backup overwrites nothing; name a new folder", path = path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is in the store's.
    #[error("{path} is in the store's own folder; name one elsewhere", path = path.display())]
    InStore {
        /// The folder.
        path: PathBuf,
    },
    /// There is no room for it.
    #[error("the disk of {path} is full; the backup was removed", path = path.display())]
    Full {
        /// The folder.
        path: PathBuf,
    },
    /// The folder cannot be made or written.
    #[error("the backup {path} cannot be written: {source}", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The store cannot be read.
    #[error("the store cannot be copied: {0}")]
    Store(#[from] StoreError),
    /// The copy cannot be verified.
    #[error("the copy cannot be verified: {0}")]
    Unverified(#[from] OpenError),
    /// The copy is not sound.
    #[error(
        "the copy is not sound, and was removed: {first}. Run `selfsame store verify` for the store, which may \
         be damaged there"
    )]
    Unsound {
        /// The first damaged place.
        first: String,
    },
}

/// Backups of a store.
#[derive(Default)]
pub(super) struct Backups {
    /// Held by the one that is being made.
    running: tokio::sync::Mutex<()>,
    /// Bytes that it has copied.
    copied: AtomicU64,
    /// Held by erasures that overwrite, and alone by the last round of a backup.
    overwriting: tokio::sync::RwLock<()>,
}

impl Backups {
    /// Keeps the last round of a backup from being made meanwhile.
    pub(super) async fn overwriting(&self) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.overwriting.read().await
    }
}

/// Refuses a folder that is a backup.
pub(super) fn refuse(path: &Path) -> Result<(), OpenError> {
    refuse_incomplete(path)?;
    match path.join(BACKUP).exists() {
        true => Err(OpenError::Backup { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Refuses a folder that is a part of a backup.
pub(super) fn refuse_incomplete(path: &Path) -> Result<(), OpenError> {
    match path.join(INCOMPLETE).exists() {
        true => Err(OpenError::IncompleteBackup { path: path.to_owned() }),
        false => Ok(()),
    }
}

impl EmbeddedStore {
    /// Makes a copy of the store in `folder`, which must be missing or empty: all keys that were
    /// acknowledged before this call, with their answers, and some of those that come meanwhile. It is
    /// verified before this returns.
    ///
    /// The copy is for its owner alone. It is no store: `selfsame store restore` makes one of it.
    ///
    /// Dropping the call leaves an incomplete copy. Half of the time is left to others.
    pub async fn backup(&self, folder: impl AsRef<Path>) -> Result<Backup, BackupError> {
        let Ok(_running) = self.backups.running.try_lock() else {
            return Err(BackupError::InProgress);
        };
        self.backups.copied.store(0, Ordering::Relaxed);
        let made = match &self.clock {
            Some(clock) => clock.wall(),
            None => self.records.clock.now(),
        };
        let (path, store) = (folder.as_ref().to_owned(), self.folder.path().to_owned());
        let target = blocking(move || Ok(Target::make(path, &store)));
        let target = target
            .await
            .map_err(|source| BackupError::Folder { path: folder.as_ref().to_owned(), source })??;
        let target = Arc::new(target);
        match self.fill(&target, made).await {
            Ok(backup) => Ok(backup),
            Err(error) => {
                let path = target.path.clone();
                // Its mark says that it is incomplete, if it cannot be removed.
                let _left = blocking(move || fs::remove_dir_all(path)).await;
                Err(error)
            }
        }
    }

    /// Bytes that the backup that is being made, or the last one, has copied.
    pub fn backup_bytes_copied(&self) -> u64 {
        self.backups.copied.load(Ordering::Relaxed)
    }

    async fn fill(&self, target: &Arc<Target>, made: Timestamp) -> Result<Backup, BackupError> {
        let mut copied = BTreeMap::new();
        for _ in 0..ROUNDS_MAX {
            let parts = self.writes.ask(|ledger| Ok(ledger.log_parts())).await?;
            if left(&parts, &copied) <= LAST_ROUND {
                break;
            }
            self.copy_log(target, &parts, &mut copied).await?;
        }
        let alone = self.backups.overwriting.write().await;
        let records = self.records.clone();
        let last = self.writes.ask(move |ledger| {
            let rest = Rest { frame: ledger.encoded_rest(), facts: ledger.encoded_facts() };
            Ok((ledger.log_parts(), rest, records.index.tables()))
        });
        let (parts, rest, tables) = last.await?;
        self.copy_log(target, &parts, &mut copied).await?;
        drop(alone);
        for table in tables {
            let name = table.path().file_name().expect("a table has a name");
            let name = Path::new(FOLDER).join(name);
            let end = table.bytes();
            self.copy(target, Source::Table(table), name, 0..end).await?;
        }
        let needed: BTreeSet<u32> = parts.iter().map(|part| part.segment.number).collect();
        let unneeded: Vec<u32> = copied.into_keys().filter(|it| !needed.contains(it)).collect();
        let newest = parts.last().expect("there is always one");
        let end = (newest.segment.number, newest.end);
        target.run(move |target| target.finish(&unneeded, end, &rest)).await?;
        let verified = verify_slowly(target).await?;
        let damaged = self.damaged_before(target, &verified, parts).await?;
        let records = verified.records;
        target
            .run(move |target| {
                let bytes = bytes_in(&target.path)?;
                let backup = Backup { made, records, bytes, damaged };
                target.mark(&backup)?;
                Ok(backup)
            })
            .await
    }

    /// Copies what `parts` have behind what was copied.
    async fn copy_log(
        &self,
        target: &Arc<Target>,
        parts: &[LogPart],
        copied: &mut BTreeMap<u32, u64>,
    ) -> Result<(), BackupError> {
        for LogPart { segment, end } in parts {
            let from = copied.get(&segment.number).copied().unwrap_or(0);
            let name = segment.path.file_name().expect("a segment has a name").into();
            self.copy(target, Source::Segment(segment.clone()), name, from..*end).await?;
            copied.insert(segment.number, *end);
        }
        Ok(())
    }

    /// Copies a part of a file, which is made if the part is its beginning.
    async fn copy(
        &self,
        target: &Arc<Target>,
        source: Source,
        name: PathBuf,
        part: std::ops::Range<u64>,
    ) -> Result<(), BackupError> {
        if part.is_empty() {
            return Ok(());
        }
        let (source, is_new) = (Arc::new(source), part.start == 0);
        let file = target.run(move |target| target.open(&name, is_new)).await?;
        let file = Arc::new(file);
        let mut at = part.start;
        while at < part.end {
            let (begun, len) = (Instant::now(), PIECE.min(part.end - at));
            let (source, file) = (source.clone(), file.clone());
            let piece = target.run(move |_| {
                let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
                source.read(&mut bytes, at)?;
                write_all_at(&file, &bytes, at)?;
                file.sync_data()
            });
            piece.await?;
            at += len;
            self.backups.copied.fetch_add(len, Ordering::Relaxed);
            tokio::time::sleep(begun.elapsed().min(PAUSE_MAX)).await;
        }
        target.run(move |_| file.sync_all()).await
    }

    /// Number of damaged places of the copy that the store has, too. Any other is an error.
    async fn damaged_before(
        &self,
        target: &Arc<Target>,
        verified: &Verified,
        parts: Vec<LogPart>,
    ) -> Result<u64, BackupError> {
        let unsound = |place: &DamagedPlace| BackupError::Unsound { first: place.to_string() };
        if let Some(last) = verified.damage.last()
            && verified.damaged_places > verified.damage.len() as u64
        {
            return Err(unsound(last));
        }
        let damage = verified.damage.clone();
        let other = target.run(move |target| {
            let of_store = |place: &DamagedPlace| {
                parts
                    .iter()
                    .find(|part| Segment::path(&target.path, part.segment.number) == place.path)
            };
            for place in damage {
                let Some(part) = of_store(&place) else { return Ok(Some(place)) };
                if !is_same(&part.segment, &place)? {
                    return Ok(Some(place));
                }
            }
            Ok(None)
        });
        match other.await? {
            Some(place) => Err(unsound(&place)),
            None => Ok(verified.damaged_places),
        }
    }
}

/// The end of a copy of the log, and its facts.
struct Rest {
    /// Says that the log ends there, and is not the remains of a crash: damage in the last batch would look
    /// like that.
    frame: [u8; HEAD_LEN],
    facts: Vec<u8>,
}

/// Bytes of the log that were not copied.
fn left(parts: &[LogPart], copied: &BTreeMap<u32, u64>) -> u64 {
    let done = |number| copied.get(number).copied().unwrap_or(0);
    parts.iter().map(|part| part.end.saturating_sub(done(&part.segment.number))).sum()
}

/// Tells if a damaged place of the copy is the same in the store.
fn is_same(segment: &Segment, place: &DamagedPlace) -> io::Result<bool> {
    let (Some(offset), Ok(len)) = (place.offset, usize::try_from(place.len)) else {
        return Ok(false);
    };
    let (mut of_store, mut of_copy) = (vec![0; len], vec![0; len]);
    segment.read_into(&mut of_store, offset)?;
    super::segment::read_exact_at(&File::open(&place.path)?, &mut of_copy, offset)?;
    Ok(len > 0 && of_store == of_copy)
}

/// Verifies the copy, and leaves half of the time to others. Ends early if it is dropped.
async fn verify_slowly(target: &Arc<Target>) -> Result<Verified, BackupError> {
    let path = target.path.clone();
    let needed = Arc::new(());
    let is_needed = Arc::downgrade(&needed);
    let verifying = target.run(move |_| {
        let mut begun = Instant::now();
        let mut rest = |_| {
            if is_needed.strong_count() == 0 {
                return Err(io::Error::from(io::ErrorKind::Interrupted));
            }
            std::thread::sleep(begun.elapsed().min(PAUSE_MAX));
            begun = Instant::now();
            Ok(())
        };
        Ok(verify(&path, &mut rest))
    });
    Ok(verifying.await??)
}

/// A file that is copied.
enum Source {
    Segment(Arc<Segment>),
    Table(Arc<Table>),
}

impl Source {
    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Self::Segment(segment) => segment.read_into(bytes, at),
            Self::Table(table) => table.read(bytes, at),
        }
    }
}

/// The folder of a copy.
struct Target {
    path: PathBuf,
}

impl Target {
    /// Makes the folder, and marks it as incomplete.
    fn make(path: PathBuf, store: &Path) -> Result<Self, BackupError> {
        let failed = |source| BackupError::Folder { path: path.clone(), source };
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new(".")).canonicalize().map_err(failed)?;
        let Some(name) = path.file_name() else {
            return Err(BackupError::Exists { path });
        };
        if above.join(name).starts_with(store.canonicalize().map_err(failed)?) {
            return Err(BackupError::InStore { path });
        }
        match fs::symlink_metadata(&path) {
            Ok(found) => {
                let is_empty =
                    found.is_dir() && fs::read_dir(&path).map_err(failed)?.next().is_none();
                if !is_empty {
                    return Err(BackupError::Exists { path });
                }
                make_private(&path).map_err(failed)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut builder = DirBuilder::new();
                #[cfg(unix)]
                std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
                match builder.create(&path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        return Err(BackupError::Exists { path });
                    }
                    made => made.map_err(failed)?,
                }
            }
            Err(error) => return Err(failed(error)),
        }
        let target = Self { path };
        let begun = target.begin().map_err(|error| target.error(error));
        // Half of a mark is no backup either.
        begun.inspect_err(|_| drop(fs::remove_dir_all(&target.path)))?;
        Ok(target)
    }

    fn begin(&self) -> io::Result<()> {
        // First, so that whatever is cut off has it.
        let mut mark = self.open(Path::new(INCOMPLETE), true)?;
        writeln!(mark, "{FIRST_LINE}")?;
        mark.sync_all()?;
        private_files::make_folder(&self.path)?;
        private_files::make_folder(&self.path.join(FOLDER))
    }

    /// A file of the copy, which must not be there if it `is_new`.
    fn open(&self, name: &Path, is_new: bool) -> io::Result<File> {
        private_files::options().create_new(is_new).open(self.path.join(name))
    }

    /// Writes what is left, and makes durable which files there are.
    fn finish(&self, unneeded: &[u32], end: (u32, u64), rest: &Rest) -> io::Result<()> {
        for number in unneeded {
            fs::remove_file(Segment::path(&self.path, *number))?;
        }
        let (newest, end) = end;
        let log = private_files::options().open(Segment::path(&self.path, newest))?;
        write_all_at(&log, &rest.frame, end)?;
        log.sync_all()?;
        let mut file = self.open(Path::new(facts::NAME), true)?;
        file.write_all(&rest.facts)?;
        file.sync_all()?;
        private_files::sync_folder(&self.path.join(FOLDER))?;
        private_files::sync_folder(&self.path)
    }

    /// Marks the copy as a backup, durably.
    fn mark(&self, backup: &Backup) -> io::Result<()> {
        let Backup { made, records, bytes, damaged } = backup;
        let made = UNIX_EPOCH + Duration::from_millis(made.as_millis());
        let made = humantime::format_rfc3339_seconds(made);
        let mut text = format!("{FIRST_LINE}\nmade: {made}\nrecords: {records}\nbytes: {bytes}\n");
        if *damaged > 0 {
            text.push_str(&format!("damaged: {damaged}\n"));
        }
        let mut mark = self.open(Path::new(INCOMPLETE), false)?;
        mark.set_len(0)?;
        mark.write_all(text.as_bytes())?;
        mark.sync_all()?;
        fs::rename(self.path.join(INCOMPLETE), self.path.join(BACKUP))?;
        private_files::sync_folder(&self.path)
    }

    /// Runs `work` where it may wait for the disk.
    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> Result<T, BackupError> {
        let target = self.clone();
        blocking(move || work(&target)).await.map_err(|error| self.error(error))
    }

    fn error(&self, source: io::Error) -> BackupError {
        let path = self.path.clone();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => BackupError::Full { path },
            _ => BackupError::Folder { path, source },
        }
    }
}

/// Takes all rights on a folder from others than its owner.
#[cfg(unix)]
fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
fn make_private(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// Bytes of the files in a folder and those below it, but for its mark.
fn bytes_in(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        bytes += match found.is_dir() {
            true => bytes_in(&entry.path())?,
            false if entry.file_name() == INCOMPLETE => 0,
            false => found.len(),
        };
    }
    Ok(bytes)
}
