//! [`Segments`]: the files of the log, and what the records as they are now need of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use selfsame_core::Timestamp;

use super::index::{Entry, Place};
use super::note::NotedSegment;
use super::segment::Segment;

/// The smallest segment, and the largest.
const SIZE_MIN: u64 = 1024 * 1024;
const SIZE_MAX: u64 = 256 * 1024 * 1024;

/// A new segment is this part of what is there: few files, and little room that waits to be used.
const SIZE_PART: u64 = 64;

/// How much room may be wasted, besides as much as is needed.
const WASTE_MIN: u64 = 8 * 1024 * 1024;

/// Number of states, and the one of damaged records.
const STATES: usize = 6;

const NEVER: Timestamp = Timestamp::from_millis(u64::MAX);

/// The files of the log.
pub(super) struct Segments {
    all: RwLock<BTreeMap<u32, Used>>,
}

struct Used {
    segment: Arc<Segment>,
    /// Where its last frame begins, if the log goes on in the next.
    sealed_at: Option<u64>,
    needs: Needs,
    /// The earliest time at which something is due to a record that was added since a scan of the
    /// segment began.
    due_since_scan: Timestamp,
}

/// What the records as they are now need of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Needs {
    /// Bytes of their frames.
    pub(super) bytes: u64,
    /// Number of records in each state whose newest frame is there.
    pub(super) states: [u64; STATES],
    /// No record of these that is closed has anything due before.
    pub(super) due: Timestamp,
}

impl Needs {
    pub(super) const NONE: Self = Self { bytes: 0, states: [0; STATES], due: NEVER };

    /// Length of its form in a note.
    pub(super) const LEN: usize = 8 * (STATES + 2);

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let numbers = [self.bytes, self.due.as_millis()].into_iter().chain(self.states);
        for (part, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
            *part = number.to_le_bytes();
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let mut numbers = bytes.as_chunks().0.iter().map(|part| u64::from_le_bytes(*part));
        let mut next = || numbers.next().expect("the length is right");
        let (bytes, due) = (next(), Timestamp::from_millis(next()));
        Self { bytes, due, states: std::array::from_fn(|_| next()) }
    }
}

impl Segments {
    pub(super) fn new() -> Self {
        Self { all: RwLock::default() }
    }

    pub(super) fn get(&self, number: u32) -> Option<Arc<Segment>> {
        self.all.read().get(&number).map(|used| used.segment.clone())
    }

    pub(super) fn add(&self, segment: Arc<Segment>) {
        let used = Used { segment, sealed_at: None, needs: Needs::NONE, due_since_scan: NEVER };
        self.all.write().insert(used.segment.number, used);
    }

    /// Adds a segment of which something is known.
    pub(super) fn add_noted(&self, segment: Arc<Segment>, noted: &NotedSegment) {
        let NotedSegment { number, sealed_at, needs } = *noted;
        self.all.write().insert(number, Used { segment, sealed_at, needs, due_since_scan: NEVER });
    }

    /// Notes that the last frame of a segment begins there.
    pub(super) fn seal(&self, number: u32, at: u64) {
        if let Some(used) = self.all.write().get_mut(&number) {
            used.sealed_at = Some(at);
        }
    }

    /// Forgets a segment that holds nothing.
    pub(super) fn remove(&self, number: u32) {
        self.all.write().remove(&number);
    }

    /// All of them, the oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Segment>> {
        self.all.read().values().map(|used| used.segment.clone()).collect()
    }

    /// All of them, the oldest first, and where their last frames begin if the log goes on behind.
    pub(super) fn sealed(&self) -> Vec<(Arc<Segment>, Option<u64>)> {
        self.all.read().values().map(|used| (used.segment.clone(), used.sealed_at)).collect()
    }

    /// What is known of each, the oldest first.
    pub(super) fn noted(&self) -> Vec<NotedSegment> {
        let all = self.all.read();
        let noted = all.iter().map(|(number, used)| {
            let Used { sealed_at, needs, .. } = *used;
            NotedSegment { number: *number, sealed_at, needs }
        });
        noted.collect()
    }

    /// Number of the oldest.
    pub(super) fn oldest(&self) -> u32 {
        self.all.read().keys().next().copied().unwrap_or(0)
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
                all.get_mut(&segment).expect("it is written there").needs.bytes += u64::from(len);
            }
            for Place { segment, len, .. } in places(before) {
                all.get_mut(&segment).expect("it is still needed").needs.bytes -= u64::from(len);
            }
            if let Some(now) = now {
                let used = all.get_mut(&now.newest().segment).expect("it is written there");
                used.needs.states[usize::from(now.marks.state)] += 1;
                if now.is_closed() {
                    used.needs.due = used.needs.due.min(now.marks.settled_until);
                    used.due_since_scan = used.due_since_scan.min(now.marks.settled_until);
                }
            }
            if let Some(before) = before {
                let used = all.get_mut(&before.newest().segment).expect("it is still needed");
                used.needs.states[usize::from(before.marks.state)] -= 1;
            }
        }
    }

    /// The first segment from this number on in which something is due.
    pub(super) fn first_due(&self, from: u32, now: Timestamp) -> Option<Arc<Segment>> {
        let all = self.all.read();
        let due = all.range(from..).find(|(_, used)| used.needs.due <= now);
        due.map(|(_, used)| used.segment.clone())
    }

    /// Notes that a scan of a segment begins.
    pub(super) fn begin_scan(&self, number: u32) {
        if let Some(used) = self.all.write().get_mut(&number) {
            used.due_since_scan = NEVER;
        }
    }

    /// Notes that a scan has found nothing due before `due`.
    pub(super) fn end_scan(&self, number: u32, due: Timestamp) {
        if let Some(used) = self.all.write().get_mut(&number) {
            used.needs.due = due.min(used.due_since_scan);
        }
    }

    /// Number of the first segment of which something is needed, or in which the log goes on.
    pub(super) fn first_needed(&self) -> u32 {
        let all = self.all.read();
        let last = all.keys().next_back().copied().unwrap_or(0);
        all.iter().find(|(_, used)| used.needs.bytes > 0).map_or(last, |(number, _)| *number)
    }

    /// Takes out all segments before this one, the oldest first.
    pub(super) fn take_before(&self, number: u32) -> Vec<Arc<Segment>> {
        let mut all = self.all.write();
        let needed = all.split_off(&number);
        let taken = std::mem::replace(&mut *all, needed);
        taken.into_values().map(|used| used.segment).collect()
    }

    /// The oldest segment, if it stands in the way: the older ones go first, and together they are
    /// mostly waste.
    pub(super) fn oldest_if_wasteful(&self) -> Option<Arc<Segment>> {
        let all = self.all.read();
        let taken: u64 = all.values().map(|used| used.segment.capacity).sum();
        let needed: u64 = all.values().map(|used| used.needs.bytes).sum();
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
