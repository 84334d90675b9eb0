//! [`Guard`]: notices that records were lost, by a `FLUSHALL`, a restart without what was kept, or a replica that
//! took over and had not got everything.
//!
//! Beside the records of each bucket lies a name, a count that grows while there are writes, and each process' own count of
//! those. An own count lives as long as what was written before it: one that has ended since then proves nothing and is not
//! missed, one that is missing earlier is a loss. A process that finds another name, or less than was counted, misses records, and closes all buckets of that server:
//! no process takes a new key there for as long as the lost ones would have been known, unless an operator reopens them.
//!
//! - Every claim of an unknown key compares name and count, in the same step or in the next before anything runs.
//! - Every process looks at all guards again and again, also one that has nothing to do ([`watch`]).
//! - After a new connection, which may lead to another server, no unknown key runs before all other processes have looked at that
//!   server, too ([`verify`]): what one has lost, another cannot know.
//! - A guard that was made anew is taken for that of a new installation only after all others had time to object.

mod losses;
mod members;
mod recent;
mod verify;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use redis::{Value, cmd};
use selfsame_core::{Ask, AttemptId, RecordId, StoreError, StoreErrorKind, Timestamp};
use tokio::sync::{Notify, watch as channel};
use tokio::time::{Instant, sleep};

use self::members::Members;
use self::recent::Recent;
use super::buckets::Bucket;
use super::gather::Behind;
use super::link;
use super::node::Lane;
use super::options::RedisOptions;
use super::routes::{Path, Routes};
use super::scripts::{Call, MEET, Script};
use super::trouble::{Access, Fault};
use super::value::millis;
use crate::background;

pub(super) use self::losses::{put_fact, reopen_all};
pub use self::watch::RedisHealth;

/// Where name and counts lie, in each bucket.
pub(super) const GUARD: &str = "guard";
/// Where a process has its own count, in each bucket; its name is behind that.
const OWN: &str = "own";
/// Where small values lie, by their names, in the first.
pub(super) const FACTS: &str = "facts";

/// For how long no new key is taken where it is not known how long keys live.
const WINDOW: Duration = Duration::from_secs(24 * 60 * 60);
/// Time for which no new key is taken where leases are unknown, and every answer is recorded elsewhere, too.
const LEASE_WINDOW: Duration = Duration::from_secs(10 * 60);

/// The name that no guard has.
const NO_GUARD: &str = "?";

/// A guard as this process has last seen it.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Its name; nothing where nobody is to notice.
    pub(super) id: Arc<str>,
    pub(super) beats: u64,
    /// Part of that which this process has counted.
    own: u64,
    /// Time in milliseconds, by Redis' clock, until which `own` must be there: by then everything this process had written has
    /// expired, and Redis has let go of the count.
    own_until: u64,
}

impl Known {
    /// Tells if a guard in this state has lost nothing, and takes new keys. `claim.lua` has the same rule.
    fn is_kept_by(&self, said: &Value, now: Timestamp) -> Option<u64> {
        let Value::Array(said) = said else { return None };
        let [Value::BulkString(id), beats, closed_until] = &said[..] else { return None };
        let beats: Option<u64> = redis::from_redis_value_ref(beats).ok()?;
        let closed_until: Option<f64> = redis::from_redis_value_ref(closed_until).ok()?;
        let beats = beats.unwrap_or(0);
        let is_kept = id == self.id.as_bytes()
            && beats >= self.beats
            && closed_until.is_none_or(|until| until <= now.as_millis() as f64);
        is_kept.then_some(beats)
    }
}

/// Knowledge of a process that a claim shows.
pub(super) struct Shown {
    known: Known,
    /// The way by which nothing was missed; none where that is not known of the way there is.
    path: Option<Path>,
}

impl Shown {
    /// The name that must be there for a key to be new.
    pub(super) fn id(&self) -> &str {
        if self.path.is_none() && !self.is_careless() { NO_GUARD } else { &self.known.id }
    }

