//! [`Guard`]: notices that records were lost, by a `FLUSHALL`, a restart without what was kept, or a replica that
//! took over and had not got everything.
//!
//! Beside the records of each bucket lies a name, and a count that grows while there are writes. A claim of an unknown
//! key says which name and count its process has seen: where there is another name, or less was counted, the key may be
//! one of those that were lost, and is not run again. From then on no process takes a new key of any bucket on that
//! server, for as long as the lost ones would have been known, unless an operator knows better.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use redis::{Value, cmd, pipe};
use selfsame_core::{Ask, AttemptId, StoreError, StoreErrorKind, Timestamp};

use super::buckets::Bucket;
use super::gather::Behind;
use super::link;
use super::node::Lane;
use super::options::RedisOptions;
use super::routes::Routes;
use super::scripts::{CLOSE, COUNT, Call};
use super::strange;
use super::trouble::{Access, Fault};
use super::value::millis;
use crate::background;

/// Where name and count lie, in each bucket.
pub(super) const GUARD: &str = "guard";
/// Where small values lie, by their names, in the first.
pub(super) const FACTS: &str = "facts";

/// How often writes are counted, while there are any.
const BEAT: Duration = Duration::from_millis(100);

/// For how long no new key is taken where it is not known how long keys live.
const WINDOW: Duration = Duration::from_secs(24 * 60 * 60);
/// The same where it is not known how long leases are, and every answer is recorded elsewhere, too.
const LEASE_WINDOW: Duration = Duration::from_secs(10 * 60);

/// What this process has seen of a guard.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Its name; nothing where nobody is to notice.
    pub(super) id: Arc<str>,
    pub(super) beats: u64,
}

impl Known {
    /// Whether a guard that says so has lost nothing, and takes new keys. `claim.lua` says the same.
    pub(super) fn is_kept_by(&self, said: &Value, now: Timestamp) -> bool {
        let Value::Array(said) = said else { return false };
        let [Value::BulkString(id), beats, closed_until] = &said[..] else { return false };
        let beats: Result<Option<u64>, _> = redis::from_redis_value_ref(beats);
        let closed_until: Result<Option<f64>, _> = redis::from_redis_value_ref(closed_until);
        let (Ok(beats), Ok(closed_until)) = (beats, closed_until) else { return false };
        id == self.id.as_bytes()
            && beats.unwrap_or(0) >= self.beats
            && closed_until.is_none_or(|until| until <= now.as_millis() as f64)
    }
}

/// A bucket's guard.
struct Watched {
    /// What is read behind a claim: what it says, where anybody is to notice, and the time.
    behind: Behind,
    known: Mutex<Known>,
    /// Whether there is something to count.
    has_written: AtomicBool,
    /// Whether it may be another one by now.
    is_doubted: AtomicBool,
    /// Whether somebody sees to it.
    is_tended: AtomicBool,
}

impl Watched {
    fn new(key: String, accept_loss: bool) -> Self {
        let mut look = cmd("HMGET");
        look.arg(key).arg("id").arg("beats").arg("closed_until");
        let (look, time) = ((!accept_loss).then_some(look), cmd("TIME"));
        Self {
            behind: look.into_iter().chain([time]).collect(),
            known: Mutex::default(),
            has_written: AtomicBool::new(false),
            is_doubted: AtomicBool::new(false),
            is_tended: AtomicBool::new(false),
        }
    }

    fn is_due(&self) -> bool {
        self.has_written.load(Ordering::Relaxed) || self.is_doubted.load(Ordering::Relaxed)
    }
}

/// Why a guard is asked to close.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Because {
    /// It may not be what it was.
    Missed,
    /// Another one on the same server is not.
    Beside,
}

/// What is known of Redis' memory.
pub(super) struct Guard {
    routes: Arc<Routes>,
    ahead_ms: Arc<AtomicU64>,
    /// By bucket.
    watched: Vec<Watched>,
    /// The longest life of a key that was asked for; of a lease, where answers are elsewhere, too: whatever ran is
    /// over by then, or was put back by who runs it.
    window_ms: AtomicU64,
    are_answers_elsewhere: bool,
    /// Facts as this process goes by them.
    facts: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Whether others go by others.
    is_divided: AtomicBool,
}

