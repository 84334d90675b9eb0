//! [`EmbeddedStore`]: the durable store of one machine, a log in a folder.
//!
//! Every change of a record is a frame at the end of the log. An index tells where each record lies; it
//! is a copy of what the log says, and can be made anew from it. The log is cut into segments; what
//! expires together was written together, so that old segments go as a whole, and the little that is
//! still needed of one is written anew before.
//!
//! | thread | does |
//! |---|---|
//! | writer | all changes, in batches that share a sync |
//! | readers | replays and other final answers, beside the writer |
//! | looker | scans: finding, counting, sweeping |
//! | tender | makes segments before they are needed, and takes them away |
//! | index, merge | write the tables of the index, and merge them |
//!
//! A claim of a known key is first looked up among the finished records in memory, then by a reader:
//! where its record needs no change it gets its answer there. Everything else goes to the writer,
//! which decides anew.

mod backup;
mod closed;
mod facts;
mod folder;
mod frame;
mod index;
mod jobs;
mod kept_time;
mod ledger;
mod log;
mod machine_clocks;
mod note;
mod open_records;
mod options;
mod reader;
mod reading;
mod records;
mod recover;
mod repair;
mod scan;
mod scrub;
mod segment;
mod segments;
mod store;
mod store_clock;
mod summary;
mod tender;
mod time_source;
mod transfer;
mod trouble;
mod verification;
mod writer;

use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::{Ask, Claimed, StoreError, StoreErrorKind, Timestamp};

pub use backup::{Backup, BackupError};
pub use options::{EmbeddedOptions, Leases};
pub use repair::{RepairError, RepairOptions, Repaired};
pub use summary::StoreSummary;
pub use trouble::{EmbeddedHealth, OpenError};
pub use verification::{DamagedPlace, VerificationPass, Verified, VerifiedPiece};

use backup::Backups;
use closed::{CLOSED_UNTIL, Closed};
use facts::FactsFile;
use folder::Folder;
use index::Index;
use jobs::Queue;
use ledger::Ledger;
use log::Log;
use reader::Reader;
use records::Records;
use recover::{Recovered, recover};
use scrub::Scrubs;
use segment::Segment;
use store::Cursor;
use store_clock::StoreClock;
use tender::Tender;
use trouble::Health;
use writer::Writer;

use super::near::Near;

/// How much memory finished records may take that were asked for lately.
const NEAR_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What is read here changes by this process alone.
const FOREVER: Timestamp = Timestamp::from_millis(u64::MAX);
/// Threads that answer from finished records. Where the records do not fit into memory, each waits
/// for the disk, which is quick only with many reads under way.
const READERS: usize = 32;

/// How large the first segment is. Many stores never need another.
const FIRST_SEGMENT: u64 = 256 * 1024;

/// What an earlier version kept its records in.
const EARLIER: &str = "records.db";

/// Records in a folder, safe from a crash of the process or of the machine.
///
/// ```no_run
/// use selfsame::stores::{EmbeddedOptions, EmbeddedStore};
///
/// let store = EmbeddedStore::open("/var/lib/payments/keys", EmbeddedOptions::default())?;
/// # Ok::<(), selfsame::stores::OpenError>(())
/// ```
///
/// For each key that is remembered it takes about two bytes of memory, besides some 50 MiB for the
/// newest keys and for answers that were asked for lately. Opening it reads what was written since the
/// last table of the index, in well under a second.
///
/// One folder serves one process; a second one is told who has it. Calls wait by Tokio's timer.
///
/// Dropping the store does what it was asked for, closes the file and gives the folder back; it
/// waits for the disk meanwhile.
pub struct EmbeddedStore {
    // Dropped from top to bottom: the folder is given back last.
    reads: Queue<Arc<Records>>,
    looks: Queue<Arc<Records>>,
    writes: Queue<Ledger>,
    records: Arc<Records>,
    /// Absent where the store is told the time.
    clock: Option<Arc<StoreClock>>,
    cursor: Mutex<Cursor>,
    near: Near,
    scrubs: Scrubs,
    backups: Backups,
    closed: Arc<Closed>,
    health: Arc<Health>,
    folder: Folder,
}

