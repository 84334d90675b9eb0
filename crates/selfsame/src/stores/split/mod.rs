//! [`SplitStore`]: claims in Redis, answers in PostgreSQL.
//!
//! Redis is a whole [`RedisStore`]: claims, fences, attempts, checkpoints, kept requests and holds are there, its clock
//! decides, and it has the answers, too. Every answer is in PostgreSQL before Redis knows it, so a Redis that forgets
//! loses what runs, and no answer.
//!
//! | call | first | then |
//! |---|---|---|
//! | a claim that would run, or is held | Redis | PostgreSQL: what is finished there is not run again |
//! | an answer | PostgreSQL, if the claim still stands | Redis |
//! | a renewal, a checkpoint, a release | Redis; what it has forgotten is put back by who runs it | |
//! | a person's decision; an erasure | Redis, which decides | PostgreSQL, before anybody is told |
//!
//! When Redis forgets during a run and a rival comes before that is put back, both run. PostgreSQL's unique index lets one
//! answer stand, and both are told that one: it refuses the second record, not the second effect.

mod inspect;
mod store;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::{
    Ask, Claimed, Fenced, Grant, Inspect, Lease, Record, Release, Resolution, State, Store,
    StoreError, Timestamp,
};

use super::durable::fit;
use super::may_have_landed;
use super::postgres::{Archive, PostgresStore};
use super::redis::{RedisHealth, RedisOpenError, RedisOptions, RedisStore};
use super::runs::Runs;

/// Claims in Redis, and answers in PostgreSQL, which any number of processes may share.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use selfsame::stores::{PostgresOptions, PostgresStore, RedisOptions, SplitStore};
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let url = "postgres://gateway@db.internal/payments";
/// let answers = PostgresStore::open(url, PostgresOptions::default()).await?;
/// let locks = "rediss://selfsame:password@redis.internal:6379/0";
/// let store = SplitStore::open(Arc::new(answers), locks, RedisOptions::default()).await?;
/// # Ok(())
/// # }
/// ```
///
/// A Redis that forgets loses no answer, but work that runs at that moment may run twice: see `docs/TIERED.md`. Where
/// that must not be, use [`TieredStore`](super::TieredStore). All processes must have their claims in the same Redis.
pub struct SplitStore {
    locks: RedisStore,
    answers: Archive,
    /// Records as they were claimed, to be put back where Redis forgets them.
    runs: Runs<Record>,
    /// Which of the two has been swept to its end, when the other has not.
    swept: Mutex<[bool; 2]>,
}

impl SplitStore {
    /// Claims in the Redis at `lock_url`, and answers in `answers`.
    pub async fn open(
        answers: Arc<PostgresStore>,
        lock_url: &str,
        options: RedisOptions,
    ) -> Result<Self, RedisOpenError> {
        let locks = RedisStore::open(lock_url, options.answers_elsewhere()).await?;
        tracing::warn!(
            "claims lie in Redis, and answers in PostgreSQL: if Redis forgets, or not all nodes see the \
             same one, work that is under way may run twice; docs/TIERED.md says when"
        );
        let (answers, runs) = (Archive::new(answers), Runs::default());
        Ok(Self { locks, answers, runs, swept: Mutex::default() })
    }

    /// Health of the Redis that has the claims.
    pub fn health(&self) -> RedisHealth {
        self.locks.health()
    }

    /// What is known in PostgreSQL that lets nobody run.
    async fn settled(&self, ask: &Ask) -> Result<Option<Claimed>, StoreError> {
        let found = self.answers.look(&ask.id).await?;
        Ok(found.and_then(|(record, now)| match selfsame_core::claim(Some(&record), ask, now) {
            (Claimed::Run(_), _) => None,
            (told, _) => Some(told),
        }))
    }

