//! The traits of a store, each call handed to the connection that carries it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use selfsame_core::{
    Answer, Ask, AttemptId, Bell, Checkpoint, Claimed, Count, Erased, Facts, Fence, Fenced, Find,
    Inspect, Lease, Record, RecordId, Recorded, Release, Resolution, Resolved, State, Store,
    StoreError, Sweep, Swept, Timestamp, wire,
};
use tokio::time::Instant;

use super::changes::{Change, PAUSE, change};
use super::completions::Completion;
use super::link::Link;
use super::rows::Row;
use super::session::Session;
use super::trouble::Fault;
use super::writes::Write;
use super::{PostgresStore, erase, facts, inspect, renewals, resolve, shard, sweep};
use crate::stores::durable::stand_in;

impl PostgresStore {
    /// Changes a record by one of core's rules.
    async fn change(
        &self,
        id: &RecordId,
        rule: impl Fn(&mut Record, Timestamp) -> Fenced,
        to_write: impl Fn(Write) -> Write,
    ) -> Result<Fenced, StoreError> {
        let decide = |row: Option<Row>, now| {
            let Some(Row { mut record, seen }) = row else { return Change::Nothing(Fenced::Lost) };
            match rule(&mut record, now) {
                Fenced::Lost => Change::Nothing(Fenced::Lost),
                Fenced::Applied => {
                    Change::Write(Box::new(to_write(Write::new(seen, record))), Fenced::Applied)
                }
            }
        };
        change(&self.aside, id, self.target.time_out, decide).await
    }

    async fn aside(&self) -> Result<Arc<Session>, StoreError> {
        session(&self.aside).await
    }
}

/// What a completion came to that recorded nothing now: done before, lost, or, if nothing is said,
/// worth trying again.
pub(super) async fn completed(
    link: &Link,
    lease: &Lease,
    time_out: Duration,
) -> Result<Option<Recorded>, StoreError> {
    let decide = |row: Option<Row>, now| {
        let Some(Row { mut record, .. }) = row else {
            return Change::Nothing(Some(Recorded::Lost));
        };
        let was_complete = matches!(record.state, State::Completed { .. });
        Change::Nothing(match record.complete(lease, stand_in(), now) {
            Recorded::Until(_) if !was_complete => None,
            recorded => Some(recorded),
        })
    };
    change(link, &lease.id, time_out, decide).await
}

pub(super) async fn session(link: &Link) -> Result<Arc<Session>, StoreError> {
    Ok(link.session().await?)
}

impl PostgresStore {
    /// Bytes of its tables, with their indexes.
    pub async fn bytes(&self) -> Result<u64, StoreError> {
        inspect::bytes(&*session(&self.look).await?).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        self.claims[shard(&ask.id)].claim(ask).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        let mut renewed = renewals::renew(&self.renewals, std::slice::from_ref(lease)).await;
        renewed.pop().expect("one lease has one outcome")
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Fenced, StoreError>> {
        renewals::renew(&self.renewals, leases).await
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        let rule = |record: &mut Record, _| record.checkpoint(lease, checkpoint.clone());
        self.change(&lease.id, rule, Write::with_checkpoint).await
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        let until = Instant::now() + self.target.time_out;
        loop {
            let frame = wire::encode_answer(&lease.id, answer);
            let completion = Completion { lease: *lease, frame };
            if let Some(at) = self.completions[shard(&lease.id)].ask(completion).await? {
                return Ok(Recorded::Until(at));
            }
            if let Some(recorded) = completed(&self.aside, lease, self.target.time_out).await? {
                return Ok(recorded);
            }
            if Instant::now() + PAUSE > until {
                return Err(Fault::not_written("the record's row is locked").error());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        let decide = |row: Option<Row>, now| {
            let Some(Row { mut record, seen }) = row else { return Change::Nothing(Fenced::Lost) };
            if record.is_forgotten_by(lease, release) {
                let outcome = record.release(lease, Release::Retry, now);
                let or_else = Box::new(Write::new(seen, record));
                return Change::Remove { seen, or_else, outcome };
            }
            match record.release(lease, release, now) {
                Fenced::Lost => Change::Nothing(Fenced::Lost),
                Fenced::Applied => {
                    Change::Write(Box::new(Write::new(seen, record)), Fenced::Applied)
                }
            }
        };
        change(&self.aside, &lease.id, self.target.time_out, decide).await
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        self.change(id, |record, _| record.cancel(attempt_id), |write| write).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        inspect::get(&*self.aside().await?, id).await
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        Some(self.bell.clone())
    }
}

#[async_trait]
impl Sweep for PostgresStore {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        let after = *self.swept_to.lock();
        let session = session(&self.look).await?;
        let (swept, last) = sweep::sweep(&session, after, most).await?;
        *self.swept_to.lock() = last.unwrap_or_default();
        Ok(swept)
    }
}

#[async_trait]
impl Inspect for PostgresStore {
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        inspect::find(&*session(&self.look).await?, find, most).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        resolve::resolve(self, id, fence, resolution).await
    }

    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError> {
        let mut outcomes = Vec::with_capacity(ids.len());
        for id in ids {
            outcomes.push(erase::erase(self, id).await?);
        }
        Ok(outcomes)
    }

    async fn count(&self) -> Result<Count, StoreError> {
        inspect::count(&*session(&self.look).await?).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        inspect::now(&*self.aside().await?).await
    }
}

#[async_trait]
impl Facts for PostgresStore {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        facts::fact_or(&*self.aside().await?, name, value).await
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        facts::set_fact(&*self.aside().await?, name, value).await
    }
}
