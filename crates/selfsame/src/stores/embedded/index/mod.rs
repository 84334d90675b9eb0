//! [`Index`]: the place of each record in the log, in a folder of its own.
//!
//! A log-structured merge tree. Changes go into a memtable. A full one is written to the disk as a
//! sorted table, and tables of like size are merged. The tables are a copy of what the log says:
//! each has a note of how far the log had come, from where on the log is read again at a start. If
//! any is missing or damaged, all are made anew from the log.
//!
//! Nobody waits for the disk under a lock: memtables and tables are listed in `Layers`, of which
//! there is a new one for each change of the list.

mod compaction;
mod entry;
mod filter;
mod memtable;
mod merge;
mod table;

use std::fs;
use std::io;
use std::mem;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use selfsame_core::RecordId;
use tokio::time::Instant;

pub(super) use entry::{Entry, Place};

use entry::Slot;
use memtable::Memtable;
use merge::{Merge, Source};
pub(super) use table::Table;
use table::TableWriter;

use crate::private_files;

/// Entries of a memtable from which on it is full: about 15 MiB.
const MEMTABLE_MAX: usize = 128 * 1024;

/// Full memtables from which on new keys are refused: the disk takes none.
const FULL_MEMTABLES_MAX: usize = 8;

/// Full memtables for which a start waits.
const FULL_MEMTABLES_AT_START: usize = 2;

/// Pause after a table could not be written.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Pause after tables could not be merged.
const MERGE_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How long anybody waits for tables to be written. A disk may hang.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Pages that a walk reads at once.
const WALK_PAGES: usize = 8;

/// The folder of the index, in the store's.
pub(super) const FOLDER: &str = "index";
const UNFINISHED: &str = "memtable.new";

/// A file of this name says that a table is damaged.
const DAMAGED: &str = "damaged";

/// The place of each record in the log. Only what is durable there is in it.
pub(super) struct Index {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    folder: PathBuf,
    layers: RwLock<Arc<Layers>>,
    /// The oldest segment of the log: entries that depend on older ones count for nothing.
    oldest_segment: AtomicU32,
    progress: Mutex<Progress>,
    /// Wakes the threads, and those who wait for them.
    changed: Condvar,
    is_closing: AtomicBool,
    is_damaged: AtomicBool,
    /// Whether nothing may be written.
    is_read_only: bool,
}

#[derive(Default)]
struct Progress {
    /// Whether the last table could not be written.
    is_failing: bool,
}

/// The memtables and tables that make up the index.
#[derive(Clone)]
struct Layers {
    active: Arc<Memtable>,
    /// Full memtables, the newest first.
    full: Vec<Arc<FullMemtable>>,
    /// The newest first.
    tables: Vec<Arc<Table>>,
}

struct FullMemtable {
    memtable: Arc<Memtable>,
    /// Counted from the beginning of the index.
    number: u64,
    note: Vec<u8>,
}

/// An index that is only read.
pub(super) struct OpenedToRead {
    /// Empty where the index is damaged. Changes are kept in memory.
    pub(super) index: Index,
    /// The note of the newest table; none where the index is empty or damaged.
    pub(super) note: Option<Vec<u8>>,
    pub(super) damage: Vec<DamagedTable>,
}

/// What the index knows of a record.
pub(super) enum Found {
    Entry(Entry),
    /// The record is gone, and frames of it are left in the log.
    Remains,
    Nothing,
}

/// A place that keeps the index from being used.
pub(super) struct DamagedTable {
    pub(super) path: PathBuf,
    pub(super) offset: Option<u64>,
    pub(super) what: String,
}

/// An index that was opened.
pub(super) struct Opened {
    pub(super) index: Index,
    /// The note of the newest table; none where the index is empty.
    pub(super) note: Option<Vec<u8>>,
}

impl Index {
    /// Opens the index in the store's folder. One that is not whole is removed.
    pub(super) fn open(store: &Path) -> io::Result<Opened> {
        let folder = store.join(FOLDER);
        let tables = match open_tables(&folder).and_then(|tables| tables.tidied(&folder)) {
            Ok(tables) => tables,
            Err(Unusable::Damaged(DamagedTable { path, what, .. })) => {
                tracing::warn!(
                    file = %path.display(),
                    what,
                    "the index of the store is not whole; it is made anew from the log"
                );
                fs::remove_dir_all(&folder)?;
                Vec::new()
            }
            Err(Unusable::Failed(error)) => return Err(error),
        };
        private_files::make_folder(&folder)?;
        let note = tables.first().map(|table| table.note()).transpose()?;
        let shared = Arc::new(Shared::new(folder, tables));
        let start = |name: &str, run: fn(&Shared)| {
            let shared = shared.clone();
            Builder::new().name(name.to_owned()).spawn(move || run(&shared))
        };
        let threads = vec![
            start("selfsame-index", Shared::write_tables)?,
            start("selfsame-merge", Shared::compact_tables)?,
        ];
        Ok(Opened { index: Self { shared, threads: Mutex::new(threads) }, note })
    }

