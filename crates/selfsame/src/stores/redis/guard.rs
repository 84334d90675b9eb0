//! [`Guard`]: notices that records were lost, by a `FLUSHALL`, a restart without what was kept, or a replica that
//! took over and had not got everything.
//!
//! Beside the records lies a name, and a count that grows while there are writes. A claim of an unknown key says
//! which name and count its process has seen: where there is another name, or less was counted, the key may be
//! one of those that were lost, and is not run again. From then on no process takes a new key, for as long as
//! the lost ones would have been known, unless an operator knows better.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Value, cmd, pipe};
use selfsame_core::{Ask, AttemptId, StoreError, StoreErrorKind, Timestamp};

use super::link::{self, Link};
use super::options::RedisOptions;
use super::scripts::{CLOSE, Call};
use super::strange;
use super::trouble::{Access, Fault};
use super::value::millis;
use crate::background;

/// Where name and count lie.
pub(super) const GUARD: &str = "selfsame:guard";
/// Where small values lie, by their names.
pub(super) const FACTS: &str = "selfsame:facts";

/// How often writes are counted, while there are any.
const BEAT: Duration = Duration::from_millis(100);

/// For how long no new key is taken where it is not known how long keys live.
const WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// What this process has seen of the guard.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Its name; nothing where nobody is to notice.
    pub(super) id: String,
    pub(super) beats: u64,
}

/// What is known of Redis' memory.
pub(super) struct Guard {
    link: Arc<Link>,
    ahead_ms: Arc<AtomicU64>,
    known: Mutex<Known>,
    has_written: AtomicBool,
    /// The longest life of a key that was asked for.
    window_ms: AtomicU64,
    /// Facts as this process goes by them.
    facts: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Whether others go by others.
    is_divided: AtomicBool,
}

impl Guard {
    /// Reads the guard, or makes it, and counts from then on until it is dropped. Where loss is accepted,
    /// none is noticed.
    pub(super) async fn start(link: Arc<Link>, options: &RedisOptions) -> Result<Arc<Self>, Fault> {
        let guard = Arc::new(Self {
            link,
            ahead_ms: options.ahead_ms.clone(),
            known: Mutex::default(),
            has_written: AtomicBool::new(false),
            window_ms: AtomicU64::new(0),
            facts: Mutex::default(),
            is_divided: AtomicBool::new(false),
        });
        if !options.accept_loss {
            let mut make = pipe();
            make.cmd("HSETNX").arg(GUARD).arg("id").arg(random_id()).ignore();
            make.cmd("HMGET").arg(GUARD).arg("id").arg("beats");
            let answer = guard.link.ask(Access::Write, link::Ask::All(&make)).await?;
            let read: Result<((String, Option<u64>),), _> = redis::from_redis_value(answer);
            let ((id, beats),) = read.map_err(|_| Fault::strange(Access::Write))?;
            *guard.known.lock() = Known { id, beats: beats.unwrap_or(0) };
            background::spawn(beat(Arc::downgrade(&guard)));
        }
        Ok(guard)
    }

    /// What a claim shows.
    pub(super) fn known(&self, ask: &Ask) -> Known {
        self.window_ms.fetch_max(millis(ask.retention), Ordering::Relaxed);
        self.known.lock().clone()
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
    pub(super) fn note_write(&self) {
        self.has_written.store(true, Ordering::Relaxed);
    }

    /// Counts what was written since the last time.
    async fn count(&self) -> Result<(), StoreError> {
        let mut count = cmd("HINCRBY");
        count.arg(GUARD).arg("beats").arg(1);
        let counted = self.link.ask(Access::Write, link::Ask::Command(&count)).await?;
        let counted = redis::from_redis_value(counted).map_err(|_| strange(Access::Write))?;
        let is_less = {
            let mut known = self.known.lock();
            let is_less = counted <= known.beats;
            known.beats = known.beats.max(counted);
            is_less
        };
        if is_less { self.find_out().await } else { Ok(()) }
    }

    /// Finds out why a new key was refused, and closes the store where records are missed. No error says that
    /// it is open: somebody else has seen to it.
    pub(super) async fn find_out(&self) -> Result<(), StoreError> {
        let Known { id, beats } = self.known.lock().clone();
        let window_ms = match self.window_ms.load(Ordering::Relaxed) {
            0 => millis(WINDOW),
            window_ms => window_ms,
        };
        let call = Call::new(&CLOSE, GUARD)
            .number(self.ahead_ms.load(Ordering::SeqCst))
            .arg(id)
            .number(beats)
            .number(window_ms)
            .arg(random_id());
        let answer = self.link.ask(Access::Write, link::Ask::Script(&call)).await?;
        let Value::Array(said) = answer else { return Err(strange(Access::Write)) };
        let said: Result<(u64, String, u64, u64, bool), _> =
            redis::from_redis_value(Value::Array(said));
        let (now, id, beats, closed_until, is_missed) = said.map_err(|_| strange(Access::Write))?;
        if is_missed {
            self.restore_facts().await?;
        }
        // Only now: until then it is to be found out again.
        *self.known.lock() = Known { id, beats };
        let (now, until) = (Timestamp::from_millis(now), Timestamp::from_millis(closed_until));
        if is_missed && now < until {
            tracing::error!(
                seconds = until.since(now).as_secs(),
                "Redis has lost records: no new key is taken until those that were lost would have \
                 expired, because they would run again; docs/REDIS.md says what to do"
            );
        }
        match now < until {
            true => Err(StoreError::new(
                StoreErrorKind::NotWritten,
                format!("Redis has lost records: no new key for {:?}", until.since(now)),
            )),
            false => Ok(()),
        }
    }

    /// Puts back what all nodes agree on: without its secret an installation knows no key again. Whoever came
    /// after the loss and found none has made another; then the same key is two records, and would run twice.
    async fn restore_facts(&self) -> Result<(), StoreError> {
        let facts = self.facts.lock().clone();
        for (name, value) in facts {
            if put_fact(&self.link, &name, &value).await? != value {
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

/// The value under `name`; `value` is put there first if there is none.
pub(super) async fn put_fact(link: &Link, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
    let mut both = pipe();
    both.cmd("HSETNX").arg(FACTS).arg(name).arg(value).ignore();
    both.cmd("HGET").arg(FACTS).arg(name);
    let answer = link.ask(Access::Write, link::Ask::All(&both)).await?;
    let (value,) = redis::from_redis_value(answer).map_err(|_| strange(Access::Write))?;
    Ok(value)
}

/// Counts while there are writes.
async fn beat(guard: Weak<Guard>) {
    loop {
        tokio::time::sleep(BEAT).await;
        let Some(guard) = guard.upgrade() else { return };
        if guard.has_written.swap(false, Ordering::Relaxed) && guard.count().await.is_err() {
            // What was lost is found out by the next claim, too.
            guard.note_write();
        }
    }
}

fn random_id() -> String {
    AttemptId::random().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}
