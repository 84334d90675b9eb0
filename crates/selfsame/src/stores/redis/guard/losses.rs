//! Closing of guards after a loss, and reopening.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::pipe;
use selfsame_core::{StoreError, StoreErrorKind, Timestamp};
use tokio::time::Instant;

use super::super::buckets::Bucket;
use super::super::node::Lane;
use super::super::routes::Routes;
use super::super::scripts::{CLOSE, Call, REOPEN};
use super::super::trouble::{Access, Fault};
use super::super::{link, strange};
use super::{FACTS, GUARD, Guard, Known, random_id};

/// The fact by which all records are found: who goes by another one knows no key again.
const SECRET: &str = "secret";

/// Why a guard is asked to close.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Because {
    /// It may not be what it was.
    Missed,
    /// Another one on the same server is not.
    Beside,
}

/// Outcome of a request to close.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closed {
    /// Nothing is missed.
    Not,
    /// It was closed before for the same loss, or still is.
    Before,
    Now,
}

/// State of a guard, as it was read.
struct Said {
    now: Timestamp,
    closed_until: Timestamp,
    id: String,
    beats: u64,
    closed: Closed,
}

impl Guard {
    /// Finds out why a new key was refused. No error says that this bucket is open: the key may be claimed again.
    pub(in super::super) async fn find_out(&self, bucket: Bucket) -> Result<(), StoreError> {
        match self.is_verified(bucket) {
            true => self.find_loss(bucket).await,
            false => self.wait_until_verified(bucket).await,
        }
    }

    /// Looks whether records are missed, and closes the buckets of the server where they are. No error says that this
    /// one is open: somebody else has seen to it.
    pub(in super::super) async fn find_loss(&self, bucket: Bucket) -> Result<(), StoreError> {
        let said = self.close(bucket, Because::Missed).await?;
        if said.closed == Closed::Now {
            // What it had not counted yet it has lost as well.
            self.close_beside(self.routes.buckets_beside(bucket)).await?;
        }
        if said.closed != Closed::Not {
            // Also where others have closed it, and an operator has reopened it since: facts were lost, too.
            self.restore_facts().await?;
        }
        let (now, until) = (said.now, said.closed_until);
        if said.closed != Closed::Not && now < until {
            self.log_loss(now, until);
        }
        self.note_closed(bucket, now, until);
        // Only now: until then it is to be found out again.
        match said.closed {
            Closed::Not => self.learn(bucket, &said.id, said.beats),
            Closed::Before | Closed::Now => {
                self.watched[bucket.at()].recent.lock().clear();
                let unknown = Known { id: said.id.as_str().into(), ..Known::default() };
                self.watched[bucket.at()].state.lock().known = unknown;
                self.learn(bucket, &said.id, said.beats);
            }
        }
        match now < until {
            true => Err(lost(until.since(now))),
            false => Ok(()),
        }
    }

    /// Closes buckets of a server that has lost others.
    pub(super) async fn close_beside(&self, buckets: Vec<Bucket>) -> Result<(), Fault> {
        let close = buckets.into_iter().map(|bucket| self.close(bucket, Because::Beside));
        try_join_all(close).await.map(drop)
    }

    async fn close(&self, bucket: Bucket, because: Because) -> Result<Said, Fault> {
        let (known, missed) = {
            let state = self.watched[bucket.at()].state.lock();
            (state.known.clone(), state.missed.clone())
        };
        let call = self
            .compare(&CLOSE, bucket, &known)
            .number(self.longest_ms())
            .arg(random_id())
            .number(u64::from(because == Because::Beside))
            .arg(missed);
        let answer = self.call(bucket, call).await?;
        let said: Result<(u64, String, u64, u64, u8, String), _> = redis::from_redis_value(answer);
        let said = said.map_err(|_| Fault::strange(Access::Write));
        let (now, id, beats, closed_until, closed, missed) = said?;
        self.watched[bucket.at()].state.lock().missed = missed;
        Ok(Said {
            now: Timestamp::from_millis(now),
            closed_until: Timestamp::from_millis(closed_until),
            id,
            beats,
            closed: match closed {
                0 => Closed::Not,
                1 => Closed::Before,
                _ => Closed::Now,
            },
        })
    }