    pub(super) fn beats(&self) -> u64 {
        self.known.beats
    }

    /// Tells if loss detection is off.
    fn is_careless(&self) -> bool {
        self.known.id.is_empty()
    }
}

/// A bucket's guard.
struct Watched {
    /// What is read behind a claim: what it says, where anybody is to notice, and the time.
    behind: Behind,
    state: Mutex<Seen>,
    recent: Mutex<Recent>,
    /// Set while there is something to count.
    has_written: AtomicBool,
    is_counting: AtomicBool,
    is_looking: AtomicBool,
    is_verifying: AtomicBool,
}

/// State of a bucket, as far as this process knows it.
#[derive(Default)]
struct Seen {
    known: Known,
    /// Names that the guard had before, as the guard itself last had them: it may lose them with all else.
    missed: String,
    /// The way by which nothing was missed, as all processes have confirmed.
    verified: Option<Path>,
    /// Until when no new key is taken, by our clock.
    closed_until: Option<Instant>,
}

impl Watched {
    fn new(key: String, accept_loss: bool) -> Self {
        let mut look = cmd("HMGET");
        look.arg(key).arg("id").arg("beats").arg("closed_until");
        let (look, time) = ((!accept_loss).then_some(look), cmd("TIME"));
        Self {
            behind: look.into_iter().chain([time]).collect(),
            state: Mutex::default(),
            recent: Mutex::default(),
            has_written: AtomicBool::new(false),
            is_counting: AtomicBool::new(false),
            is_looking: AtomicBool::new(false),
            is_verifying: AtomicBool::new(false),
        }
    }
}

/// Loss detection for all buckets.
pub(super) struct Guard {
    routes: Arc<Routes>,
    options: RedisOptions,
    /// By bucket.
    watched: Vec<Watched>,
    members: Members,
    /// The longest time for which a key is known that any process was asked for; of a lease, where answers are elsewhere, too:
    /// whatever ran is over by then, or was put back by who runs it.
    window_ms: AtomicU64,
    /// Until when the last loss was logged that keys are refused.
    logged_until: AtomicU64,
    /// Set once this process takes keys.
    is_started: AtomicBool,
    /// There is something to see to at once.
    wake: Arc<Notify>,
    /// A bucket was verified.
    verified: channel::Sender<()>,
    /// Facts as this process goes by them.
    facts: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Set where other processes go by other facts.
    is_divided: AtomicBool,
}