impl EmbeddedStore {
    /// Opens the store in the folder `path`, which is made if it is missing.
    pub fn open(path: impl AsRef<Path>, options: EmbeddedOptions) -> Result<Self, OpenError> {
        // Whoever only looks into a store is told otherwise.
        let is_served = !options.start.leaves_kept;
        let store = Self::open_silently(path.as_ref(), options)?;
        if is_served {
            warn_of_closed(&store.closed, store.folder.path());
        }
        Ok(store)
    }

    /// Opens the store, and does not tell that it is closed to unknown keys.
    fn open_silently(path: &Path, options: EmbeddedOptions) -> Result<Self, OpenError> {
        backup::refuse(path)?;
        let folder = Folder::open(path)?;
        repair::refuse_unfinished(folder.path())?;
        let earlier = folder.path().join(EARLIER);
        if earlier.exists() {
            return Err(OpenError::Earlier { path: earlier });
        }
        let mut segments = Segment::open_all(folder.path())?;
        let facts = FactsFile::open(folder.path(), segments.is_empty())?;
        if segments.is_empty() {
            // A folder that was only begun has neither.
            if !facts.is_empty() || Index::has_tables(folder.path()) {
                let path = Segment::path(folder.path(), 1);
                return Err(OpenError::Damaged { path, what: "the log is missing".to_owned() });
            }
            let first = Segment::create(folder.path(), 1, FIRST_SEGMENT);
            segments.push(first.map_err(|error| folder.failure(error))?);
        }
        let time = options.time_source();
        let recovered = recover(folder.path(), segments, &time, options.leases)?;
        let Recovered { records, active, end } = recovered;
        let records = Arc::new(records);
        let (tender, tend) = Tender::new(folder.path().to_owned());
        let clock = time.kept();
        let log = Log::new(records.clone(), tender, clock.clone(), active, end);
        let closed = Arc::new(Closed::new(facts.get(CLOSED_UNTIL), records.clock.clone()));
        let ledger = Ledger::new(records.clone(), log, clock.clone(), facts, closed.clone());
        let health = Arc::<Health>::default();
        let writes = start_writing(ledger, tend, health.clone(), &options);
        let writes = writes.map_err(|error| folder.failure(error))?;
        let started = |threads| {
            start_reading(&records, threads, &options).map_err(|error| folder.failure(error))
        };
        let (reads, looks) = (started(READERS)?, started(1)?);
        let (cursor, near) = (Mutex::default(), Near::new(NEAR_BYTES_MAX));
        let (scrubs, backups) = (Scrubs::default(), Backups::default());
        Ok(Self {
            reads,
            looks,
            writes,
            records,
            clock,
            cursor,
            near,
            scrubs,
            backups,
            closed,
            health,
            folder,
        })
    }

    /// Reads all of the store in the folder `path`, which nobody may have open, and checks that each record
    /// can be read. Changes nothing. A [`Backup`] may be verified, too.
    ///
    /// It takes about 130 bytes of memory for each key that the index does not know: some of the
    /// newest ones after a crash, and all if the index is missing or damaged.
    pub fn verify(path: impl AsRef<Path>) -> Result<Verified, OpenError> {
        let path = path.as_ref();
        backup::refuse_incomplete(path)?;
        repair::refuse_unfinished(path)?;
        verification::verify(path, &mut |_| Ok(()))
    }

    /// Health of the disk.
    pub fn health(&self) -> EmbeddedHealth {
        EmbeddedHealth { health: self.health.clone(), closed: self.closed.clone() }
    }