    /// Logs a loss once, and not for each bucket.
    fn log_loss(&self, now: Timestamp, until: Timestamp) {
        const APART_MS: u64 = 5000;
        let logged = self.logged_until.fetch_max(until.as_millis(), Ordering::Relaxed);
        if until.as_millis() < logged.saturating_add(APART_MS) {
            return;
        }
        let seconds = until.since(now).as_secs();
        match self.options.are_answers_elsewhere {
            true => tracing::error!(
                seconds,
                "Redis has lost claims: no new key is taken until the work that runs has ended, or is \
                 known again; docs/TIERED.md says more"
            ),
            false => tracing::error!(
                seconds,
                "Redis has lost records: no new key is taken until those that were lost would have \
                 expired, because they would run again; docs/REDIS.md says what to do"
            ),
        }
    }

    /// Until when a bucket takes no new key, by Redis' clock.
    pub(super) fn note_closed(&self, bucket: Bucket, now: Timestamp, until: Timestamp) {
        let closed_until = (now < until).then(|| Instant::now().checked_add(until.since(now)));
        let closed_until = closed_until.flatten();
        let before = {
            let mut state = self.watched[bucket.at()].state.lock();
            std::mem::replace(&mut state.closed_until, closed_until)
        };
        if before.is_some_and(|before| Instant::now() < before) && closed_until.is_none() {
            self.log_reopened();
        }
    }

    /// Logs once that an operator has reopened what was closed.
    fn log_reopened(&self) {
        if self.logged_until.swap(0, Ordering::Relaxed) > 0 {
            tracing::warn!("new keys are taken again: an operator has reopened Redis after a loss");
        }
    }

    /// Puts back what all nodes agree on: without its secret an installation knows no key again. Whoever came
    /// after the loss and found none has made another; then the same key is two records, and would run twice.
    pub(super) async fn restore_facts(&self) -> Result<(), StoreError> {
        let facts = self.facts.lock().clone();
        for (name, value) in facts {
            let is_other = put_fact(&self.routes, &name, &value).await? != value;
            if is_other && name == SECRET && !self.is_divided.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    fact = name,
                    "Redis has lost the installation's facts, and others are there now: restart this \
                     process, which takes no requests with keys until then"
                );
            }
        }
        self.check()
    }
}

/// Records were lost, and new keys are refused for so long.
fn lost(time: Duration) -> StoreError {
    let text = format!("Redis has lost records: no new key for {time:?}");
    StoreError::new(StoreErrorKind::RecordsLost, text).retry_after(time)
}

/// Takes new keys again in all buckets, and tells how many were closed.
pub(in super::super) async fn reopen_all(routes: &Routes, ahead_ms: u64) -> Result<u64, Fault> {
    let reopen = async |bucket: Bucket| {
        let key = routes.buckets.beside(bucket, GUARD);
        let call = Arc::new(Call::new(&REOPEN, &key).number(ahead_ms));
        let ask = link::Ask::Script(&call);
        let answer = routes.ask(bucket, Lane::Guard, Access::Write, ask).await?;
        let was_closed: u64 =
            redis::from_redis_value(answer).map_err(|_| Fault::strange(Access::Write))?;
        Ok(was_closed)
    };
    let reopened = try_join_all(routes.buckets.all().map(reopen)).await?;
    Ok(reopened.into_iter().sum())
}

/// The value under `name`; `value` is put there first if there is none.
pub(in super::super) async fn put_fact(
    routes: &Routes,
    name: &str,
    value: &[u8],
) -> Result<Vec<u8>, StoreError> {
    let facts = routes.buckets.beside(Bucket::FIRST, FACTS);
    let mut both = pipe();
    both.cmd("HSETNX").arg(&facts).arg(name).arg(value);
    both.cmd("HGET").arg(&facts).arg(name);
    let ask = link::Ask::All(&both);
    let answer = routes.ask(Bucket::FIRST, Lane::Look, Access::Write, ask).await?;
    let read: Result<(bool, Vec<u8>), _> = redis::from_redis_value(answer);
    let (_, value) = read.map_err(|_| strange(Access::Write))?;
    Ok(value)
}
