//! [`EmbeddedStore`]: the durable store of one machine, SQLite in a folder.
//!
//! | thread | does | connection |
//! |---|---|---|
//! | writer | all changes, in batches that share a commit | the only one that writes |
//! | readers | replays and other final answers, beside the writer | read-only |
//! | looker | scans: finding, counting, sweeping | read-only |
//! | checkpointer | moves the write-ahead log into the file | its own |
//!
//! A claim of a key that was seen lately is first looked up among the finished records in memory,
//! then by a reader: where its record needs no change it gets its answer there. Everything else goes
//! to the writer, which decides anew.

mod checkpointer;
mod expiry;
mod facts;
mod folder;
mod jobs;
mod ledger;
mod near;
mod options;
mod reader;
mod rows;
mod schema;
mod seen;
mod snapshot;
mod store;
mod trouble;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use selfsame_core::{Ask, Claimed, Clock, StoreError, StoreErrorKind};

pub use options::{EmbeddedOptions, Leases};
pub use trouble::OpenError;

use checkpointer::Log;
use facts::Boot;
use folder::Folder;
use jobs::Queue;
use ledger::Ledger;
use near::Near;
use reader::Reader;
use seen::Seen;
use snapshot::Snapshot;
use trouble::Health;
use writer::Writer;

/// How many threads answer from finished records.
const READERS: usize = 2;

/// Records in a folder, safe from a crash of the process or of the machine.
///
/// ```no_run
/// use selfsame::stores::{EmbeddedOptions, EmbeddedStore};
///
/// let store = EmbeddedStore::open("/var/lib/payments/keys", EmbeddedOptions::default())?;
/// # Ok::<(), selfsame::stores::OpenError>(())
/// ```
///
/// Set `LIBSQLITE3_FLAGS=-DHAVE_FDATASYNC=1` where SQLite is built, on systems that have `fdatasync`:
/// the bundled one does not look, and then each commit also waits for the file's times to be written.
///
/// One folder serves one process; a second one is told who has it. Calls wait by Tokio's timer.
///
/// Dropping the store does what it was asked for, closes the file and gives the folder back; it
/// waits for the disk meanwhile.
pub struct EmbeddedStore {
    // Dropped from top to bottom. The writer closes the file last, because only a connection that
    // writes can move the log into it; then the folder is given back.
    reads: Queue<Snapshot>,
    looks: Queue<Snapshot>,
    writes: Queue<Ledger>,
    folder: Folder,
    clock: Arc<dyn Clock>,
    swept_to: Mutex<Vec<u8>>,
    seen: Seen,
    near: Near,
}

impl EmbeddedStore {
    /// Opens the store in the folder `path`, which is made if it is missing.
    pub fn open(path: impl AsRef<Path>, options: EmbeddedOptions) -> Result<Self, OpenError> {
        let folder = Folder::open(path.as_ref())?;
        let conn = schema::open_writer(&folder.records())?;
        let boot = Boot::begin(&conn, options.leases).map_err(|error| folder.failure(error))?;
        let ledger = Ledger::new(conn, options.clock.clone(), boot);
        let ledger = ledger.map_err(|error| folder.failure(error))?;
        let writes = start_writing(&folder, ledger, &options)?;
        let reads = start_reading(&folder, READERS, boot, &options)?;
        let looks = start_reading(&folder, 1, boot, &options)?;
        let (clock, swept_to) = (options.clock, Mutex::default());
        let (seen, near) = (Seen::new(), Near::default());
        Ok(Self { reads, looks, writes, folder, clock, swept_to, seen, near })
    }

    /// What a claim comes to, where a reader can tell.
    async fn settled(&self, ask: &Ask) -> Result<Option<Claimed>, StoreError> {
        let asked = ask.clone();
        let found = self.reads.ask(move |snapshot| snapshot.settled(&asked)).await?;
        Ok(found.map(|(claimed, record)| {
            self.near.keep(record);
            claimed
        }))
    }
}

fn start_writing(
    folder: &Folder,
    ledger: Ledger,
    options: &EmbeddedOptions,
) -> Result<Queue<Ledger>, OpenError> {
    let (mut queue, jobs) = Queue::new(options.time_out, StoreErrorKind::MayHaveLanded);
    let health = Arc::new(Health::default());
    let (log, wakes) = Log::new();
    let conn = schema::open_checkpointer(&folder.records())?;
    let writer = Writer::new(ledger, jobs, log, health.clone());
    queue
        .start("selfsame-log", move || checkpointer::run(&conn, &wakes, &health))
        .and_then(|()| queue.start("selfsame-write", || writer.run()))
        .map_err(|error| folder.failure(error))?;
    Ok(queue)
}

fn start_reading(
    folder: &Folder,
    threads: usize,
    boot: Boot,
    options: &EmbeddedOptions,
) -> Result<Queue<Snapshot>, OpenError> {
    let (mut queue, jobs) = Queue::new(options.time_out, StoreErrorKind::NotWritten);
    let jobs = Arc::new(Mutex::new(jobs));
    for _ in 0..threads {
        let conn = schema::open_reader(&folder.records())?;
        let snapshot = Snapshot::new(conn, options.clock.clone(), boot);
        let reader = Reader { snapshot, jobs: jobs.clone() };
        queue.start("selfsame-read", || reader.run()).map_err(|error| folder.failure(error))?;
    }
    Ok(queue)
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmbeddedStore({})", self.folder.path().display())
    }
}
