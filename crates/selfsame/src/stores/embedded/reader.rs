//! The reading threads. None ever waits for the writer.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::StoreErrorKind;
use tokio::time::Instant;

use super::jobs::Job;
use super::records::Records;
use super::trouble::{Failure, Refusal};

/// Time from which on a read is long: a record of some 100 KiB takes it.
const LONG_READ: Duration = Duration::from_micros(50);

/// One reading thread of several over the same queue.
pub(super) struct Reader {
    pub(super) records: Arc<Records>,
    pub(super) jobs: Arc<Mutex<Receiver<Job<Arc<Records>>>>>,
}

impl Reader {
    /// Reads until the queue is closed and empty.
    pub(super) fn run(mut self) {
        while let Some(mut job) = self.next() {
            let begun = Instant::now();
            let read = job.run(&mut self.records).map_err(refusal);
            job.tell(read.as_ref().copied());
            if begun.elapsed() >= LONG_READ {
                // Many large records in a row would keep a core from all who wait for it.
                thread::yield_now();
            }
        }
    }

    fn next(&self) -> Option<Job<Arc<Records>>> {
        self.jobs.lock().recv().ok()
    }
}

fn refusal(failure: Failure) -> Refusal {
    let (Failure::Refused(error) | Failure::Disk(error)) = failure;
    Refusal::new(StoreErrorKind::NotWritten, format!("the store cannot be read: {error}"))
}
