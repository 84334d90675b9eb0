//! [`MemoryStore`]: records in this process, gone with it. For tests, and for services that run
//! once and keep nothing over a restart.
//!
//! It is a store and not a cache: nothing unexpired is ever dropped to make room.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use selfsame_core::{
    Answer, Ask, AttemptId, Checkpoint, Claimed, Clock, Count, Due, Erased, Facts, Fence, Fenced,
    Find, Inspect, Lease, Record, RecordId, Recorded, Release, Replay, Resolution, Resolved, State,
    Store, StoreError, Sweep, Swept, Timestamp,
};

use super::SystemClock;
use super::packed::Packed;

/// Enough that callers of different keys seldom meet, and that none waits long while a table grows.
const SHARDS: usize = 1024;

/// Boxed, because a table moves what is in it about.
type Shard = HashMap<RecordId, Box<Record<Packed>>, BuildHasherDefault<TakenFromId>>;

/// An id is a keyed hash already: a part of it, other than the one that tells the shard.
#[derive(Default)]
pub(crate) struct TakenFromId(u64);

impl Hasher for TakenFromId {
    fn write(&mut self, bytes: &[u8]) {
        // The length is written first.
        if let Some(last) = bytes.last_chunk() {
            self.0 = u64::from_le_bytes(*last);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Records in this process.
///
/// Each call about a key takes the one lock of its shard once, and reads the clock under it: the
/// time that decides never goes back from one call to the next.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    shards: Box<[Mutex<Shard>]>,
    facts: Mutex<HashMap<String, Vec<u8>>>,
    cursor: Mutex<Cursor>,
}

/// Where the next sweep goes on.
#[derive(Default)]
struct Cursor {
    shard: usize,
    /// What is still to be looked at there, if the sweep has come to it.
    left: Option<Vec<RecordId>>,
}

impl MemoryStore {
    /// An empty store under the system's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// An empty store under a clock of the caller's.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            facts: Mutex::default(),
            cursor: Mutex::default(),
        }
    }

    fn lock(&self, id: &RecordId) -> (MutexGuard<'_, Shard>, Timestamp) {
        let shard = self.shard(id).lock();
        (shard, self.clock.now())
    }

    fn shard(&self, id: &RecordId) -> &Mutex<Shard> {
        // Ids are hashes: their first bytes spread them evenly.
        let [first, second, ..] = *id.as_bytes();
        &self.shards[usize::from(u16::from_le_bytes([first, second])) % SHARDS]
    }

    fn change(
        &self,
        lease: &Lease,
        change: impl FnOnce(&mut Record<Packed>, Timestamp) -> Fenced,
    ) -> Result<Fenced, StoreError> {
        let (mut shard, now) = self.lock(&lease.id);
        Ok(shard.get_mut(&lease.id).map_or(Fenced::Lost, |record| change(record, now)))
    }

    /// Calls `see` with each unexpired record, shard by shard, for as long as it says so. Nobody
    /// waits for more than a shard, and no two shards are of quite the same moment.
    fn look(&self, mut see: impl FnMut(&Record<Packed>, Timestamp) -> bool) {
        for shard in &self.shards {
            let shard = shard.lock();
            let now = self.clock.now();
            for record in shard.values().filter(|record| !record.is_expired(now)) {
                if !see(record, now) {
                    return;
                }
            }
        }
    }

    /// The first of the meant records behind `after`, in the order of their ids. No shard has ids that
    /// follow each other, so all are looked at.
    fn in_order(
        &self,
        after: Option<RecordId>,
        most: usize,
        is_meant: impl Fn(&Record<Packed>, Timestamp) -> bool,
    ) -> Vec<Record> {
        let mut found = BTreeMap::new();
        self.look(|record, now| {
            if is_meant(record, now) && after.is_none_or(|after| record.id > after) {
                let seen = record.restored().without_request().seen_at(now);
                found.extend(seen.map(|record| (record.id, record)));
                if found.len() > most {
                    found.pop_last();
                }
            }
            true
        });
        found.into_values().collect()
    }

    /// Sweeps one shard from where the cursor stands, looking at no more than `most` records, and
    /// returns at how many it looked.
    fn sweep_shard(&self, cursor: &mut Cursor, most: usize, swept: &mut Swept) -> usize {
        let mut shard = self.shards[cursor.shard].lock();
        let now = self.clock.now();
        let left = cursor.left.get_or_insert_with(|| shard.keys().copied().collect());
        let looked = left.len().min(most);
        for id in left.drain(left.len() - looked..) {
            let Some(record) = shard.get_mut(&id) else { continue };
            match record.due(now) {
                Some(Due::Removal) => {
                    shard.remove(&id);
                    swept.removed += 1;
                }
                Some(Due::Burial) => {
                    record.bury(now);
                    swept.buried += 1;
                }
                Some(Due::Hold) => {
                    record.settle(now);
                    swept.held.push(record.restored().without_request());
                }
                None => {}
            }
        }
        // A table keeps its room by itself.
        if left.is_empty() && shard.len() < shard.capacity() / 4 {
            shard.shrink_to_fit();
        }
        looked
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        let (mut shard, now) = self.lock(&ask.id);
        Ok(match shard.entry(ask.id) {
            Entry::Occupied(mut place) => {
                let (claimed, next) = selfsame_core::claim(Some(&**place.get()), ask, now);
                if let Some(next) = next {
                    **place.get_mut() = next;
                }
                claimed
            }
            Entry::Vacant(place) => {
                let (claimed, next) = selfsame_core::claim(None, ask, now);
                if let Some(next) = next {
                    place.insert(Box::new(next));
                }
                claimed
            }
        })
    }

