//! What is read beside the hot path: many records.

use redis::cmd;
use selfsame_core::{Count, Find, Record, RecordId, StateName, StoreError, Timestamp, Whose, wire};

use super::buckets::Bucket;
use super::link::Ask;
use super::node::Lane;
use super::scan::Walk;
use super::trouble::Access;
use super::value::{Head, short};
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
                let sum = short(key.as_bytes());
                let may_be = |head: &Head, _| head.sums.key == sum;
                let is_meant = |record: &Record, _| record.label.key.as_str() == key;
                self.collect(Walk::new(self, ""), most, may_be, is_meant).await
            }
            Find::Held => self.collect(Walk::new(self, ""), most, is_left, Record::is_held).await,
            Find::IdPrefix(prefix) if id_range(prefix).is_some() => {
                self.collect(Walk::new(self, prefix), most, |_, _| true, |_, _| true).await
            }
            Find::IdPrefix(_) => Ok(Vec::new()),
            Find::Abandoned { after } => {
                self.collect_in_order(*after, most, is_left, Record::is_abandoned).await
            }
            Find::Matching { filter, after } => {
                let sum = match &filter.tenant {
                    Some(Whose::Tag(tag)) => short(tag.as_bytes()),
                    Some(Whose::Name(name)) => short(name.as_bytes()),
                    None => [0; 4],
                };
                let may_be = |head: &Head, now| {
                    let is_theirs = match filter.tenant {
                        Some(Whose::Tag(_)) => head.sums.tenant == sum,
                        Some(Whose::Name(_)) => head.sums.tenant_name == sum,
                        None => true,
                    };
                    is_theirs && (filter.state != Some(StateName::Held) || is_left(head, now))
                };
                let is_meant = |record: &Record, now| filter.lets_through(record, now);
                self.collect_in_order(*after, most, may_be, is_meant).await
            }
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
            let ids = self.may_be(&ids, &may_be).await?;
            self.read_meant(ids, most, &is_meant, &mut found).await?;
            if found.len() >= most {
                break;
            }
        }
        Ok(found)
    }

    /// The same behind `after`, in the order of ids, which Redis does not know: all heads are read.
    async fn collect_in_order(
        &self,
        after: Option<RecordId>,
        most: usize,
        may_be: impl Fn(&Head, Timestamp) -> bool,
        is_meant: impl Fn(&Record, Timestamp) -> bool,
    ) -> Result<Vec<Record>, StoreError> {
        let (mut walk, mut behind) = (Walk::new(self, ""), Vec::new());
        while let Some(ids) = walk.next(self).await? {
            let ids = ids.into_iter().filter(|id| after.is_none_or(|after| *id > after));
            behind.extend(self.may_be(&ids.collect::<Vec<_>>(), &may_be).await?);
        }
        behind.sort_unstable();
        let mut found = Vec::new();
        self.read_meant(behind, most, &is_meant, &mut found).await?;
        Ok(found)
    }

    /// Those that may be meant, as far as their heads tell.
    async fn may_be(
        &self,
        ids: &[RecordId],
        may_be: impl Fn(&Head, Timestamp) -> bool,
    ) -> Result<Vec<RecordId>, StoreError> {
        let (now, heads) = self.heads(ids).await?;
        let heads = heads.into_iter();
        // Whoever reads one that is damaged raises the alarm.
        let meant = heads.filter(|(_, head)| head.as_ref().is_none_or(|head| may_be(head, now)));
        Ok(meant.map(|(id, _)| id).collect())
    }

    /// Reads records until there are `most`.
    async fn read_meant(
        &self,
        mut ids: Vec<RecordId>,
        most: usize,
        is_meant: impl Fn(&Record, Timestamp) -> bool,
        found: &mut Vec<Record>,
    ) -> Result<(), StoreError> {
        while !ids.is_empty() && found.len() < most {
            let (now, records) = self.take_whole(&mut ids).await?;
            let records = records.into_iter().map(|found| found.record);
            let meant = records.filter(|record| is_meant(record, now));
            found.extend(meant.filter_map(|record| record.without_request().seen_at(now)));
        }
        found.truncate(most);
        Ok(())
    }

    pub(super) async fn count_records(&self) -> Result<Count, StoreError> {
        let mut states = [0; TOMBSTONE as usize + 1];
        let mut met = |state: u8| {
            // A damaged state counts nowhere; whoever asks for its record hears of it.
            if let Some(count) = states.get_mut(usize::from(state)) {
                *count += 1;
            }
        };
        let mut walk = Walk::new(self, "");
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
        let time = cmd("TIME");
        let ask = Ask::Command(&time);
        let told = self.routes.ask(Bucket::FIRST, Lane::Look, Access::Read, ask).await?;
        self.time(&told).ok_or_else(|| strange(Access::Read))
    }
}

/// Whether its work may have been left without an outcome.
fn is_left(head: &Head, now: Timestamp) -> bool {
    match head.state {
        CLAIMED => head.state_at <= now,
        state => state == HELD,
    }
}
