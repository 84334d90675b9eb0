//! [`Segments`]: the files of the log, and how much of each is still needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::index::{Entry, Place};
use super::segment::Segment;

/// The smallest segment, and the largest.
const SIZE_MIN: u64 = 1024 * 1024;
const SIZE_MAX: u64 = 1024 * 1024 * 1024;

/// A new segment is this part of what is there: few files, and little room that waits to be used.
const SIZE_PART: u64 = 64;

/// How much room may be wasted, besides as much as is needed.
const WASTE_MIN: u64 = 8 * 1024 * 1024;

/// The files of the log.
pub(super) struct Segments {
    all: RwLock<BTreeMap<u32, Used>>,
}

struct Used {
    segment: Arc<Segment>,
    /// How many bytes of it belong to the records as they are now.
    needed: u64,
}

impl Segments {
    pub(super) fn new() -> Self {
        Self { all: RwLock::default() }
    }

    pub(super) fn get(&self, number: u32) -> Option<Arc<Segment>> {
        self.all.read().get(&number).map(|used| used.segment.clone())
    }

    pub(super) fn add(&self, segment: Arc<Segment>) {
        self.all.write().insert(segment.number, Used { segment, needed: 0 });
    }

    /// All of them, the oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Segment>> {
        self.all.read().values().map(|used| used.segment.clone()).collect()
    }

    /// Counts what is needed now that it was not before, and what no longer is.
    pub(super) fn account(
        &self,
        changes: impl IntoIterator<Item = (Option<Entry>, Option<Entry>)>,
    ) {
        let mut all = self.all.write();
        let places = |entry: Option<Entry>| entry.into_iter().flat_map(Entry::places);
        for (before, now) in changes {
            for Place { segment, len, .. } in places(now) {
                all.get_mut(&segment).expect("it is written there").needed += u64::from(len);
            }
            for Place { segment, len, .. } in places(before) {
                all.get_mut(&segment).expect("it is still needed").needed -= u64::from(len);
            }
        }
    }

    /// Takes the oldest segment out, if nothing of it is needed and the log goes on in another.
    pub(super) fn take_oldest_unneeded(&self) -> Option<Arc<Segment>> {
        let mut all = self.all.write();
        if all.len() > 1 && all.first_entry()?.get().needed == 0 {
            return all.pop_first().map(|(_, used)| used.segment);
        }
        None
    }

    /// The oldest segment, if it stands in the way: the older ones go first, and together they are
    /// mostly waste.
    pub(super) fn oldest_if_wasteful(&self) -> Option<Arc<Segment>> {
        let all = self.all.read();
        let taken: u64 = all.values().map(|used| used.segment.capacity).sum();
        let needed: u64 = all.values().map(|used| used.needed).sum();
        let is_wasteful = all.len() > 1 && taken > 2 * needed + WASTE_MIN;
        all.values().next().filter(|_| is_wasteful).map(|used| used.segment.clone())
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.all.read().values().map(|used| used.segment.capacity).sum()
    }

    /// How large the next segment is to be.
    pub(super) fn next_size(&self) -> u64 {
        let taken = self.bytes();
        (taken / SIZE_PART).clamp(SIZE_MIN, SIZE_MAX)
    }
}
