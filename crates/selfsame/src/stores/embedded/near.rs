//! [`Near`]: finished records that were asked for lately, in memory.
//!
//! A finished record does not change until it expires, and whether it has is asked of the clock each
//! time. What is still running is never kept here: that can change at any moment.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use selfsame_core::{Ask, Claimed, Record, RecordId, Replay, State, Timestamp};

/// How much memory the records may take, in all.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// The largest that are kept; those that are larger are read each time.
const RECORD_BYTES_MAX: usize = 64 * 1024;
/// What a record takes besides its answer's body, headers of usual size included.
const HEAD_BYTES: usize = 1536;
/// Enough that callers of different keys seldom meet.
const SHARDS: usize = 32;
/// How much a generation may take: a shard has two.
const GENERATION_BYTES_MAX: usize = BYTES_MAX / SHARDS / 2;

/// Finished records that were asked for lately.
#[derive(Default)]
pub(super) struct Near {
    shards: [Mutex<Shard>; SHARDS],
}

/// When the younger generation is full it becomes the older one, and what nobody asked for since
/// the last time is forgotten.
#[derive(Default)]
struct Shard {
    younger: HashMap<RecordId, Arc<Record>>,
    older: HashMap<RecordId, Arc<Record>>,
    younger_bytes: usize,
    /// How many records were erased here.
    erasures: u64,
}

impl Near {
    /// What a claim comes to, where the record is here and needs no change.
    pub(super) fn settled(&self, ask: &Ask, now: Timestamp) -> Option<Claimed> {
        let record = self.shard(&ask.id).lock().find(&ask.id)?;
        match selfsame_core::claim(Some(&record), ask, now) {
            (claimed, None) => Some(claimed),
            (_, Some(_)) => None,
        }
    }

    /// The answer that a claim comes to, where it is here.
    pub(super) fn answered(&self, ask: &Ask, now: Timestamp) -> Option<Replay> {
        let record = self.shard(&ask.id).lock().find(&ask.id)?;
        selfsame_core::answered(&record, ask, now)
    }

    /// How often a record was erased among those that `id` is with, to be asked before it is read.
    pub(super) fn erasures(&self, id: &RecordId) -> u64 {
        self.shard(id).lock().erasures
    }

    /// Keeps `record` for those who ask again, if it is finished. It was read when so many had been
    /// erased: if there are more now, it may be one of them.
    pub(super) fn keep(&self, record: Record, erasures: u64) {
        if let State::Completed { .. } = record.state
            && bytes(&record) <= RECORD_BYTES_MAX
        {
            let mut shard = self.shard(&record.id).lock();
            if shard.erasures == erasures {
                shard.keep(Arc::new(record));
            }
        }
    }

    /// Forgets a record that was erased, also for those who have just read it.
    pub(super) fn forget(&self, id: &RecordId) {
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
    fn find(&mut self, id: &RecordId) -> Option<Arc<Record>> {
        if let Some(record) = self.younger.get(id) {
            return Some(record.clone());
        }
        let record = self.older.remove(id)?;
        self.keep(record.clone());
        Some(record)
    }

    fn keep(&mut self, record: Arc<Record>) {
        self.younger_bytes += bytes(&record);
        self.younger.insert(record.id, record);
        if self.younger_bytes > GENERATION_BYTES_MAX {
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
    use std::time::Duration;

    use bytes::Bytes;
    use selfsame_core::AnswerBody;
    use selfsame_core::conformance::samples;

    use super::*;

    /// A finished record with a body of so many bytes, and a retry of its request.
    fn finished(key: &str, body: usize) -> (Record, Ask) {
        let ask = samples::ask(key);
        let mut record = Record::first(&ask, Timestamp::default());
        let mut answer = samples::answer("done");
        answer.body = AnswerBody::Kept(Bytes::from(vec![b'x'; body]));
        record.state = State::Completed { at: Timestamp::default(), answer };
        (record, ask)
    }

    #[test]
    fn a_finished_record_is_replayed_until_it_expires() {
        let near = Near::default();
        let (record, ask) = finished("k", 1);
        let expires_at = record.expires_at;
        assert!(near.settled(&ask, Timestamp::default()).is_none());
        near.keep(record, 0);
        let before = Timestamp::default() + Duration::from_secs(1);
        assert!(matches!(near.settled(&ask, before), Some(Claimed::Replay(_))));
        assert!(near.settled(&ask, expires_at).is_none());
    }

    #[test]
    fn what_may_change_is_not_kept() {
        let near = Near::default();
        let ask = samples::ask("k");
        near.keep(Record::first(&ask, Timestamp::default()), 0);
        assert!(near.settled(&ask, Timestamp::default()).is_none());
    }

    #[test]
    fn what_was_erased_is_not_kept_by_those_who_read_it_before() {
        let near = Near::default();
        let (record, ask) = finished("k", 1);
        near.keep(record.clone(), near.erasures(&ask.id));
        let seen = near.erasures(&ask.id);
        near.forget(&ask.id);
        near.keep(record, seen);
        assert!(near.settled(&ask, Timestamp::default()).is_none());
    }

    #[test]
    fn it_forgets_what_nobody_asks_for_and_never_grows_past_its_bound() {
        let near = Near::default();
        let (wanted, ask) = finished("wanted", 1);
        near.keep(wanted, 0);
        let (large, large_ask) = finished("large", RECORD_BYTES_MAX);
        near.keep(large, 0);
        assert!(near.settled(&large_ask, Timestamp::default()).is_none());
        for n in 0..4000 {
            near.keep(finished(&format!("other-{n}"), RECORD_BYTES_MAX / 2).0, 0);
            assert!(near.settled(&ask, Timestamp::default()).is_some(), "{n}");
        }
        let kept = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let all = shard.younger.values().chain(shard.older.values());
            all.map(|record| bytes(record)).sum::<usize>()
        };
        let kept: usize = near.shards.iter().map(kept).sum();
        assert!(kept <= BYTES_MAX + 2 * SHARDS * RECORD_BYTES_MAX, "{kept}");
        assert!(near.settled(&finished("other-0", 1).1, Timestamp::default()).is_none());
    }
}
