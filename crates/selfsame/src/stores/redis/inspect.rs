//! What is read beside the hot path: many records.

use redis::cmd;
use selfsame_core::{Count, Find, Record, StoreError, Timestamp, wire};

use super::scan::Walk;
use super::trouble::Access;
use super::value::{self, Head};
use super::{RedisStore, strange};
use crate::stores::durable::{CLAIMED, HELD, TOMBSTONE, count_state, id_range};

impl RedisStore {
    /// Unexpired records that match, no more than `most`.
    pub(super) async fn find_records(
        &self,
        find: &Find,
        most: usize,
    ) -> Result<Vec<Record>, StoreError> {
        match find {
            Find::Key(key) => {
                let sum = value::key_sum(key);
                let may_be = |head: &Head, _| head.key_sum == sum;
                let is_meant = |record: &Record, _| record.label.key.as_str() == key;
                self.collect(Walk::new(""), most, may_be, is_meant).await
            }
            Find::Held => {
                let may_be = |head: &Head, now| match head.state {
                    CLAIMED => head.state_at <= now,
                    state => state == HELD,
                };
                self.collect(Walk::new(""), most, may_be, Record::is_held).await
            }
            Find::IdPrefix(prefix) if id_range(prefix).is_some() => {
                self.collect(Walk::new(prefix), most, |_, _| true, |_, _| true).await
            }
            Find::IdPrefix(_) => Ok(Vec::new()),
        }
    }

    /// Reads heads, and what they say may be meant, whole.
    async fn collect(
        &self,
        mut walk: Walk,
        most: usize,
        may_be: impl Fn(&Head, Timestamp) -> bool,
        is_meant: impl Fn(&Record, Timestamp) -> bool,
    ) -> Result<Vec<Record>, StoreError> {
        let mut found = Vec::new();
        while let Some(ids) = walk.next(self).await? {
            let (now, heads) = self.heads(&ids).await?;
            let whole = heads
                .into_iter()
                .filter(|(_, head)| head.as_ref().is_none_or(|head| may_be(head, now)));
            let mut whole: Vec<_> = whole.map(|(id, _)| id).collect();
            while !whole.is_empty() {
                let (now, records) = self.take_whole(&mut whole).await?;
                let records = records.into_iter().map(|found| found.record);
                let meant = records.filter(|record| is_meant(record, now));
                found.extend(meant.filter_map(|record| record.seen_at(now)));
                if found.len() >= most {
                    found.truncate(most);
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    pub(super) async fn count_records(&self) -> Result<Count, StoreError> {
        let mut states = [0; TOMBSTONE as usize + 1];
        let mut met = |state: u8| {
            // A damaged state counts nowhere; whoever asks for its record hears of it.
            if let Some(count) = states.get_mut(usize::from(state)) {
                *count += 1;
            }
        };
        let mut walk = Walk::new("");
        while let Some(ids) = walk.next(self).await? {
            let (now, heads) = self.heads(&ids).await?;
            let mut old = Vec::new();
            for (id, head) in heads {
                match head {
                    // Until then it is what it says.
                    Some(head) if now < head.expires_at => met(head.state),
                    Some(_) => old.push(id),
                    None => {}
                }
            }
            while !old.is_empty() {
                let (now, records) = self.take_whole(&mut old).await?;
                let seen = records.into_iter().filter_map(|found| found.record.seen_at(now));
                seen.for_each(|record| met(wire::state_code(&record.state).0));
            }
        }
        let mut count = Count::default();
        for (state, records) in (0..).zip(states) {
            count_state(&mut count, state, records);
        }
        Ok(count)
    }

    pub(super) async fn time_now(&self) -> Result<Timestamp, StoreError> {
        let told = self.look(&cmd("TIME")).await?;
        self.time(&told).ok_or_else(|| strange(Access::Read))
    }
}
