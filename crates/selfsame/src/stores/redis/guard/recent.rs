//! [`Recent`]: writes of this process that are not counted yet.
//!
//! A count tells of all writes before it, and comes up to a tenth of a second after them. Until then each of them is looked for
//! at the server itself where it may be another one.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::{Value, cmd};
use selfsame_core::{AttemptId, RecordId};
use tokio::time::Instant;

use super::super::buckets::Bucket;
use super::super::link;
use super::super::trouble::Fault;
use super::Guard;
use crate::stores::durable::{CLAIMED, COMPLETED};

/// How many there are at most: so many more than are under way that the last one is among them, and what is before that one
/// is not lost if it is not.
const MOST: usize = 4096;

/// Where a value has its state and its attempt id.
const STATE_AT: usize = 3;
const ATTEMPT_AT: usize = 52;
const ATTEMPT_END: usize = ATTEMPT_AT + AttemptId::LEN;

/// Writes, in the order in which they were acknowledged.
#[derive(Default)]
pub(super) struct Recent {
    new: VecDeque<Written>,
    /// Those of which a count is under way.
    counting: VecDeque<Written>,
}

#[derive(Clone)]
struct Written {
    id: RecordId,
    /// The attempt that was finished by it, if one was.
    finished: Option<[u8; AttemptId::LEN]>,
    /// Time from which Redis may have let go of it.
    ends_at: Option<Instant>,
}

impl Written {
    /// Whether the value there is older than this, or missing.
    fn is_missed_in(&self, found: &[u8]) -> bool {
        let attempt = found.get(ATTEMPT_AT..ATTEMPT_END);
        match (attempt, &self.finished) {
            (None, _) => true,
            (Some(attempt), Some(own)) => found[STATE_AT] == CLAIMED && attempt == own,
            (Some(_), None) => false,
        }
    }
}

impl Recent {
    /// Notes that this value was written, of which Redis lets go after `lives`.
    pub(super) fn note(&mut self, id: &RecordId, value: &[u8], lives: Option<Duration>) {
        let is_finished = value.get(STATE_AT) == Some(&COMPLETED);
        let attempt = value.get(ATTEMPT_AT..ATTEMPT_END).and_then(|bytes| bytes.try_into().ok());
        if self.new.len() >= MOST {
            self.new.pop_front();
        }
        let ends_at = lives.and_then(|lives| Instant::now().checked_add(lives));
        let finished = attempt.filter(|_| is_finished);
        self.new.push_back(Written { id: *id, finished, ends_at });
    }

    /// It is about to be removed.
    pub(super) fn forget(&mut self, id: &RecordId) {
        self.new.retain(|written| written.id != *id);
        self.counting.retain(|written| written.id != *id);
    }

    /// What was lost of it is known.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All that is there is about to be counted.
    pub(super) fn begin_count(&mut self) {
        self.counting.append(&mut self.new);
    }

    /// It was counted.
    pub(super) fn end_count(&mut self) {
        self.counting.clear();
    }

    /// It was not counted.
    pub(super) fn fail_count(&mut self) {
        self.counting.append(&mut self.new);
        std::mem::swap(&mut self.counting, &mut self.new);
        let surplus = self.new.len().saturating_sub(MOST);
        self.new.drain(..surplus);
    }

    /// The last write of each record, except those that Redis may have let go of.
    fn last_of_each(&self) -> Vec<Written> {
        let (mut known, now) = (HashSet::new(), Instant::now());
        let latest = self.new.iter().rev().chain(self.counting.iter().rev());
        let last = latest.filter(|written| known.insert(written.id));
        last.filter(|written| written.ends_at.is_none_or(|at| now < at)).cloned().collect()
    }

    fn contains(&self, id: &RecordId) -> bool {
        self.new.iter().chain(&self.counting).any(|written| written.id == *id)
    }
}

impl Guard {
    /// Whether the server has all that this process has written there and not counted.
    pub(super) async fn has_recent(&self, bucket: Bucket) -> Result<bool, Fault> {
        let recent = self.watched[bucket.at()].recent.lock().last_of_each();
        let looks = recent.iter().map(async |written| {
            let mut look = cmd("GETRANGE");
            look.arg(self.routes.buckets.key(&written.id)).arg(0).arg(ATTEMPT_END - 1);
            let found = self.ask(bucket, link::Ask::Command(&look)).await?;
            let is_missed = match found {
                Value::BulkString(found) => written.is_missed_in(&found),
                _ => true,
            };
            // One that this process has removed since is not missed: it is forgotten before that.
            let recent = &self.watched[bucket.at()].recent;
            Ok::<_, Fault>(!is_missed || !recent.lock().contains(&written.id))
        });
        Ok(try_join_all(looks).await?.into_iter().all(|is_there| is_there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_older_is_missed() {
        let value = |state: u8, attempt: u8| {
            let mut value = vec![0; ATTEMPT_END];
            value[STATE_AT] = state;
            value[ATTEMPT_AT..].fill(attempt);
            value
        };
        let mut recent = Recent::default();
        let (first, second) = (RecordId::from_bytes([1; 32]), RecordId::from_bytes([2; 32]));
        recent.note(&first, &value(CLAIMED, 7), None);
        recent.note(&second, &value(CLAIMED, 8), None);
        recent.begin_count();
        recent.note(&first, &value(COMPLETED, 7), None);
        assert_eq!(recent.last_of_each().len(), 2, "what is being counted may yet be lost");
        recent.fail_count();
        let last = recent.last_of_each();
        assert_eq!(last.iter().map(|written| written.id).collect::<Vec<_>>(), [first, second]);
        for (written, found, expected) in [
            (&last[0], value(COMPLETED, 7), false),
            (&last[0], value(CLAIMED, 7), true),
            // Its life was over, and another has claimed it.
            (&last[0], value(CLAIMED, 9), false),
            (&last[0], Vec::new(), true),
            (&last[1], value(CLAIMED, 8), false),
            (&last[1], value(COMPLETED, 8), false),
            (&last[1], Vec::new(), true),
        ] {
            assert_eq!(written.is_missed_in(&found), expected);
        }
        recent.forget(&first);
        assert_eq!(recent.last_of_each().len(), 1);
        assert!(!recent.contains(&first) && recent.contains(&second));
        let third = RecordId::from_bytes([3; 32]);
        recent.note(&third, &value(COMPLETED, 9), Some(Duration::ZERO));
        assert_eq!(recent.last_of_each().len(), 1, "Redis may have let go of it");
        recent.begin_count();
        recent.end_count();
        assert_eq!(recent.last_of_each().len(), 0);
    }
}