    fn answered(&self, ask: &Ask) -> Option<Replay> {
        let shard = self.shard(&ask.id).lock();
        // Most keys are new, and need no time to be told so.
        let record = shard.get(&ask.id)?;
        selfsame_core::answered(record, ask, self.clock.now())
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        self.change(lease, |record, now| record.renew(lease, now))
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        self.change(lease, |record, _| record.checkpoint(lease, checkpoint.clone()))
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        let answer = Packed::from(answer);
        let (mut shard, now) = self.lock(&lease.id);
        let Some(record) = shard.get_mut(&lease.id) else { return Ok(Recorded::Lost) };
        Ok(record.complete(lease, answer, now))
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        let (mut shard, now) = self.lock(&lease.id);
        let Some(record) = shard.get_mut(&lease.id) else { return Ok(Fenced::Lost) };
        if record.is_forgotten_by(lease, release) {
            shard.remove(&lease.id);
            return Ok(Fenced::Applied);
        }
        Ok(record.release(lease, release, now))
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        let (mut shard, _) = self.lock(id);
        Ok(shard.get_mut(id).map_or(Fenced::Lost, |record| record.cancel(attempt_id)))
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let (shard, now) = self.lock(id);
        Ok(shard.get(id).and_then(|record| record.restored().seen_at(now)))
    }
}

#[async_trait]
impl Sweep for MemoryStore {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        let mut cursor = self.cursor.lock();
        let mut swept = Swept::default();
        let mut left = most;
        loop {
            let looked = self.sweep_shard(&mut cursor, left, &mut swept);
            if looked == left {
                return Ok(swept);
            }
            left -= looked;
            *cursor = Cursor { shard: (cursor.shard + 1) % SHARDS, left: None };
            if cursor.shard == 0 {
                return Ok(Swept { finished: true, ..swept });
            }
        }
    }
}

#[async_trait]
impl Inspect for MemoryStore {
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        match find {
            Find::Abandoned { after } => {
                return Ok(self.in_order(*after, most, Record::is_abandoned));
            }
            Find::Matching { filter, after } => {
                let is_meant = |record: &Record<Packed>, now| filter.lets_through(record, now);
                return Ok(self.in_order(*after, most, is_meant));
            }
            _ => {}
        }
        let mut found = Vec::new();
        self.look(|record, now| {
            let is_match = match find {
                Find::Key(key) => record.label.key.as_str() == key,
                Find::IdPrefix(prefix) => record.id.to_string().starts_with(prefix),
                Find::Held => record.is_held(now),
                Find::Abandoned { .. } | Find::Matching { .. } => false,
            };
            if is_match && found.len() < most {
                found.extend(record.restored().without_request().seen_at(now));
            }
            found.len() < most
        });
        Ok(found)
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        let (mut shard, now) = self.lock(id);
        match shard.get_mut(id).filter(|record| !record.is_expired(now)) {
            Some(record) => Ok(record.resolve(fence, resolution.clone(), now)),
            None => Ok(Resolved::Missing),
        }
    }

    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError> {
        let erase = |id: &RecordId| {
            let (mut shard, now) = self.lock(id);
            match shard.get_mut(id).filter(|record| !record.is_expired(now)) {
                Some(record) => record.erase(now),
                None => Erased::Missing,
            }
        };
        Ok(ids.iter().map(erase).collect())
    }

    async fn count(&self) -> Result<Count, StoreError> {
        let mut count = Count::default();
        self.look(|record, now| {
            *match record.state {
                _ if record.is_tombstone(now) => &mut count.tombstone,
                State::Claimed { .. } => &mut count.claimed,
                State::Completed { .. } => &mut count.completed,
                State::Failed => &mut count.failed,
                State::Held { .. } => &mut count.held,
                State::Tombstone => &mut count.tombstone,
            } += 1;
            true
        });
        Ok(count)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }
}

#[async_trait]
impl Facts for MemoryStore {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut facts = self.facts.lock();
        Ok(facts.entry(name.to_owned()).or_insert_with(|| value.to_vec()).clone())
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.facts.lock().insert(name.to_owned(), value.to_vec());
        Ok(())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryStore")
    }
}
