//! [`StoreSummary`]: the records of a store in numbers.

use std::ops::Bound;
use std::time::Duration;

use selfsame_core::{AnswerBody, Count, Record, RecordId, State, StateName, StoreError, Timestamp};

use super::EmbeddedStore;
use super::index::Entry;
use super::records::{BITE_BYTES, Bite, Records};
use super::trouble::Trouble;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The records of a store that have not expired, and the room they take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreSummary {
    /// Records by their states.
    pub count: Count,
    /// Records that cannot be read.
    pub damaged: u64,
    /// Time of the oldest record's first use.
    pub oldest: Option<Timestamp>,
    /// Time of the newest record's first use.
    pub newest: Option<Timestamp>,
    /// Answers and checkpoints that are kept.
    pub kept: u64,
    /// Those of them that are encrypted.
    pub encrypted: u64,
    /// Bytes of the log's files.
    pub log_bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Bytes of the log that these records need.
    pub live_bytes: u64,
    /// Those of them whose keys were first used within the last day.
    pub day_records: u64,
    /// Bytes of the log that these need.
    pub day_bytes: u64,
    /// The store's time.
    pub time: Timestamp,
}

impl EmbeddedStore {
    /// Reads all records, a few at a time, and sums them up.
    pub async fn summary(&self) -> Result<StoreSummary, StoreError> {
        let mut summary = StoreSummary {
            log_bytes: self.records.segments.bytes(),
            index_bytes: self.records.index.bytes(),
            time: self.records.clock.now(),
            ..StoreSummary::default()
        };
        let mut from = Bound::Unbounded;
        loop {
            let summing = self.looks.ask(move |records| {
                let next = records.sum_up(from, &mut summary)?;
                Ok((summary, next))
            });
            let next;
            (summary, next) = summing.await?;
            match next {
                Some(last) => from = Bound::Excluded(last),
                None => return Ok(summary),
            }
        }
    }
}

impl Records {
    /// Adds the next few records from an id on. Returns the last one's id, unless that were all.
    fn sum_up(
        &self,
        from: Bound<RecordId>,
        summary: &mut StoreSummary,
    ) -> Result<Option<RecordId>, Trouble> {
        let Bite { found, next } = self.ids(from)?;
        let mut read = 0;
        for id in found {
            match self.look_up(&id) {
                Ok(None) => {}
                Ok(Some((entry, record))) => {
                    read += entry.bytes();
                    if let Some(record) = record.seen_at(summary.time) {
                        summary.add(&record, &entry);
                    }
                }
                Err(Trouble::Damaged(_)) => summary.damaged += 1,
                Err(trouble) => return Err(trouble),
            }
            if read >= BITE_BYTES {
                return Ok(Some(id));
            }
        }
        Ok(next)
    }
}

impl StoreSummary {
    fn add(&mut self, record: &Record, entry: &Entry) {
        *match record.state_name(self.time) {
            StateName::Claimed => &mut self.count.claimed,
            StateName::Completed => &mut self.count.completed,
            StateName::Failed => &mut self.count.failed,
            StateName::Held => &mut self.count.held,
            StateName::Tombstone => &mut self.count.tombstone,
        } += 1;
        let at = record.created_at;
        self.oldest = Some(self.oldest.map_or(at, |oldest| oldest.min(at)));
        self.newest = Some(self.newest.map_or(at, |newest| newest.max(at)));
        self.live_bytes += entry.bytes();
        if self.time.since(at) < DAY {
            self.day_records += 1;
            self.day_bytes += entry.bytes();
        }
        if let State::Completed { answer, .. } = &record.state {
            self.kept += u64::from(!matches!(answer.body, AnswerBody::NotKept));
            self.encrypted += u64::from(matches!(answer.body, AnswerBody::Sealed(_)));
        }
        if let Some(checkpoint) = &record.checkpoint {
            self.kept += 1;
            self.encrypted += u64::from(checkpoint.is_sealed);
        }
    }
}