impl Guard {
    /// Reads the guards, or makes them, and watches them from then on until it is dropped. Where loss is accepted,
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
            options: options.clone(),
            watched,
            members: Members::new(),
            window_ms: AtomicU64::new(millis(options.known_for)),
            logged_until: AtomicU64::new(0),
            is_started: AtomicBool::new(false),
            wake: Arc::default(),
            verified: channel::Sender::new(()),
            facts: Mutex::default(),
            is_divided: AtomicBool::new(false),
        });
        if !options.accept_loss {
            let age = guard.meet_all().await?;
            guard.refresh_members().await?;
            background::spawn(watch::guards(Arc::downgrade(&guard)));
            // Whoever finds records and nobody who uses them may have found an old backup.
            let is_alone = guard.has_counted() && guard.members.live().is_empty();
            guard.settle(if is_alone { Duration::ZERO } else { age }).await;
            let buckets = guard.routes.buckets.all();
            let verify = buckets.map(|bucket| verify::run(Arc::downgrade(&guard), bucket));
            join_all(verify).await;
            guard.is_started.store(true, Ordering::Relaxed);
        }
        background::spawn(watch::facts(Arc::downgrade(&guard)));
        Ok(guard)
    }

    /// Set once anything was counted.
    fn has_counted(&self) -> bool {
        self.watched.iter().any(|watched| watched.state.lock().known.beats > 0)
    }

    /// Gives others the time to object where a guard was only just made, or may be old: whoever knows another one, or
    /// a later count, misses records.
    async fn settle(&self, age: Duration) {
        let left = self.options.settle.saturating_sub(age);
        if !left.is_zero() {
            tracing::info!(
                milliseconds = millis(left),
                "no other node is known: keys are taken once others had time to say that Redis has lost some"
            );
            sleep(left).await;
            // Those who were there before are on the list by now.
            let _listed = self.refresh_members().await;
        }
    }

    /// Reads the guards, or makes them, and tells how old the youngest is. All are made before anything is counted: where one has
    /// counted and another is not there, a server has lost it. What it had beside its records, above all the facts, may be gone
    /// with it.
    async fn meet_all(&self) -> Result<Duration, Fault> {
        let buckets = || self.routes.buckets.all();
        let before = try_join_all(buckets().map(|bucket| self.counted(bucket))).await?;
        let has_counted = before.iter().any(|beats| *beats > 0);
        let met = try_join_all(buckets().map(|bucket| self.meet(bucket))).await?;
        let lost: Vec<_> = buckets().filter(|bucket| has_counted && met[bucket.at()].0).collect();
        let is_first_lost = lost.contains(&Bucket::FIRST);
        let closed = if is_first_lost { buckets().collect() } else { lost };
        if !closed.is_empty() {
            tracing::error!("a part of Redis has lost its records: new keys are refused there");
        }
        self.close_beside(closed).await?;
        Ok(met.into_iter().map(|(_, age)| age).min().unwrap_or_default())
    }

    /// The count that is there.
    async fn counted(&self, bucket: Bucket) -> Result<u64, Fault> {
        let mut look = cmd("HGET");
        look.arg(self.key(bucket)).arg("beats");
        let found = self.ask(bucket, link::Ask::Command(&look)).await?;
        let found: Option<u64> =
            redis::from_redis_value(found).map_err(|_| Fault::strange(Access::Read))?;
        Ok(found.unwrap_or(0))
    }

    /// Reads a guard, or makes it, and says which, and how long ago it was made.
    async fn meet(&self, bucket: Bucket) -> Result<(bool, Duration), Fault> {
        let answer =
            self.call(bucket, Call::new(&MEET, &self.key(bucket)).arg(random_id())).await?;
        let read: Result<(bool, String, u64, u64, u64, String), _> =
            redis::from_redis_value(answer);
        let (is_made, id, beats, window_ms, age_ms, missed) =
            read.map_err(|_| Fault::strange(Access::Write))?;
        self.window_ms.fetch_max(window_ms, Ordering::Relaxed);
        let known = Known { id: id.clone().into(), ..Known::default() };
        let mut state = self.watched[bucket.at()].state.lock();
        (state.known, state.missed) = (known, missed);
        drop(state);
        self.learn(bucket, &id, beats);
        Ok((is_made, Duration::from_millis(age_ms)))
    }

    fn key(&self, bucket: Bucket) -> String {
        self.routes.buckets.beside(bucket, GUARD)
    }

    /// Where this process' own count lies.
    fn own_key(&self, bucket: Bucket) -> String {
        self.routes.buckets.beside(bucket, &format!("{OWN}:{}", self.members.own))
    }

    /// A call of a script that compares what is there with what this process knows.
    fn compare(&self, script: &'static Script, bucket: Bucket, known: &Known) -> Call {
        Call::with(script, &[&self.key(bucket), &self.own_key(bucket)])
            .number(self.options.ahead())
            .arg(known.id.as_bytes())
            .number(known.beats)
            .number(known.own)
            .number(known.own_until)
    }

    /// The longest time for which a key is known, in milliseconds, as far as this process knows.
    fn longest_ms(&self) -> u64 {
        match self.window_ms.load(Ordering::Relaxed) {
            0 if self.options.are_answers_elsewhere => millis(LEASE_WINDOW),
            0 => millis(WINDOW),
            window_ms => window_ms,
        }
    }

    async fn ask(&self, bucket: Bucket, ask: link::Ask<'_>) -> Result<Value, Fault> {
        self.routes.ask(bucket, Lane::Guard, Access::Write, ask).await
    }

    async fn call(&self, bucket: Bucket, call: Call) -> Result<Value, Fault> {
        self.ask(bucket, link::Ask::Script(&Arc::new(call))).await
    }

    /// The commands that are sent behind a claim.
    pub(super) fn behind(&self, bucket: Bucket) -> &Behind {
        &self.watched[bucket.at()].behind
    }

    /// The knowledge that a claim shows.
    pub(super) fn show(&self, bucket: Bucket, ask: &Ask) -> Shown {
        let known_for = match self.options.are_answers_elsewhere {
            true => ask.lease,
            false => ask.retention.saturating_add(ask.remember).saturating_add(ask.lease),
        };
        self.window_ms.fetch_max(millis(known_for), Ordering::Relaxed);
        let path = self.routes.path(bucket);
        let state = self.watched[bucket.at()].state.lock();
        Shown { known: state.known.clone(), path: state.verified.filter(|it| path == Some(*it)) }
    }

    /// Whether a claim that was made since stands: it went by the way that was verified, and a guard that says so has lost
    /// nothing.
    pub(super) fn stands(
        &self,
        bucket: Bucket,
        shown: &Shown,
        said: Option<&Value>,
        now: Timestamp,
    ) -> bool {
        if shown.is_careless() {
            return true;
        }
        if let Some(said) = said {
            let Some(beats) = shown.known.is_kept_by(said, now) else { return false };
            self.learn(bucket, &shown.known.id, beats);
        }
        shown.path.is_some() && self.routes.path(bucket) == shown.path
    }

    /// This process goes by a fact.
    pub(super) fn note_fact(&self, name: &str, value: &[u8]) {
        self.facts.lock().insert(name.to_owned(), value.to_vec());
    }

    /// Refuses all claims where others may know the same keys by other records, or do not wait for this process any more.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.members.has_left() {
            return Err(StoreError::new(StoreErrorKind::NotWritten, "this store is closed"));
        }
        match self.is_divided.load(Ordering::Relaxed) {
            true => Err(StoreError::new(
                StoreErrorKind::RecordsLost,
                "Redis has lost the installation's facts, and others are there now: restart this \
                 process",
            )),
            false => Ok(()),
        }
    }

    /// This value was written, and must not be lost.
    pub(super) fn note_write(
        &self,
        bucket: Bucket,
        id: &RecordId,
        (value, lives): (&[u8], Option<Duration>),
    ) {
        if !self.options.accept_loss {
            let watched = &self.watched[bucket.at()];
            watched.recent.lock().note(id, value, lives);
            watched.has_written.store(true, Ordering::Relaxed);
        }
    }

    /// A record is about to be removed.
    pub(super) fn note_removal(&self, bucket: Bucket, id: &RecordId) {
        self.watched[bucket.at()].recent.lock().forget(id);
    }
}

fn random_id() -> String {
    AttemptId::random().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_kept_that_has_the_same_name_has_counted_no_less_and_is_open() {
        let known = Known { id: "ours".into(), beats: 7, ..Known::default() };
        let text = |text: &str| Value::BulkString(text.into());
        let now = Timestamp::from_millis(5000);
        for (said, expected) in [
            ([text("ours"), text("7"), Value::Nil], Some(7)),
            ([text("ours"), text("8"), text("0")], Some(8)),
            ([text("ours"), text("8"), text("5000")], Some(8)),
            ([text("ours"), text("8"), text("5001")], None),
            ([text("ours"), text("8"), text("soon")], None),
            ([text("ours"), text("6"), Value::Nil], None),
            ([text("ours"), Value::Nil, Value::Nil], None),
            ([text("other"), text("7"), Value::Nil], None),
            ([Value::Nil, Value::Nil, Value::Nil], None),
        ] {
            let said = Value::Array(said.to_vec());
            assert_eq!(known.is_kept_by(&said, now), expected, "{said:?}");
        }
        assert_eq!(known.is_kept_by(&Value::Nil, now), None);
    }
}