    /// Opens the index in the store's folder without changing it, and checks all of it. `see` is told
    /// what was read.
    pub(super) fn open_to_read(
        store: &Path,
        see: &mut dyn FnMut(u64) -> io::Result<()>,
    ) -> io::Result<OpenedToRead> {
        let folder = store.join(FOLDER);
        let (mut tables, mut damage) = (Vec::new(), Vec::new());
        match open_tables(&folder) {
            Ok(found) => tables = found.used,
            Err(Unusable::Damaged(damaged)) => damage.push(damaged),
            Err(Unusable::Failed(error)) => return Err(error),
        }
        for table in &tables {
            let damaged = |at| DamagedTable {
                path: table.path().to_owned(),
                offset: Some(at),
                what: "the checksum of a page does not fit".to_owned(),
            };
            damage.extend(table.damaged_pages(see)?.into_iter().map(damaged));
        }
        if !damage.is_empty() {
            tables.clear();
        }
        let note = tables.first().map(|table| table.note()).transpose()?;
        let shared = Arc::new(Shared { is_read_only: true, ..Shared::new(folder, tables) });
        Ok(OpenedToRead { index: Self { shared, threads: Mutex::default() }, note, damage })
    }

    /// An index without tables that is only read. Changes are kept in memory.
    pub(super) fn empty_to_read(store: &Path) -> Self {
        let shared = Shared::new(store.join(FOLDER), Vec::new());
        Self {
            shared: Arc::new(Shared { is_read_only: true, ..shared }),
            threads: Mutex::default(),
        }
    }

    /// Whether there is anything of an index in the store's folder.
    pub(super) fn has_tables(store: &Path) -> bool {
        fs::read_dir(store.join(FOLDER)).is_ok_and(|mut files| files.next().is_some())
    }

