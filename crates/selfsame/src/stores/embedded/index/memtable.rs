//! [`Memtable`]: the newest changes of the index, in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec;

use parking_lot::RwLock;
use selfsame_core::RecordId;

use super::entry::Slot;

/// Enough that callers of different keys seldom meet.
const SHARDS: usize = 64;

/// Entries that a walk takes out of a shard at once.
const STRIDE: usize = 512;

/// Slots by id.
pub(super) struct Memtable {
    /// In the order of ids, each with those that begin alike.
    shards: [RwLock<BTreeMap<RecordId, Slot>>; SHARDS],
    len: AtomicUsize,
}

impl Memtable {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| RwLock::default()), len: AtomicUsize::new(0) }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn get(&self, id: &RecordId) -> Option<Slot> {
        self.shards[shard(id)].read().get(id).copied()
    }

    pub(super) fn put(&self, id: RecordId, slot: Slot) {
        if self.shards[shard(&id)].write().insert(id, slot).is_none() {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The slots from an id on, in the order of ids. Those who write wait for a few at a time.
    pub(super) fn walk(&self, from: Bound<RecordId>) -> impl Iterator<Item = Change> + '_ {
        let at = match &from {
            Bound::Included(id) | Bound::Excluded(id) => shard(id),
            Bound::Unbounded => 0,
        };
        Walk { table: self, at, from, stride: Vec::new().into_iter() }
    }
}

/// An id and its slot.
pub(super) type Change = (RecordId, Slot);

struct Walk<'a> {
    table: &'a Memtable,
    at: usize,
    from: Bound<RecordId>,
    stride: vec::IntoIter<Change>,
}

impl Iterator for Walk<'_> {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.stride.next() {
                return Some(change);
            }
            let shard = self.table.shards.get(self.at)?.read();
            let range = shard.range((self.from, Bound::Unbounded)).take(STRIDE);
            let stride: Vec<_> = range.map(|(id, slot)| (*id, *slot)).collect();
            match stride.last() {
                Some((last, _)) => self.from = Bound::Excluded(*last),
                None => self.at += 1,
            }
            self.stride = stride.into_iter();
        }
    }
}

/// Ids are hashes: their first byte spreads them evenly.
fn shard(id: &RecordId) -> usize {
    usize::from(id.as_bytes()[0]) * SHARDS / 256
}