    /// Refuses keys that the store does not know for `time`, because records were lost: an unknown key
    /// may be one whose work was done. Known keys are answered as ever. A time that ends later stays.
    /// It survives restarts, and ends by the store's time.
    pub async fn close_for_unknown_keys(&self, time: Duration) -> Result<(), StoreError> {
        self.writes.ask(move |ledger| ledger.close_for_unknown_keys(time)).await
    }

    /// Takes unknown keys again. Returns false where they were taken already. For an operator who knows
    /// that no lost key is asked for again, or accepts that it runs a second time.
    pub async fn reopen(&self) -> Result<bool, StoreError> {
        let is_closed = self.closed.time_left().is_some();
        if is_closed {
            self.writes.ask(|ledger| ledger.set_fact(CLOSED_UNTIL, Vec::new())).await?;
        }
        Ok(is_closed)
    }

    /// How far the wall clock is ahead of the store's time, in milliseconds; negative where it is
    /// behind, and zero where the store is told its time.
    pub fn clock_offset_ms(&self) -> i64 {
        self.clock.as_ref().map_or(0, |clock| clock.offset_ms())
    }

    /// Bytes of the log's files.
    pub fn bytes(&self) -> u64 {
        self.records.segments.bytes() + self.records.index.bytes()
    }

    /// Forgets the damaged records whose ids, in hexadecimal, begin with `prefix`, and tells how many
    /// there were. Their keys are new then: only a person can know that their work was not done.
    pub async fn forget_damaged(&self, prefix: &str) -> Result<usize, StoreError> {
        let mut damaged = Vec::new();
        let mut from = Bound::Unbounded;
        loop {
            let prefix = prefix.to_owned();
            let bite = self.looks.ask(move |records| records.damaged(&prefix, from)).await?;
            damaged.extend(bite.found);
            match bite.next {
                Some(last) => from = Bound::Excluded(last),
                None => break,
            }
        }
        let forgotten = self.writes.ask(move |ledger| {
            let count = damaged.len();
            damaged.into_iter().try_for_each(|id| ledger.forget(id))?;
            Ok(count)
        });
        forgotten.await
    }

    /// What a claim comes to, where a reader can tell.
    async fn settled(&self, ask: &Ask) -> Result<Option<Claimed>, StoreError> {
        let asked = ask.clone();
        let seen = self.near.erasures(&ask.id);
        let found = self.reads.ask(move |records| records.settled(&asked)).await?;
        Ok(found.map(|(claimed, record)| {
            self.near.keep(record, FOREVER, seen);
            claimed
        }))
    }
}

fn warn_of_closed(closed: &Closed, folder: &Path) {
    if let Some(left) = closed.time_left() {
        tracing::error!(
            folder = %folder.display(),
            seconds = left.as_secs(),
            "the store has lost records: keys that it does not know are refused until those that were \
             lost would have expired, because they would run again; docs/REPAIR.md says what to do"
        );
    }
}

fn start_writing(
    ledger: Ledger,
    tend: impl FnOnce() + Send + 'static,
    health: Arc<Health>,
    options: &EmbeddedOptions,
) -> io::Result<Queue<Ledger>> {
    let (mut queue, jobs) = Queue::new(options.time_out, StoreErrorKind::MayHaveLanded);
    let writer = Writer::new(ledger, jobs, queue.urgent(), health);
    queue.start("selfsame-tend", tend)?;
    queue.start("selfsame-write", || writer.run())?;
    Ok(queue)
}

fn start_reading(
    records: &Arc<Records>,
    threads: usize,
    options: &EmbeddedOptions,
) -> io::Result<Queue<Arc<Records>>> {
    let (mut queue, jobs) = Queue::new(options.time_out, StoreErrorKind::NotWritten);
    let jobs = Arc::new(Mutex::new(jobs));
    for _ in 0..threads {
        let reader = Reader { records: records.clone(), jobs: jobs.clone() };
        queue.start("selfsame-read", || reader.run())?;
    }
    Ok(queue)
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmbeddedStore({})", self.folder.path().display())
    }
}
