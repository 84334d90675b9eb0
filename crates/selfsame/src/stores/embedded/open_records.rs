//! [`OpenRecords`]: the ids of all records that are claimed or held.
//!
//! They are few beside those that are closed, and are looked for often: claims die, and people ask
//! what is held.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::RwLock;
use selfsame_core::{RecordId, Timestamp};

use super::index::Entry;

/// Records that are claimed or held, and until when nothing is due to them.
#[derive(Default)]
pub(super) struct OpenRecords {
    by_id: RwLock<BTreeMap<RecordId, Timestamp>>,
}

impl OpenRecords {
    pub(super) fn new(open: impl IntoIterator<Item = (RecordId, Timestamp)>) -> Self {
        Self { by_id: RwLock::new(open.into_iter().collect()) }
    }

    /// Notes what has become of a record.
    pub(super) fn note(&self, id: &RecordId, before: Option<&Entry>, now: Option<&Entry>) {
        match now.filter(|now| now.is_open()) {
            Some(now) => drop(self.by_id.write().insert(*id, now.marks.settled_until)),
            None if before.is_some_and(Entry::is_open) => drop(self.by_id.write().remove(id)),
            None => {}
        }
    }

    /// Notes until when nothing is due to a record.
    pub(super) fn wait(&self, id: &RecordId, until: Timestamp) {
        if let Some(due) = self.by_id.write().get_mut(id) {
            *due = until;
        }
    }

    pub(super) fn all(&self) -> Vec<(RecordId, Timestamp)> {
        self.by_id.read().iter().map(|(id, due)| (*id, *due)).collect()
    }

    /// The next ids from one on, no more than `most`.
    pub(super) fn from(&self, from: Bound<RecordId>, most: usize) -> Vec<RecordId> {
        let by_id = self.by_id.read();
        by_id.range((from, Bound::Unbounded)).take(most).map(|(id, _)| *id).collect()
    }

    /// The next ids from one on to which something is due, no more than `most`.
    pub(super) fn due(&self, from: Bound<RecordId>, now: Timestamp, most: usize) -> Vec<RecordId> {
        let by_id = self.by_id.read();
        let due = by_id.range((from, Bound::Unbounded)).filter(|(_, due)| **due <= now);
        due.take(most).map(|(id, _)| *id).collect()
    }

    /// Whether any lease may be running.
    pub(super) fn has_lease(&self, now: Timestamp) -> bool {
        let by_id = self.by_id.read();
        // Nothing is ever due to those that are held.
        by_id.values().any(|due| *due > now && due.as_millis() < u64::MAX)
    }

    /// Ends the claims of a process that died with its work.
    pub(super) fn end_claims(&self) {
        let mut by_id = self.by_id.write();
        // Nothing is ever due to those that are held.
        let claimed = by_id.values_mut().filter(|due| due.as_millis() < u64::MAX);
        claimed.for_each(|due| *due = Timestamp::default());
    }
}