impl Guard {
    /// Reads the guards, or makes them, and counts from then on until it is dropped. Where loss is accepted,
    /// none is noticed.
    pub(super) async fn start(
        routes: Arc<Routes>,
        options: &RedisOptions,
    ) -> Result<Arc<Self>, Fault> {
        let watched = routes.buckets.all();
        let watched = watched
            .map(|bucket| Watched::new(routes.buckets.beside(bucket, GUARD), options.accept_loss));
        let watched = watched.collect();
        let guard = Arc::new(Self {
            routes,
            ahead_ms: options.ahead_ms.clone(),
            watched,
            window_ms: AtomicU64::new(0),
            are_answers_elsewhere: options.are_answers_elsewhere,
            facts: Mutex::default(),
            is_divided: AtomicBool::new(false),
        });
        if !options.accept_loss {
            guard.meet_all().await?;
            background::spawn(beat(Arc::downgrade(&guard)));
        }
        Ok(guard)
    }

    /// Reads the guards, or makes them. All are made before anything is counted: where one has counted and another is not
    /// there, a server has lost it. What it had beside its records, above all the facts, may be gone with it.
    async fn meet_all(&self) -> Result<(), Fault> {
        let buckets = || self.routes.buckets.all();
        let before = try_join_all(buckets().map(|bucket| self.found(bucket))).await?;
        let has_counted = before.iter().any(|(_, beats)| *beats > 0);
        let is_made = try_join_all(buckets().map(|bucket| self.meet(bucket))).await?;
        let lost: Vec<_> = buckets().filter(|bucket| has_counted && is_made[bucket.at()]).collect();
        let is_first_lost = lost.contains(&Bucket::FIRST);
        let closed = if is_first_lost { buckets().collect() } else { lost };
        if !closed.is_empty() {
            tracing::error!("a part of Redis has lost its records: new keys are refused there");
        }
        let close = closed.into_iter().map(|bucket| self.close(bucket, Because::Beside));
        try_join_all(close).await.map(drop)
    }

    /// The name and the count that are there.
    async fn found(&self, bucket: Bucket) -> Result<(Option<String>, u64), Fault> {
        let mut look = cmd("HMGET");
        look.arg(self.key(bucket)).arg("id").arg("beats");
        let found = self.ask(bucket, link::Ask::Command(&look)).await?;
        let found: Result<(Option<String>, Option<u64>), _> = redis::from_redis_value(found);
        let (id, beats) = found.map_err(|_| Fault::strange(Access::Read))?;
        Ok((id, beats.unwrap_or(0)))
    }

    /// Reads a guard, or makes it, and says which.
    async fn meet(&self, bucket: Bucket) -> Result<bool, Fault> {
        let key = self.key(bucket);
        let mut make = pipe();
        make.cmd("HSETNX").arg(&key).arg("id").arg(random_id());
        make.cmd("HMGET").arg(&key).arg("id").arg("beats");
        let answer = self.ask(bucket, link::Ask::All(&make)).await?;
        let read: Result<(bool, (String, Option<u64>)), _> = redis::from_redis_value(answer);
        let (is_made, (id, beats)) = read.map_err(|_| Fault::strange(Access::Write))?;
        *self.watched[bucket.at()].known.lock() =
            Known { id: id.into(), beats: beats.unwrap_or(0) };
        Ok(is_made)
    }

    fn key(&self, bucket: Bucket) -> String {
        self.routes.buckets.beside(bucket, GUARD)
    }

    async fn ask(&self, bucket: Bucket, ask: link::Ask<'_>) -> Result<Value, Fault> {
        self.routes.ask(bucket, Lane::Guard, Access::Write, ask).await
    }

