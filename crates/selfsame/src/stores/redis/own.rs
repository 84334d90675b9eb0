//! [`Own`]: what this process has claimed and nobody has changed since, as far as it knows.
//!
//! The answer to most claims comes before anything else happens to them. Then it is known without reading what
//! the record is, and what is written in its place counts only if that is true.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::{Record, RecordId, Timestamp};
use tokio::time::Instant;

use super::value::{Draft, Seen};

/// Into how many parts it is divided, so that callers seldom meet.
const PARTS: usize = 16;
/// How many claims a part remembers; others are read again.
const MOST: usize = 1024;
/// For how long our clock is taken to go like Redis'.
const FRESH_FOR: Duration = Duration::from_secs(60);

/// A first claim as it was written.
pub(super) struct Written {
    pub(super) record: Box<Record>,
    draft: Draft,
    /// When that was, by Redis' clock and by ours.
    told: Timestamp,
    heard: Instant,
}

impl Written {
    /// What it looks like.
    pub(super) fn seen(&self) -> &Seen {
        self.draft.seen()
    }

    /// Redis' time, as far as can be told from the time of the claim; tests are ahead of it.
    pub(super) fn now(&self, ahead_ms: u64) -> Timestamp {
        self.told + Duration::from_millis(ahead_ms) + self.heard.elapsed()
    }

    /// The value of the record as it is now.
    pub(super) fn value(&self) -> Vec<u8> {
        self.draft.value(&self.record)
    }

    fn is_fresh(&self) -> bool {
        self.heard.elapsed() < FRESH_FOR
    }
}

/// Claims of this process.
#[derive(Default)]
pub(super) struct Own {
    parts: [Mutex<HashMap<RecordId, Written>>; PARTS],
}

impl Own {
    /// This was written when Redis told that time.
    pub(super) fn remember(&self, record: Record, draft: Draft, told: Timestamp) {
        let mut part = self.part(&record.id).lock();
        if part.len() >= MOST {
            part.retain(|_, written| written.is_fresh());
        }
        if part.len() < MOST {
            // The answer takes the place of the request.
            let (id, record) = (record.id, Box::new(record.without_request()));
            part.insert(id, Written { record, draft, told, heard: Instant::now() });
        }
    }

    /// What is known of a claim, and Redis' time.
    #[cfg(feature = "postgres")]
    pub(super) fn peek(&self, id: &RecordId, ahead_ms: u64) -> Option<(Timestamp, Record)> {
        let part = self.part(id).lock();
        let written = part.get(id).filter(|written| written.is_fresh())?;
        Some((written.now(ahead_ms), (*written.record).clone()))
    }

    pub(super) fn take(&self, id: &RecordId) -> Option<Written> {
        let written = self.part(id).lock().remove(id);
        written.filter(Written::is_fresh)
    }

    /// The record of a claim, however long ago it was made.
    pub(super) fn take_record(&self, id: &RecordId) -> Option<Record> {
        let written = self.part(id).lock().remove(id);
        written.map(|written| *written.record)
    }

    pub(super) fn forget(&self, id: &RecordId) {
        let _written = self.part(id).lock().remove(id);
    }

    /// Ids are hashes: any byte spreads them.
    fn part(&self, id: &RecordId) -> &Mutex<HashMap<RecordId, Written>> {
        &self.parts[usize::from(id.as_bytes()[0]) % PARTS]
    }
}