    /// Removes what the index in the store's folder holds, so that it is made anew from the log.
    pub(super) fn remove(store: &Path) -> io::Result<()> {
        match fs::remove_dir_all(store.join(FOLDER)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether there may be an entry of a record. Reads nothing from the disk.
    pub(super) fn may_have(&self, id: &RecordId) -> bool {
        let layers = self.shared.layers();
        let in_memory = layers.memtables().find_map(|memtable| memtable.get(id));
        match in_memory {
            Some(slot) => self.counted(slot).is_some(),
            None => layers.tables.iter().any(|table| table.may_have(id)),
        }
    }

    /// The entry of a record. An error of the kind `InvalidData` says that a table is damaged.
    pub(super) fn get(&self, id: &RecordId) -> io::Result<Option<Entry>> {
        Ok(match self.find(id)? {
            Found::Entry(entry) => Some(entry),
            Found::Remains | Found::Nothing => None,
        })
    }

    /// What is known of a record. An error of the kind `InvalidData` says that a table is damaged.
    pub(super) fn find(&self, id: &RecordId) -> io::Result<Found> {
        let slot = self.slot(id).inspect_err(|error| self.shared.note_damage(error))?;
        let Some(slot) = slot else { return Ok(Found::Nothing) };
        let oldest = self.shared.oldest_segment.load(Ordering::Relaxed);
        Ok(match self.counted(slot) {
            Some(entry) => Found::Entry(entry),
            None if slot.last_segment() >= oldest => Found::Remains,
            None => Found::Nothing,
        })
    }

    fn slot(&self, id: &RecordId) -> io::Result<Option<Slot>> {
        let layers = self.shared.layers();
        let in_memory = layers.memtables().find_map(|memtable| memtable.get(id));
        match in_memory {
            Some(slot) => Ok(Some(slot)),
            None => {
                let mut tables = layers.tables.iter();
                tables.find_map(|table| table.get(id).transpose()).transpose()
            }
        }
    }

    /// Number of memtables that have been written as tables.
    pub(super) fn tables_made(&self) -> u64 {
        self.shared.layers.read().tables_made()
    }

    /// Whether `entry` is still that of a record. It was found when no more than `tables_made` memtables
    /// had been written. Mostly reads nothing from the disk.
    pub(super) fn is_still(
        &self,
        id: &RecordId,
        entry: &Entry,
        tables_made: u64,
    ) -> io::Result<bool> {
        let layers = self.shared.layers();
        let in_memory = layers.memtables().find_map(|memtable| memtable.get(id));
        let slot = match in_memory {
            Some(slot) => slot,
            // It was in the tables, and all that has changed since is in the memtables.
            None if layers.tables_made() == tables_made => Slot::Present(*entry),
            None => return Ok(self.get(id)? == Some(*entry)),
        };
        Ok(self.counted(slot) == Some(*entry))
    }

    /// Puts an entry in the place of another.
    pub(super) fn put(&self, id: RecordId, entry: Entry) {
        self.shared.layers.read().active.put(id, Slot::Present(entry));
    }

    /// Takes away the entry of a record.
    pub(super) fn remove_entry(&self, id: RecordId, entry: &Entry) {
        let removed = Slot::Removed { segment: entry.newest().segment };
        self.shared.layers.read().active.put(id, removed);
    }

    /// Shows no more than `most` entries to `see`, in the order of their ids. Returns the last one's
    /// id, unless the index ends before.
    pub(super) fn walk(
        &self,
        from: Bound<RecordId>,
        most: usize,
        mut see: impl FnMut(&RecordId, &Entry),
    ) -> io::Result<Option<RecordId>> {
        let layers = self.shared.layers();
        let memtables =
            layers.memtables().map(|memtable| Box::new(memtable.walk(from).map(Ok)) as Source<'_>);
        let tables =
            layers.tables.iter().map(|table| Box::new(table.walk(from, WALK_PAGES)) as Source<'_>);
        let mut left = most;
        for change in Merge::new(memtables.chain(tables).collect()) {
            let (id, slot) = change.inspect_err(|error| self.shared.note_damage(error))?;
            let Some(entry) = self.counted(slot) else { continue };
            see(&id, &entry);
            left -= 1;
            if left == 0 {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Whether the memtable is full, so that it is time to [`rotate`](Self::rotate).
    pub(super) fn is_full(&self) -> bool {
        self.shared.layers.read().active.len() >= MEMTABLE_MAX
    }

    /// Has the memtable written as a table, with a note of how far the log had come.
    pub(super) fn rotate(&self, note: Vec<u8>) {
        {
            let mut layers = self.shared.layers.write();
            let newest = layers.full.first();
            let number = newest.map_or_else(|| layers.tables_made(), |full| full.number + 1);
            let mut next = (**layers).clone();
            let memtable = mem::replace(&mut next.active, Arc::new(Memtable::new()));
            next.full.insert(0, Arc::new(FullMemtable { memtable, number, note }));
            *layers = Arc::new(next);
        }
        self.shared.notify();
    }

    /// Waits until most full memtables are written. False where they cannot be.
    pub(super) fn wait_at_start(&self) -> bool {
        self.shared.wait_until(|layers| layers.full.len() <= FULL_MEMTABLES_AT_START)
    }

    /// Waits until all full memtables are written. False where they cannot be.
    pub(super) fn wait_until_durable(&self) -> bool {
        self.shared.wait_until(|layers| layers.full.is_empty())
    }

    /// Whether so many memtables wait for the disk that no new keys can be taken.
    pub(super) fn is_behind(&self) -> bool {
        self.shared.layers.read().full.len() >= FULL_MEMTABLES_MAX
    }

    /// Makes the whole index durable, with a note of how far the log had come. False where it cannot
    /// be written; then the next start reads more of the log.
    pub(super) fn close(&self, note: Vec<u8>) -> bool {
        self.rotate(note);
        self.shared.wait_until(|layers| layers.full.is_empty())
    }

    /// Notes which segment of the log is the oldest.
    pub(super) fn set_oldest_segment(&self, number: u32) {
        if self.shared.oldest_segment.swap(number, Ordering::Relaxed) != number {
            self.shared.notify();
        }
    }

    /// Bytes of its files.
    pub(super) fn bytes(&self) -> u64 {
        self.tables().iter().map(|table| table.bytes()).sum()
    }

    /// Its tables as they are now, the newest first.
    pub(super) fn tables(&self) -> Vec<Arc<Table>> {
        self.shared.layers().tables.clone()
    }

    fn counted(&self, slot: Slot) -> Option<Entry> {
        match slot {
            Slot::Present(entry)
                if entry.record.segment >= self.shared.oldest_segment.load(Ordering::Relaxed) =>
            {
                Some(entry)
            }
            Slot::Present(_) | Slot::Removed { .. } => None,
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Relaxed);
        self.shared.notify();
        for thread in self.threads.lock().drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Layers {
    fn tables_made(&self) -> u64 {
        self.tables.first().map_or(0, |newest| newest.made_of().end)
    }

    /// The newest first.
    fn memtables(&self) -> impl Iterator<Item = &Memtable> {
        let full = self.full.iter().map(|full| &*full.memtable);
        std::iter::once(&*self.active).chain(full)
    }
}

impl Shared {
    fn new(folder: PathBuf, tables: Vec<Arc<Table>>) -> Self {
        let layers = Layers { active: Arc::new(Memtable::new()), full: Vec::new(), tables };
        Self {
            folder,
            layers: RwLock::new(Arc::new(layers)),
            oldest_segment: AtomicU32::new(0),
            progress: Mutex::default(),
            changed: Condvar::new(),
            is_closing: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
            is_read_only: false,
        }
    }

    fn layers(&self) -> Arc<Layers> {
        self.layers.read().clone()
    }

    /// Has the index made anew at the next start, if a table is damaged.
    fn note_damage(&self, error: &io::Error) {
        if error.kind() != io::ErrorKind::InvalidData
            || self.is_read_only
            || self.is_damaged.swap(true, Ordering::Relaxed)
        {
            return;
        }
        tracing::error!(
            %error,
            "the index of the store is damaged; keys that need it are refused until a restart, \
             which makes it anew from the log"
        );
        let marked = private_files::options().create(true).truncate(true).open(self.damage_mark());
        if let Err(error) = marked.and_then(|_| private_files::sync_folder(&self.folder)) {
            tracing::error!(%error, "remove the index folder before the next start");
        }
    }

    fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    fn damage_mark(&self) -> PathBuf {
        self.folder.join(DAMAGED)
    }

    fn notify(&self) {
        // Under the lock, or a thread that is about to wait would miss it.
        let _progress = self.progress.lock();
        self.changed.notify_all();
    }

    /// Waits for what the threads do. False where tables cannot be written.
    fn wait_until(&self, holds: impl Fn(&Layers) -> bool) -> bool {
        let until = (Instant::now() + WAIT_MAX).into_std();
        let mut progress = self.progress.lock();
        while !holds(&self.layers()) {
            if progress.is_failing || self.changed.wait_until(&mut progress, until).timed_out() {
                return false;
            }
        }
        true
    }

    /// Writes full memtables as tables, the oldest first.
    fn write_tables(&self) {
        loop {
            let layers = self.layers();
            let Some(full) = layers.full.last() else {
                if !self.wait_for_work(|layers| !layers.full.is_empty()) {
                    return;
                }
                continue;
            };
            let written = self
                .write_table(full)
                .inspect_err(|_| TableWriter::clear(&self.folder, UNFINISHED));
            let mut progress = self.progress.lock();
            match &written {
                Ok(()) if progress.is_failing => {
                    tracing::info!("the index of the store is written again");
                }
                Err(error) if !progress.is_failing => {
                    let text = "the index of the store cannot be written; it is tried again";
                    tracing::warn!(%error, "{text}");
                }
                _ => {}
            }
            progress.is_failing = written.is_err();
            self.changed.notify_all();
            drop(progress);
            if written.is_err() && !self.pause(RETRY_AFTER) {
                return;
            }
        }
    }

    fn write_table(&self, full: &FullMemtable) -> io::Result<()> {
        let FullMemtable { memtable, number, note } = full;
        let mut writer = TableWriter::new(&self.folder, UNFINISHED, memtable.len() as u64)?;
        for (id, slot) in memtable.walk(Bound::Unbounded) {
            writer.add(&id, &slot)?;
        }
        let table = Arc::new(writer.finish(*number..number + 1, note)?);
        self.change_layers(|layers| {
            layers.full.pop();
            layers.tables.insert(0, table);
        });
        Ok(())
    }

    /// Compacts tables whenever there is something to gain.
    fn compact_tables(&self) {
        let choose = |layers: &Layers| {
            compaction::choose(&layers.tables, self.oldest_segment.load(Ordering::Relaxed))
        };
        while self.wait_for_work(|layers| !self.is_damaged() && choose(layers).is_some()) {
            let layers = self.layers();
            let Some(chosen) = choose(&layers) else { continue };
            let replaced = &layers.tables[chosen];
            if let Err(error) = self.compact(replaced).inspect_err(|error| self.note_damage(error))
            {
                tracing::warn!(%error, "tables of the index cannot be merged; it is tried again");
                TableWriter::clear(&self.folder, compaction::UNFINISHED);
                // They may be large, and the disk full.
                self.pause(MERGE_RETRY_AFTER);
            }
        }
    }

    /// Waits for that time. False where the index is being closed.
    fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut progress = self.progress.lock();
        while !self.is_closing.load(Ordering::Relaxed) {
            if self.changed.wait_until(&mut progress, until.into_std()).timed_out() {
                return true;
            }
        }
        false
    }

    fn compact(&self, replaced: &[Arc<Table>]) -> io::Result<()> {
        let oldest_segment = self.oldest_segment.load(Ordering::Relaxed);
        let is_needed = || !self.is_closing.load(Ordering::Relaxed);
        let compacted = compaction::compact(&self.folder, replaced, oldest_segment, is_needed)?;
        let Some(table) = compacted.map(Arc::new) else { return Ok(()) };
        self.change_layers(|layers| {
            let is_newest = |table: &Arc<Table>| Arc::ptr_eq(table, &replaced[0]);
            let at = layers.tables.iter().position(is_newest).expect("only this thread removes");
            layers.tables.splice(at..at + replaced.len(), [table.clone()]);
        });
        for table in replaced.iter().filter(|replaced| replaced.made_of() != table.made_of()) {
            // A start removes those that are left: what they say is in the new one.
            let _ = table.remove();
        }
        Ok(())
    }

    fn change_layers(&self, change: impl FnOnce(&mut Layers)) {
        {
            let mut layers = self.layers.write();
            let mut next = (**layers).clone();
            change(&mut next);
            *layers = Arc::new(next);
        }
        self.notify();
    }

    /// Waits until there is something to do. False where the index is being closed.
    fn wait_for_work(&self, is_work: impl Fn(&Layers) -> bool) -> bool {
        let mut progress = self.progress.lock();
        loop {
            if self.is_closing.load(Ordering::Relaxed) {
                return false;
            }
            if is_work(&self.layers()) {
                return true;
            }
            self.changed.wait(&mut progress);
        }
    }
}

/// Why the tables of an index cannot be used.
enum Unusable {
    /// They can be made anew.
    Damaged(DamagedTable),
    /// The disk or the system refuses.
    Failed(io::Error),
}

impl Unusable {
    fn damaged(path: PathBuf, what: impl Into<String>) -> Self {
        Self::Damaged(DamagedTable { path, offset: None, what: what.into() })
    }
}

/// The tables in a folder.
#[derive(Default)]
struct FoundTables {
    /// Those that make up the index, the newest first.
    used: Vec<Arc<Table>>,
    /// Those that others contain.
    unused: Vec<PathBuf>,
}

impl FoundTables {
    /// Removes what is not used.
    fn tidied(self, folder: &Path) -> Result<Vec<Arc<Table>>, Unusable> {
        if folder.is_dir() {
            Table::remove_remains(folder).map_err(Unusable::Failed)?;
        }
        for path in self.unused {
            fs::remove_file(path).map_err(Unusable::Failed)?;
        }
        Ok(self.used)
    }
}

/// Opens the tables that make up the index.
fn open_tables(folder: &Path) -> Result<FoundTables, Unusable> {
    let mark = folder.join(DAMAGED);
    if mark.exists() {
        return Err(Unusable::damaged(mark, "a page of a table was damaged"));
    }
    let names = match Table::names_in(folder) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FoundTables::default()),
        Err(error) => return Err(Unusable::Failed(error)),
    };
    let mut found = FoundTables::default();
    let mut end = 0;
    for (made_of, path) in names {
        if made_of.end <= end {
            found.unused.push(path);
            continue;
        }
        if made_of.start != end {
            return Err(Unusable::damaged(path, "the table before it is missing"));
        }
        end = made_of.end;
        let table = Table::open(path.clone()).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => Unusable::damaged(path.clone(), error.to_string()),
            _ => Unusable::Failed(error),
        })?;
        if table.made_of() != made_of {
            return Err(Unusable::damaged(path, "it has another table's name"));
        }
        found.used.insert(0, Arc::new(table));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
