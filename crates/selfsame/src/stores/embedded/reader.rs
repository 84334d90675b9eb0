//! The reading threads. Each owns a connection; none ever waits for the writer.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use parking_lot::Mutex;
use selfsame_core::StoreErrorKind;

use super::jobs::Job;
use super::snapshot::Snapshot;
use super::trouble::Refusal;

/// How many reads may share one snapshot. Few, so that the threads share the work.
const BATCH_MAX: usize = 16;

/// One reading thread of several over the same queue.
pub(super) struct Reader {
    pub(super) snapshot: Snapshot,
    pub(super) jobs: Arc<Mutex<Receiver<Job<Snapshot>>>>,
}

impl Reader {
    /// Reads until the queue is closed and empty.
    pub(super) fn run(mut self) {
        while let Some(batch) = self.batch() {
            self.serve(batch);
        }
    }

    fn batch(&self) -> Option<Vec<Job<Snapshot>>> {
        let jobs = self.jobs.lock();
        let first = jobs.recv().ok()?;
        Some(std::iter::once(first).chain(jobs.try_iter().take(BATCH_MAX - 1)).collect())
    }

    fn serve(&mut self, batch: Vec<Job<Snapshot>>) {
        let begun = self.snapshot.begin().map_err(refusal);
        for mut job in batch {
            let read = begun.clone().and_then(|()| job.run(&mut self.snapshot).map_err(refusal));
            job.tell(read.as_ref().copied());
        }
        if let Err(error) = self.snapshot.end() {
            tracing::warn!(%error, "a reader of the store could not end its snapshot");
        }
    }
}

fn refusal(error: rusqlite::Error) -> Refusal {
    Refusal::new(StoreErrorKind::NotWritten, format!("the store cannot be read: {error}"))
}
