//! The hot path, and cleaning.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join;
use selfsame_core::{
    Answer, Ask, AttemptId, Bell, Checkpoint, Claimed, Facts, Fenced, Lease, Record, RecordId,
    Recorded, Release, State, Store, StoreError, Sweep, Swept, Timestamp,
};

use super::SplitStore;
use crate::stores::postgres::Adopted;

/// A record as it is before its answer is recorded.
struct Standing {
    record: Record,
    now: Timestamp,
    /// Whether Redis has forgotten it, and only this process knows it.
    is_forgotten: bool,
}

impl SplitStore {
    /// The record that `lease` is for, if anything is known of it.
    async fn standing(&self, lease: &Lease) -> Result<Option<Standing>, StoreError> {
        let (now, found) = self.locks.known_by(lease).await?;
        let run = self.runs.get(&lease.attempt_id);
        // What expired was not forgotten.
        let run = run.filter(|run| run.is_claimed_by(lease) && now < run.expires_at);
        let record = match (found, run) {
            // A key that is born again before its time was forgotten, too.
            (Some(record), Some(run)) if record.birth != run.birth => {
                return Ok(Some(Standing { record: run, now, is_forgotten: true }));
            }
            (Some(record), _) => record,
            (None, run) => {
                return Ok(run.map(|record| Standing { record, now, is_forgotten: true }));
            }
        };
        // Nobody shall take it over while its answer is on its way.
        let is_ending = match record.state {
            State::Claimed { lease_until } => lease_until < now + lease.length / 3,
            _ => false,
        };
        if is_ending && self.locks.renew(lease).await? == Fenced::Lost {
            return Ok(None);
        }
        Ok(Some(Standing { record, now, is_forgotten: false }))
    }

    async fn record(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        let Some(Standing { mut record, now, is_forgotten }) = self.standing(lease).await? else {
            return self.recorded_before(lease).await;
        };
        let was_completed = matches!(record.state, State::Completed { .. });
        let recorded = record.complete(lease, answer.clone(), now);
        if recorded == Recorded::Lost {
            return Ok(Recorded::Lost);
        }
        if !was_completed && let Adopted::Other(other) = self.answers.adopt(&record, now).await? {
            // Redis learns what counts; else it would say for a lease that somebody runs.
            if let State::Completed { answer, .. } = &other.state {
                let _told = self.locks.complete(lease, answer).await;
            }
            return Ok(Recorded::Lost);
        }
        if is_forgotten {
            return Ok(recorded);
        }
        match self.locks.complete(lease, answer).await? {
            // It was forgotten since; the answer stands.
            Recorded::Lost => Ok(recorded),
            until => Ok(until),
        }
    }

    /// What a claim of which nothing is known came to before.
    async fn recorded_before(&self, lease: &Lease) -> Result<Recorded, StoreError> {
        let found = self.answers.look(&lease.id).await?;
        let seen = found.and_then(|(record, now)| record.seen_at(now));
        let own = seen.filter(|record| {
            record.is_claimed_by(lease) && matches!(record.state, State::Completed { .. })
        });
        Ok(own.map_or(Recorded::Lost, |record| Recorded::Until(record.expires_at)))
    }
}

#[async_trait]
impl Store for SplitStore {
    fn name(&self) -> &'static str {
        "split"
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        match self.locks.claim(ask).await {
            Ok(Claimed::Run(grant)) => self.begin(ask, grant).await,
            Ok(held @ Claimed::Held { .. }) => Box::pin(self.held(ask, held)).await,
            Ok(told) => Ok(told),
            Err(error) => Box::pin(self.unlocked(ask, error)).await,
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        self.insist(lease, || self.locks.renew(lease)).await
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        let saved = self.insist(lease, || self.locks.checkpoint(lease, checkpoint)).await?;
        if saved == Fenced::Applied
            && let Some(run) = self.runs.get(&lease.attempt_id)
        {
            let run = Record { checkpoint: Some(checkpoint.clone()), ..run };
            self.runs.begin(lease.attempt_id, run);
        }
        Ok(saved)
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        let recorded = self.record(lease, answer).await?;
        self.runs.end(&lease.attempt_id);
        Ok(recorded)
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        let released = self.insist(lease, || self.locks.release(lease, release)).await?;
        self.runs.end(&lease.attempt_id);
        Ok(released)
    }

    /// What this process does not remember to run, it does not put back.
    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        let cancelled = self.locks.cancel(id, attempt_id).await?;
        self.runs.end(&attempt_id);
        Ok(cancelled)
    }

    /// What is finished, wherever that is known, and else what is known in Redis.
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let locked = self.locks.get(id).await;
        if let Ok(Some(record)) = &locked
            && is_finished(record)
        {
            return locked;
        }
        let found = self.answers.look(id).await?;
        let kept = found.and_then(|(record, now)| record.seen_at(now));
        match (locked, kept) {
            (_, Some(kept)) if is_finished(&kept) => Ok(Some(kept)),
            (Ok(None), kept) => Ok(kept),
            (locked, _) => locked,
        }
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        self.locks.bell()
    }
}

fn is_finished(record: &Record) -> bool {
    matches!(record.state, State::Completed { .. } | State::Tombstone)
}

#[async_trait]
impl Sweep for SplitStore {
    /// Both, whatever is wrong with one of them; the first to come to its end waits for the other there. What goes from
    /// PostgreSQL is not counted: it is a copy.
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        let [has_locks, has_answers] = *self.swept.lock();
        let (locks, answers) = join(
            sweep_unless(has_locks, &self.locks, most),
            sweep_unless(has_answers, self.answers.store(), most),
        )
        .await;
        let (locks, answers) = (locks?, answers?);
        let finished = locks.finished && answers.finished;
        *self.swept.lock() = [locks.finished, answers.finished].map(|is| is && !finished);
        // Held from a time at which claims were in the database, too.
        let held = locks.held.into_iter().chain(answers.held).collect();
        Ok(Swept { finished, held, removed: locks.removed, buried: locks.buried })
    }
}

async fn sweep_unless(
    is_finished: bool,
    store: &dyn Sweep,
    most: usize,
) -> Result<Swept, StoreError> {
    match is_finished {
        true => Ok(Swept { finished: true, ..Swept::default() }),
        false => store.sweep(most).await,
    }
}

#[async_trait]
impl Facts for SplitStore {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.answers.store().fact_or(name, value).await
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.answers.store().set_fact(name, value).await
    }
}
