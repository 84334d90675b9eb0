//! [`Near`]: finished records that were asked for lately, in memory.
//!
//! A finished record does not change until it expires, and whether it has is asked of the clock each
//! time. What is still running is never kept here: that can change at any moment.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use selfsame_core::{Record, RecordId, State, Timestamp};

/// The largest that are kept; those that are larger are read each time.
const RECORD_BYTES_MAX: usize = 64 * 1024;
/// What a record takes besides its answer's body, headers of usual size included.
const HEAD_BYTES: usize = 1536;
/// Enough that callers of different keys seldom meet.
const SHARDS: usize = 32;

/// Finished records that were asked for lately.
pub(in crate::stores) struct Near {
    shards: [Mutex<Shard>; SHARDS],
    /// How much a generation of a shard may take: each has two.
    generation_bytes_max: usize,
}

/// When the younger generation is full it becomes the older one, and what nobody asked for since
/// the last time is forgotten.
#[derive(Default)]
struct Shard {
    younger: HashMap<RecordId, Kept>,
    older: HashMap<RecordId, Kept>,
    younger_bytes: usize,
    /// How many records were erased here.
    erasures: u64,
}

#[derive(Clone)]
struct Kept {
    record: Arc<Record>,
    /// Until when it counts.
    until: Timestamp,
}

impl Near {
    /// Records that take no more than about `bytes_max`.
    pub(in crate::stores) fn new(bytes_max: usize) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shards, generation_bytes_max: bytes_max / SHARDS / 2 }
    }

    /// The record, if it is here and still counts.
    pub(in crate::stores) fn find(&self, id: &RecordId, now: Timestamp) -> Option<Arc<Record>> {
        let mut shard = self.shard(id).lock();
        let found = match shard.younger.get(id) {
            Some(found) => found.clone(),
            None => {
                let found = shard.older.remove(id)?;
                shard.keep(found.clone(), self.generation_bytes_max);
                found
            }
        };
        (now < found.until).then_some(found.record)
    }

    /// How often a record was erased among those that `id` is with, to be asked before it is read.
    pub(in crate::stores) fn erasures(&self, id: &RecordId) -> u64 {
        self.shard(id).lock().erasures
    }

    /// Keeps `record` for those who ask again, if it is finished. It was read when so many had been
    /// erased: if there are more now, it may be one of them.
    pub(in crate::stores) fn keep(&self, record: Record, until: Timestamp, erasures: u64) {
        if let State::Completed { .. } = record.state
            && bytes(&record) <= RECORD_BYTES_MAX
        {
            let mut shard = self.shard(&record.id).lock();
            if shard.erasures == erasures {
                let kept = Kept { record: Arc::new(record), until };
                shard.keep(kept, self.generation_bytes_max);
            }
        }
    }

    /// Forgets a record that was erased, also for those who have just read it.
    pub(in crate::stores) fn forget(&self, id: &RecordId) {
        let mut shard = self.shard(id).lock();
        shard.erasures += 1;
        shard.younger.remove(id);
        shard.older.remove(id);
    }

    fn shard(&self, id: &RecordId) -> &Mutex<Shard> {
        // Ids are hashes: their first byte spreads them evenly.
        &self.shards[usize::from(id.as_bytes()[0]) % SHARDS]
    }
}

impl Shard {
    fn keep(&mut self, kept: Kept, bytes_max: usize) {
        self.younger_bytes += bytes(&kept.record);
        self.younger.insert(kept.record.id, kept);
        if self.younger_bytes > bytes_max {
            self.older = mem::take(&mut self.younger);
            self.younger_bytes = 0;
        }
    }
}

/// How much memory `record` takes, more or less.
fn bytes(record: &Record) -> usize {
    let State::Completed { answer, .. } = &record.state else { return HEAD_BYTES };
    let lines = answer.headers.iter().chain(&answer.trailers);
    let lines = lines.map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    HEAD_BYTES + answer.body.kept_bytes() + lines
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use selfsame_core::AnswerBody;
    use selfsame_core::conformance::samples;

    use super::*;

    const BYTES_MAX: usize = 32 * 1024 * 1024;
    const NOW: Timestamp = Timestamp::from_millis(1000);
    const LATER: Timestamp = Timestamp::from_millis(2000);

    /// A finished record with a body of so many bytes.
    fn finished(key: &str, body: usize) -> Record {
        let mut record = Record::first(&samples::ask(key), Timestamp::default());
        let mut answer = samples::answer("done");
        answer.body = AnswerBody::Kept(Bytes::from(vec![b'x'; body]));
        record.state = State::Completed { at: Timestamp::default(), answer };
        record
    }

    fn id(key: &str) -> RecordId {
        samples::ask(key).id
    }

    #[test]
    fn a_finished_record_is_found_for_as_long_as_it_counts() {
        let near = Near::new(BYTES_MAX);
        assert!(near.find(&id("k"), NOW).is_none());
        near.keep(finished("k", 1), LATER, 0);
        assert!(near.find(&id("k"), NOW).is_some());
        assert!(near.find(&id("k"), LATER).is_none());
    }

    #[test]
    fn what_may_change_is_not_kept() {
        let near = Near::new(BYTES_MAX);
        near.keep(Record::first(&samples::ask("k"), Timestamp::default()), LATER, 0);
        assert!(near.find(&id("k"), NOW).is_none());
    }

    #[test]
    fn what_was_erased_is_not_kept_by_those_who_read_it_before() {
        let near = Near::new(BYTES_MAX);
        near.keep(finished("k", 1), LATER, near.erasures(&id("k")));
        let seen = near.erasures(&id("k"));
        near.forget(&id("k"));
        near.keep(finished("k", 1), LATER, seen);
        assert!(near.find(&id("k"), NOW).is_none());
    }

    #[test]
    fn it_forgets_what_nobody_asks_for_and_never_grows_past_its_bound() {
        let near = Near::new(BYTES_MAX);
        near.keep(finished("wanted", 1), LATER, 0);
        near.keep(finished("large", RECORD_BYTES_MAX), LATER, 0);
        assert!(near.find(&id("large"), NOW).is_none());
        for n in 0..4000 {
            near.keep(finished(&format!("other-{n}"), RECORD_BYTES_MAX / 2), LATER, 0);
            assert!(near.find(&id("wanted"), NOW).is_some(), "{n}");
        }
        let kept = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let all = shard.younger.values().chain(shard.older.values());
            all.map(|kept| bytes(&kept.record)).sum::<usize>()
        };
        let kept: usize = near.shards.iter().map(kept).sum();
        assert!(kept <= BYTES_MAX + 2 * SHARDS * RECORD_BYTES_MAX, "{kept}");
        assert!(near.find(&id("other-0"), NOW).is_none());
    }
}
