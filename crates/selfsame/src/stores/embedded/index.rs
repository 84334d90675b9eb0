//! [`Index`]: where each record lies in the log, and what is known of it without reading.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::ops::Bound;

use parking_lot::RwLock;
use selfsame_core::RecordId;

use super::frame::Marks;

/// Enough that callers of different keys seldom meet.
const SHARDS: usize = 64;

/// How many entries are looked at before others get their turn.
const STRIDE: usize = 512;

/// A frame's place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u32,
    pub(super) offset: u32,
    /// The whole frame's length.
    pub(super) len: u32,
}

/// Where a record lies, and what is known of it without reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) record: Place,
    /// Where its end was written, if that is apart.
    pub(super) end: Option<Place>,
    pub(super) marks: Marks,
    /// Whether it was written before the store was opened.
    pub(super) is_earlier: bool,
    /// Whether it cannot be trusted.
    pub(super) is_damaged: bool,
}

impl Entry {
    pub(super) fn new(record: Place, marks: Marks) -> Self {
        Self { record, end: None, marks, is_earlier: false, is_damaged: false }
    }

    pub(super) fn damaged(at: Place) -> Self {
        Self { is_damaged: true, ..Self::new(at, Marks::NONE) }
    }

    /// Its frames.
    pub(super) fn places(self) -> impl Iterator<Item = Place> {
        [Some(self.record), self.end].into_iter().flatten()
    }
}

/// Where each record lies. Only what is durable is in it.
pub(super) struct Index {
    /// In the order of ids, each with those that begin alike.
    shards: [RwLock<BTreeMap<RecordId, Entry>>; SHARDS],
}

impl Index {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| RwLock::default()) }
    }

    pub(super) fn get(&self, id: &RecordId) -> Option<Entry> {
        self.shards[shard(id)].read().get(id).copied()
    }

    /// Puts in the place of an entry what becomes of it. Returns both, for the accounts.
    pub(super) fn change(
        &self,
        id: RecordId,
        change: impl FnOnce(Option<Entry>) -> Option<Entry>,
    ) -> (Option<Entry>, Option<Entry>) {
        match self.shards[shard(&id)].write().entry(id) {
            Occupied(mut place) => {
                let before = *place.get();
                let now = change(Some(before));
                match now {
                    Some(now) => drop(place.insert(now)),
                    None => drop(place.remove()),
                }
                (Some(before), now)
            }
            Vacant(place) => {
                let now = change(None);
                now.map(|now| place.insert(now));
                (None, now)
            }
        }
    }

    /// Shows no more than `most` entries to `see`, in the order of their ids. Returns the last one's
    /// id, unless the index ends with it. Those who write wait for a few at a time.
    pub(super) fn walk(
        &self,
        from: Bound<RecordId>,
        most: usize,
        mut see: impl FnMut(&RecordId, &Entry),
    ) -> Option<RecordId> {
        let (mut from, mut left) = (from, most);
        let first = match &from {
            Bound::Included(id) | Bound::Excluded(id) => shard(id),
            Bound::Unbounded => 0,
        };
        for shard in &self.shards[first..] {
            loop {
                let stride = STRIDE.min(left);
                let shard = shard.read();
                let mut seen = 0;
                for (id, entry) in shard.range((from, Bound::Unbounded)).take(stride) {
                    see(id, entry);
                    seen += 1;
                    from = Bound::Excluded(*id);
                }
                left -= seen;
                if left == 0
                    && let Bound::Included(id) | Bound::Excluded(id) = from
                {
                    return Some(id);
                }
                if seen < stride || left == 0 {
                    break;
                }
            }
        }
        None
    }
}

/// Ids are hashes: their first byte spreads them evenly.
fn shard(id: &RecordId) -> usize {
    usize::from(id.as_bytes()[0]) * SHARDS / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> RecordId {
        let mut bytes = [0; RecordId::LEN];
        bytes[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
        RecordId::from_bytes(bytes)
    }

    #[test]
    fn a_walk_sees_each_entry_once_and_in_order() {
        let index = Index::new();
        let entry = Entry::new(Place { segment: 1, offset: 0, len: 1 }, Marks::NONE);
        for number in 0..5000 {
            assert_eq!(index.change(id(number), |_| Some(entry)), (None, Some(entry)));
        }
        for most in [1, 7, 511, 512, 513, 5000, 9999] {
            let (mut seen, mut from) = (Vec::new(), Bound::Unbounded);
            loop {
                let before = seen.len();
                let last = index.walk(from, most, |id, _| seen.push(*id));
                assert!(seen.len() - before <= most);
                match last {
                    Some(last) => from = Bound::Excluded(last),
                    None => break,
                }
            }
            assert_eq!(seen.len(), 5000, "{most}");
            assert!(seen.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn a_walk_of_nothing_goes_nowhere() {
        assert_eq!(Index::new().walk(Bound::Unbounded, 10, |_, _| panic!("empty")), None);
    }
}
