//! The reading threads. None ever waits for the writer.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use parking_lot::Mutex;
use selfsame_core::StoreErrorKind;

use super::jobs::Job;
use super::records::Records;
use super::trouble::{Failure, Refusal};

/// One reading thread of several over the same queue.
pub(super) struct Reader {
    pub(super) records: Arc<Records>,
    pub(super) jobs: Arc<Mutex<Receiver<Job<Arc<Records>>>>>,
}

impl Reader {
    /// Reads until the queue is closed and empty.
    pub(super) fn run(mut self) {
        while let Some(mut job) = self.next() {
            let read = job.run(&mut self.records).map_err(refusal);
            job.tell(read.as_ref().copied());
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
