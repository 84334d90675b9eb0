//! The traits of a store.

use std::sync::Arc;

use async_trait::async_trait;
use redis::cmd;
use selfsame_core::{
    Answer, Ask, AttemptId, Bell, Checkpoint, Claimed, Count, Erased, Facts, Fence, Fenced, Find,
    Inspect, Lease, Record, RecordId, Recorded, Release, Resolution, Resolved, Store, StoreError,
    Sweep, Swept, Timestamp,
};

use super::buckets::Bucket;
use super::changes::Change;
use super::guard::{FACTS, put_fact};
use super::node::Lane;
use super::{Access, RedisStore, link};

#[async_trait]
impl Store for RedisStore {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        self.claim_key(ask).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        self.remember_run(lease);
        let lane = Lane::renewal(lease);
        self.change_by(lane, &lease.id, |record, now| record.renew(lease, now)).await
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        self.remember_run(lease);
        let rule = |record: &mut Record, _| record.checkpoint(lease, checkpoint.clone());
        self.change_by(Lane::of(&lease.id), &lease.id, rule).await
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        let recorded = self.record(lease, answer).await?;
        self.runs.end(&lease.attempt_id);
        Ok(recorded)
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        let decide = |record: Option<Record>, now| {
            let Some(mut record) = record else { return Change::Nothing(Fenced::Lost) };
            if record.is_forgotten_by(lease, release) {
                return Change::Remove(Fenced::Applied);
            }
            match record.release(lease, release, now) {
                Fenced::Lost => Change::Nothing(Fenced::Lost),
                Fenced::Applied => Change::Write(Box::new(record), Fenced::Applied),
            }
        };
        let released = self.change(&lease.id, decide).await?;
        self.runs.end(&lease.attempt_id);
        Ok(released)
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        self.change_by(Lane::of(id), id, |record, _| record.cancel(attempt_id)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let (now, found) = self.read(id).await?;
        Ok(found.and_then(|found| found.record.seen_at(now)))
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        Some(self.bell.clone())
    }
}

#[async_trait]
impl Sweep for RedisStore {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        let spot = std::mem::take(&mut *self.swept_to.lock());
        let (swept, next) = self.sweep_from(spot, most).await?;
        *self.swept_to.lock() = next;
        Ok(swept)
    }
}

#[async_trait]
impl Inspect for RedisStore {
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        self.find_records(find, most).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        let decide = |record: Option<Record>, now: Timestamp| {
            let Some(mut record) = record.filter(|record| !record.is_expired(now)) else {
                return Change::Nothing(Resolved::Missing);
            };
            match record.resolve(fence, resolution.clone(), now) {
                Resolved::Done => Change::Write(Box::new(record), Resolved::Done),
                other => Change::Nothing(other),
            }
        };
        self.change(id, decide).await
    }

    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError> {
        let decide = |record: Option<Record>, now: Timestamp| {
            let Some(before) = record.filter(|record| !record.is_expired(now)) else {
                return Change::Nothing(Erased::Missing);
            };
            let mut record = before.clone();
            match record.erase(now) {
                Erased::Done if record != before => Change::Write(Box::new(record), Erased::Done),
                other => Change::Nothing(other),
            }
        };
        let mut erased = Vec::with_capacity(ids.len());
        for id in ids {
            erased.push(self.change(id, decide).await?);
        }
        Ok(erased)
    }

    async fn count(&self) -> Result<Count, StoreError> {
        self.count_records().await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.time_now().await
    }
}

#[async_trait]
impl Facts for RedisStore {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let value = put_fact(&self.routes, name, value).await?;
        self.guard.note_fact(name, &value);
        Ok(value)
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let mut set = cmd("HSET");
        set.arg(self.routes.buckets.beside(Bucket::FIRST, FACTS)).arg(name).arg(value);
        let ask = link::Ask::Command(&set);
        self.routes.ask(Bucket::FIRST, Lane::Look, Access::Write, ask).await?;
        self.guard.note_fact(name, value);
        Ok(())
    }
}