    /// What is read behind a claim.
    pub(super) fn behind(&self, bucket: Bucket) -> &Behind {
        &self.watched[bucket.at()].behind
    }

    /// What a claim shows.
    pub(super) fn known(&self, bucket: Bucket, ask: &Ask) -> Known {
        let lost_for = if self.are_answers_elsewhere { ask.lease } else { ask.retention };
        self.window_ms.fetch_max(millis(lost_for), Ordering::Relaxed);
        self.watched[bucket.at()].known.lock().clone()
    }

    /// This process goes by a fact.
    pub(super) fn note_fact(&self, name: &str, value: &[u8]) {
        self.facts.lock().insert(name.to_owned(), value.to_vec());
    }

    /// Refuses all claims where others may know the same keys by other records.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.is_divided.load(Ordering::Relaxed) {
            true => Err(StoreError::new(
                StoreErrorKind::NotWritten,
                "Redis has lost the installation's facts, and others are there now: restart this \
                 process",
            )),
            false => Ok(()),
        }
    }

    /// Something was written that must not be lost.
    pub(super) fn note_write(&self, bucket: Bucket) {
        self.watched[bucket.at()].has_written.store(true, Ordering::Relaxed);
    }

    /// Counts what was written since the last time.
    async fn count(&self, bucket: Bucket) -> Result<(), StoreError> {
        let count = Call::new(&COUNT, &self.key(bucket));
        let counted = self.ask(bucket, link::Ask::Script(&Arc::new(count))).await?;
        let counted = redis::from_redis_value(counted).map_err(|_| strange(Access::Write))?;
        let is_less = {
            let mut known = self.watched[bucket.at()].known.lock();
            let is_less = counted <= known.beats;
            known.beats = known.beats.max(counted);
            is_less
        };
        if is_less { self.find_out(bucket).await } else { Ok(()) }
    }

    /// Looks whether a guard is as it was, without counting: what was lost would look like more.
    async fn look(&self, bucket: Bucket) -> Result<(), StoreError> {
        let (id, beats) = self.found(bucket).await?;
        let is_less = {
            let known = self.watched[bucket.at()].known.lock();
            id.as_deref() != Some(&*known.id) || beats < known.beats
        };
        if is_less { self.find_out(bucket).await } else { Ok(()) }
    }

    /// Finds out why a new key was refused, and closes the buckets of the server where records are missed. No error
    /// says that this one is open: somebody else has seen to it.
    pub(super) async fn find_out(&self, bucket: Bucket) -> Result<(), StoreError> {
        let said = self.close(bucket, Because::Missed).await?;
        if said.is_missed {
            // What it had not counted yet it has lost as well.
            let beside = self.routes.buckets_beside(bucket);
            try_join_all(beside.into_iter().map(|other| self.close(other, Because::Beside)))
                .await?;
            self.restore_facts().await?;
        }
        // Only now: until then it is to be found out again.
        *self.watched[bucket.at()].known.lock() = said.known;
        let (now, until) = (said.now, said.closed_until);
        if said.is_missed && now < until {
            let seconds = until.since(now).as_secs();
            match self.are_answers_elsewhere {
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
        match now < until {
            true => Err(StoreError::new(
                StoreErrorKind::NotWritten,
                format!("Redis has lost records: no new key for {:?}", until.since(now)),
            )),
            false => Ok(()),
        }
    }

    async fn close(&self, bucket: Bucket, because: Because) -> Result<Said, Fault> {
        let Known { id, beats } = self.watched[bucket.at()].known.lock().clone();
        let window_ms = match self.window_ms.load(Ordering::Relaxed) {
            0 if self.are_answers_elsewhere => millis(LEASE_WINDOW),
            0 => millis(WINDOW),
            window_ms => window_ms,
        };
        let call = Call::new(&CLOSE, &self.key(bucket))
            .number(self.ahead_ms.load(Ordering::SeqCst))
            .arg(id.as_bytes())
            .number(beats)
            .number(window_ms)
            .arg(random_id())
            .number(u64::from(because == Because::Beside));
        let answer = self.ask(bucket, link::Ask::Script(&Arc::new(call))).await?;
        let said: Result<(u64, String, u64, u64, bool), _> = redis::from_redis_value(answer);
        let said = said.map_err(|_| Fault::strange(Access::Write));
        let (now, id, beats, closed_until, is_missed) = said?;
        Ok(Said {
            now: Timestamp::from_millis(now),
            closed_until: Timestamp::from_millis(closed_until),
            known: Known { id: id.into(), beats },
            is_missed,
        })
    }

    /// Puts back what all nodes agree on: without its secret an installation knows no key again. Whoever came
    /// after the loss and found none has made another; then the same key is two records, and would run twice.
    async fn restore_facts(&self) -> Result<(), StoreError> {
        let facts = self.facts.lock().clone();
        for (name, value) in facts {
            if put_fact(&self.routes, &name, &value).await? != value {
                tracing::error!(
                    fact = name,
                    "Redis has lost the installation's facts, and others are there now: restart this \
                     process, which takes no requests with keys until then"
                );
                self.is_divided.store(true, Ordering::Relaxed);
            }
        }
        self.check()
    }
}

/// What a guard says of itself.
struct Said {
    now: Timestamp,
    closed_until: Timestamp,
    known: Known,
    /// Whether it is not what this process knew.
    is_missed: bool,
}

/// The value under `name`; `value` is put there first if there is none.
pub(super) async fn put_fact(
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

/// Counts while there are writes, and looks where there are new connections, perhaps to other servers.
async fn beat(guard: Weak<Guard>) {
    let mut connections = 0;
    loop {
        tokio::time::sleep(BEAT).await;
        let Some(guard) = guard.upgrade() else { return };
        let now = guard.routes.connections();
        let is_new = std::mem::replace(&mut connections, now) != now;
        for bucket in guard.routes.buckets.all() {
            let watched = &guard.watched[bucket.at()];
            watched.is_doubted.fetch_or(is_new, Ordering::Relaxed);
            // A server that is away keeps nobody from counting at the others.
            if watched.is_due() && !watched.is_tended.swap(true, Ordering::Relaxed) {
                background::spawn(tend(guard.clone(), bucket));
            }
        }
    }
}

/// Looks and counts, as it is due. What was lost is found out by the next claim, too.
async fn tend(guard: Arc<Guard>, bucket: Bucket) {
    let Watched { has_written, is_doubted, is_tended, .. } = &guard.watched[bucket.at()];
    if is_doubted.swap(false, Ordering::Relaxed) && guard.look(bucket).await.is_err() {
        is_doubted.store(true, Ordering::Relaxed);
    }
    if has_written.swap(false, Ordering::Relaxed) && guard.count(bucket).await.is_err() {
        has_written.store(true, Ordering::Relaxed);
    }
    is_tended.store(false, Ordering::Relaxed);
}

fn random_id() -> String {
    AttemptId::random().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_kept_that_has_the_same_name_has_counted_no_less_and_is_open() {
        let known = Known { id: "ours".into(), beats: 7 };
        let text = |text: &str| Value::BulkString(text.into());
        let now = Timestamp::from_millis(5000);
        for (said, expected) in [
            ([text("ours"), text("7"), Value::Nil], true),
            ([text("ours"), text("8"), text("0")], true),
            ([text("ours"), text("8"), text("5000")], true),
            ([text("ours"), text("8"), text("5001")], false),
            ([text("ours"), text("8"), text("soon")], false),
            ([text("ours"), text("6"), Value::Nil], false),
            ([text("ours"), Value::Nil, Value::Nil], false),
            ([text("other"), text("7"), Value::Nil], false),
            ([Value::Nil, Value::Nil, Value::Nil], false),
        ] {
            let said = Value::Array(said.to_vec());
            assert_eq!(known.is_kept_by(&said, now), expected, "{said:?}");
        }
        assert!(!known.is_kept_by(&Value::Nil, now));
    }
}
