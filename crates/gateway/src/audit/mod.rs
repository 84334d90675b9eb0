//! The audit log: what happened to keys, one entry an event, in a file or a table that outlives them.
//!
//! It is off the path of requests: an event is put into a queue, and a task writes what waits there. What does
//! not fit, because nothing can be written for long, is counted and told.

mod file;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use selfsame::stores::{AuditEntry, PostgresStore};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

pub(crate) use store::AuditedStore;

use self::file::AuditFile;
use crate::background;

/// How many events wait to be written.
const QUEUE_MAX: usize = 16 * 1024;
/// How many are written at a time.
const BATCH_MAX: usize = 1024;
/// How long until what could not be written is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long what waits may take to be written at shutdown.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Where events go. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Audit {
    queue: mpsc::Sender<Message>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    shows_keys: AtomicBool,
    /// Whether the file is to be opened anew before the next write.
    is_moved: AtomicBool,
    /// Whether events were lost since the last write: that is told once.
    is_losing: AtomicBool,
}

enum Message {
    Event(AuditEntry),
    /// All before it was written, or cannot be.
    End(oneshot::Sender<()>),
}

/// What is written to.
enum Sink {
    File(AuditFile),
    Table(Arc<PostgresStore>),
}

impl Audit {
    /// To the end of a file, which is made if it is missing.
    pub(crate) fn to_file(path: &std::path::Path) -> Result<Self> {
        Ok(Self::to(Sink::File(AuditFile::open(path)?)))
    }

    /// To the table of this store.
    pub(crate) fn to_table(store: Arc<PostgresStore>) -> Self {
        Self::to(Sink::Table(store))
    }

    fn to(sink: Sink) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(Shared::default());
        metrics::counter!("selfsame_audit_lost_total").increment(0);
        background::spawn(write(sink, waiting, shared.clone()));
        Self { queue, shared }
    }

    /// Whether entries have keys as they are.
    pub(crate) fn show_keys(&self, shows_keys: bool) {
        self.shared.shows_keys.store(shows_keys, Ordering::Relaxed);
    }

    fn shows_keys(&self) -> bool {
        self.shared.shows_keys.load(Ordering::Relaxed)
    }

    /// The file may have been moved away: the next entry is written where its name says.
    pub(crate) fn reopen(&self) {
        self.shared.is_moved.store(true, Ordering::Relaxed);
    }

    fn note(&self, entry: AuditEntry) {
        if self.queue.try_send(Message::Event(entry)).is_err() {
            metrics::counter!("selfsame_audit_lost_total").increment(1);
            if !self.shared.is_losing.swap(true, Ordering::Relaxed) {
                tracing::error!("events are missing from the audit log: too many wait for it");
            }
        }
    }

    /// Waits until what was noted is written, but not for long.
    pub(crate) async fn end(&self) {
        let (tell, told) = oneshot::channel();
        let end = async {
            let _gone = self.queue.send(Message::End(tell)).await;
            let _gone = told.await;
        };
        if timeout(END_TIMEOUT, end).await.is_err() {
            tracing::error!("the last events are not in the audit log: it cannot be written");
        }
    }
}

async fn write(mut sink: Sink, mut waiting: mpsc::Receiver<Message>, shared: Arc<Shared>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let (mut entries, mut ends) = (Vec::new(), Vec::new());
        for message in batch.drain(..) {
            match message {
                Message::Event(entry) => entries.push(entry),
                Message::End(tell) => ends.push(tell),
            }
        }
        let mut entries = Arc::new(entries);
        loop {
            let is_moved = shared.is_moved.swap(false, Ordering::Relaxed);
            let written;
            (sink, entries, written) = sink.append(entries, is_moved).await;
            match written {
                Ok(()) => {
                    shared.is_losing.store(false, Ordering::Relaxed);
                    break;
                }
                Err(error) => {
                    tracing::error!("the audit log cannot be written: {error:#}");
                    // It is opened anew the next time, too.
                    shared.is_moved.fetch_or(is_moved, Ordering::Relaxed);
                    sleep(PAUSE).await;
                }
            }
        }
        for tell in ends {
            // Whoever waits for it may be gone.
            let _gone = tell.send(());
        }
    }
}

impl Sink {
    /// Writes all of `entries`, or none.
    async fn append(
        self,
        entries: Arc<Vec<AuditEntry>>,
        is_moved: bool,
    ) -> (Self, Arc<Vec<AuditEntry>>, Result<()>) {
        match self {
            _ if entries.is_empty() => (self, entries, Ok(())),
            Self::Table(store) => {
                let written = store.append_audit(&entries).await;
                (Self::Table(store), entries, written.map_err(Into::into))
            }
            Self::File(mut file) => {
                let writing = tokio::task::spawn_blocking(move || {
                    let written = file.append(&entries, is_moved);
                    (Self::File(file), entries, written)
                });
                writing.await.expect("what is written to a file does not panic")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use selfsame_core::{AttemptId, RecordId, Timestamp};

    use super::*;

    fn entry() -> AuditEntry {
        AuditEntry {
            entry: AttemptId::random(),
            at: Timestamp::from_millis(1_767_225_600_123),
            event: "completed",
            record: RecordId::from_bytes([7; RecordId::LEN]),
            tenant: None,
            route: Some("/charges".into()),
            key: None,
            attempt: Some(1),
            fence: Some(2),
            status: Some(201),
            by: None,
            reason: None,
        }
    }

    #[tokio::test]
    async fn an_event_is_a_line_and_a_file_that_was_moved_is_begun_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, moved) = (folder.path().join("audit.log"), folder.path().join("audit.1"));
        let audit = Audit::to_file(&path).expect("it can be made");
        audit.note(entry());
        audit.end().await;
        let read = |path| std::fs::read_to_string(path).expect("readable");
        let line = format!(
            "{{\"at\":\"2026-01-01T00:00:00.123Z\",\"event\":\"completed\",\"record\":\"{}\",\
             \"route\":\"/charges\",\"attempt\":1,\"fence\":2,\"status\":201}}\n",
            "07".repeat(32)
        );
        assert_eq!(read(&path), line);

        std::fs::rename(&path, &moved).expect("moved");
        audit.note(entry());
        audit.end().await;
        assert_eq!(read(&moved).lines().count(), 2, "nobody has said that it was moved");
        audit.reopen();
        audit.note(entry());
        audit.end().await;
        assert_eq!((read(&moved).lines().count(), read(&path).lines().count()), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_log_that_cannot_be_written() {
        let audit = Audit::to_file(std::path::Path::new("/dev/full")).expect("it can be opened");
        for _ in 0..QUEUE_MAX + 2 * BATCH_MAX {
            audit.note(entry());
        }
        audit.end().await;
    }
}