    /// A claim of Redis runs, unless there is something in PostgreSQL. Whoever had it before has recorded its answer
    /// there first, so it is looked for behind the claim.
    async fn begin(&self, ask: &Ask, grant: Box<Grant>) -> Result<Claimed, StoreError> {
        match self.settled(ask).await {
            Ok(None) => {
                self.runs.begin(grant.lease.attempt_id, claimed(ask, &grant));
                Ok(Claimed::Run(grant))
            }
            told => {
                let known = told.as_ref().ok().and_then(Option::as_ref);
                let given_back = Box::pin(self.give_back(&grant, known)).await;
                match (told, given_back) {
                    (Err(_), Err(failed)) => Err(may_have_landed(&failed)),
                    (told, _) => told.map(|told| told.expect("where nothing is known it runs")),
                }
            }
        }
    }

    /// Ends a claim that does not run.
    async fn give_back(&self, grant: &Grant, told: Option<&Claimed>) -> Result<(), StoreError> {
        let is_first = grant.attempt == 1 && !grant.took_over;
        match (told, is_first) {
            // Redis knows this key, and not yet its answer.
            (Some(Claimed::Replay(replay)), false) => {
                self.locks.complete(&grant.lease, &replay.answer).await.map(drop)
            }
            (_, true) => self.locks.release(&grant.lease, Release::Forget).await.map(drop),
            // What was abandoned stays so, for who sees to it.
            _ if grant.took_over => {
                self.locks.release(&grant.lease, Release::PostponedUnrun).await.map(drop)
            }
            _ => self.locks.release(&grant.lease, Release::NeverRan).await.map(drop),
        }
    }

    /// A key that is held in Redis. Whoever recorded its answer may have died before Redis knew of it.
    async fn held(&self, ask: &Ask, held: Claimed) -> Result<Claimed, StoreError> {
        let Some(told) = self.settled(ask).await? else { return Ok(held) };
        if let Claimed::Replay(replay) = &told
            && let Ok(Some(record)) = self.locks.get(&ask.id).await
        {
            let answer = Resolution::complete(replay.answer.clone());
            let _mended = self.locks.resolve(&ask.id, record.fence, &answer).await;
        }
        Ok(told)
    }

    /// A claim that Redis did not take: what is finished needs none.
    async fn unlocked(&self, ask: &Ask, error: StoreError) -> Result<Claimed, StoreError> {
        match self.settled(ask).await {
            Ok(Some(told @ (Claimed::Replay(_) | Claimed::Reused | Claimed::Expired))) => Ok(told),
            _ => Err(error),
        }
    }

    /// Makes a call about a claim, and once more where Redis has forgotten it and this process has not.
    async fn insist<F>(&self, lease: &Lease, call: impl Fn() -> F) -> Result<Fenced, StoreError>
    where
        F: Future<Output = Result<Fenced, StoreError>>,
    {
        let fenced = call().await?;
        let run = self.runs.get(&lease.attempt_id).filter(|run| run.is_claimed_by(lease));
        match (fenced, run) {
            (Fenced::Lost, Some(run)) => {
                self.locks.put_back(lease, &run).await?;
                call().await
            }
            _ => Ok(fenced),
        }
    }
}

/// The record as this claim has made it, as far as it is of use to anybody else; a request that is kept is too large.
fn claimed(ask: &Ask, grant: &Grant) -> Record {
    let ask = &*fit(ask);
    let lease = &grant.lease;
    let created_at = before(grant.expires_at, ask.retention);
    let first = Record {
        state: State::Claimed { lease_until: created_at + lease.length },
        fence: lease.fence,
        attempt: grant.attempt,
        birth: grant.birth,
        checkpoint: grant.checkpoint.clone(),
        expires_at: grant.expires_at,
        ..Record::first(ask, created_at)
    };
    first.without_request()
}

fn before(at: Timestamp, time: Duration) -> Timestamp {
    Timestamp::default() + at.since(Timestamp::default() + time)
}

impl fmt::Debug for SplitStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SplitStore({:?}, {:?})", self.locks, self.answers.store())
    }
}
