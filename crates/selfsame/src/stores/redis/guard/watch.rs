//! Watching: counts what is written, looks at all guards, and tells how things stand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Value, cmd, pipe};
use selfsame_core::{StoreError, Timestamp};
use tokio::time::{Instant, sleep, timeout};

use super::super::buckets::Bucket;
use super::super::node::Lane;
use super::super::scripts::COUNT;
use super::super::trouble::{Access, Fault};
use super::super::{link, time};
use super::{Guard, members, verify};
use crate::{background, telemetry};

/// Pause between counts of writes, while there are any.
const BEAT: Duration = Duration::from_millis(100);
/// Pause between looks at a guard, where there is one, and where there are many.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_AT_MANY: Duration = Duration::from_secs(1);
/// Pause between comparisons of the facts that all processes go by.
const FACTS_EVERY: Duration = Duration::from_secs(2);

/// Milliseconds for which an own count is kept beyond the longest life of a key, as records are.
const KEPT_LONGER_MS: u64 = 60_000;

/// Result of a look at a guard.
pub(super) struct Look {
    /// The last call, and who has answered it.
    pub(super) call: String,
    /// Set where records are missed; then the guard is closed by now.
    pub(super) is_lost: bool,
}

/// Counts while there are writes, looks at all guards from time to time, and verifies them where there are new connections.
pub(super) async fn guards(guard: Weak<Guard>) {
    let Some(wake) = guard.upgrade().map(|guard| guard.wake.clone()) else { return };
    let (mut looked, mut listed) = (Instant::now(), Instant::now());
    loop {
        let _woken = timeout(BEAT, wake.notified()).await;
        let Some(guard) = guard.upgrade() else { return };
        let every = if guard.watched.len() > 1 { LOOK_AT_MANY } else { LOOK };
        let is_look_due = looked.elapsed() >= every;
        if is_look_due {
            looked = Instant::now();
        }
        if listed.elapsed() >= members::EVERY {
            listed = Instant::now();
            let guard = guard.clone();
            background::spawn(async move {
                let _listed = guard.refresh_members().await;
            });
        }
        for bucket in guard.routes.buckets.all() {
            guard.see_to(bucket, is_look_due);
        }
        guard.tell();
    }
}

/// Puts facts back that were lost, and notices where others have put other ones in their place.
pub(super) async fn facts(guard: Weak<Guard>) {
    loop {
        sleep(FACTS_EVERY).await;
        let Some(guard) = guard.upgrade() else { return };
        // It is told by every claim.
        let _restored = guard.restore_facts().await;
    }
}

impl Guard {
    /// Begins what is due in a bucket. A server that is away keeps nobody from counting at the others.
    fn see_to(self: &Arc<Self>, bucket: Bucket, is_look_due: bool) {
        let watched = &self.watched[bucket.at()];
        if !self.is_verified(bucket)
            && self.is_started.load(Ordering::Relaxed)
            && begin(&watched.is_verifying)
        {
            let weak = Arc::downgrade(self);
            background::spawn(async move {
                verify::run(weak.clone(), bucket).await;
                if let Some(guard) = weak.upgrade() {
                    guard.watched[bucket.at()].is_verifying.store(false, Ordering::Relaxed);
                }
            });
        }
        if is_look_due && begin(&watched.is_looking) {
            let guard = self.clone();
            background::spawn(async move {
                // What was lost is found out by the next claim, too.
                let _looked = guard.look(bucket).await;
                guard.watched[bucket.at()].is_looking.store(false, Ordering::Relaxed);
            });
        }
        if watched.has_written.load(Ordering::Relaxed)
            && self.is_verified(bucket)
            && begin(&watched.is_counting)
        {
            let guard = self.clone();
            background::spawn(async move {
                let watched = &guard.watched[bucket.at()];
                watched.has_written.store(false, Ordering::Relaxed);
                if guard.count(bucket).await.is_err() {
                    watched.has_written.store(true, Ordering::Relaxed);
                }
                watched.is_counting.store(false, Ordering::Relaxed);
            });
        }
    }

    /// Counts what was written since the last time. A count at another server tells nothing of what was written before.
    pub(super) async fn count(&self, bucket: Bucket) -> Result<(), StoreError> {
        let path = self.watched[bucket.at()].state.lock().verified;
        let recent = &self.watched[bucket.at()].recent;
        recent.lock().begin_count();
        let counted = self.count_at(bucket).await;
        let is_same = path.is_some() && path == self.routes.path(bucket);
        match counted {
            Ok(()) if is_same => recent.lock().end_count(),
            _ => recent.lock().fail_count(),
        }
        counted?;
        match is_same {
            true => Ok(()),
            false => Err(Fault::not_written("another server may have counted").into()),
        }
    }

    async fn count_at(&self, bucket: Bucket) -> Result<(), StoreError> {
        let watched = &self.watched[bucket.at()];
        let known = watched.state.lock().known.clone();
        let count = self
            .compare(&COUNT, bucket, &known)
            .number(self.window_ms.load(Ordering::Relaxed))
            .number(self.longest_ms().saturating_add(KEPT_LONGER_MS));
        let (count, access) = (Arc::new(count), Access::Write);
        let ask = link::Ask::Script(&count);
        let counted = self.routes.ask(bucket, Lane::Count, access, ask).await?;
        if counted == Value::Int(0) {
            return self.find_loss(bucket).await;
        }
        let counted = redis::from_redis_value(counted);
        let (beats, own, own_until): (u64, u64, u64) =
            counted.map_err(|_| Fault::strange(Access::Write))?;
        let mut state = watched.state.lock();
        if state.known.id == known.id {
            state.known.beats = state.known.beats.max(beats);
            // Unless something was found to be missed since.
            if state.known.own == known.own {
                (state.known.own, state.known.own_until) = (own, own_until);
            }
        }
        Ok(())
    }

    /// Remembers what others have counted, so that this process misses it, too. Where replicas are waited for, that is for who has
    /// counted it: others cannot tell whether those have it.
    pub(super) fn learn(&self, bucket: Bucket, id: &str, beats: u64) {
        if self.options.wait_replicas == 0 {
            let mut state = self.watched[bucket.at()].state.lock();
            if *state.known.id == *id {
                state.known.beats = state.known.beats.max(beats);
            }
        }
    }

    /// Looks at a guard: whether it is as it was, whether it is closed, and whether others call.
    pub(super) async fn look(&self, bucket: Bucket) -> Result<Look, StoreError> {
        let watched = &self.watched[bucket.at()];
        let known = watched.state.lock().known.clone();
        let mut look = cmd("HMGET");
        look.arg(self.key(bucket)).arg(&["id", "beats", "closed_until", "call", "window"]);
        let mut all = pipe();
        // The time last: a count that had ended is found to have ended.
        all.add_command(look).cmd("GET").arg(self.own_key(bucket)).cmd("TIME");
        let answer = self.ask(bucket, link::Ask::All(&all)).await?;
        let (found, now) = read(&answer).ok_or_else(|| Fault::strange(Access::Read))?;
        let now = now + Duration::from_millis(self.options.ahead());
        self.window_ms.fetch_max(found.window_ms, Ordering::Relaxed);
        let is_own_lost = found.own < known.own && now.as_millis() < known.own_until;
        let is_lost = found.id != *known.id || found.beats < known.beats || is_own_lost;
        if is_lost {
            // It is closed by then, or was reopened.
            let _closed = self.find_loss(bucket).await;
            return Ok(Look { call: found.call, is_lost });
        }
        self.note_closed(bucket, now, Timestamp::from_millis(found.closed_until));
        self.learn(bucket, &known.id, found.beats);
        let has_answered = found.call.split(' ').skip(1).any(|name| name == self.members.own);
        if !found.call.is_empty() && !has_answered {
            let confirmed = self.confirm(bucket, "").await?;
            if confirmed.is_none() {
                let _closed = self.find_loss(bucket).await;
                return Ok(Look { call: found.call, is_lost: true });
            }
        }
        Ok(Look { call: found.call, is_lost })
    }

    /// The count of the first bucket, as far as this process knows it; none while it has writes that are not counted.
    pub(in super::super) fn known_count(&self) -> Option<u64> {
        let watched = &self.watched[Bucket::FIRST.at()];
        let is_due = watched.has_written.load(Ordering::SeqCst);
        let is_counted = !is_due && !watched.is_counting.load(Ordering::SeqCst);
        is_counted.then(|| watched.state.lock().known.beats)
    }

    /// Time for which no new key is taken, at least in one bucket.
    fn closed_for(&self) -> Option<Duration> {
        let now = Instant::now();
        let untils = self.watched.iter().filter_map(|watched| watched.state.lock().closed_until);
        untils.max().map(|until| until.duration_since(now)).filter(|left| !left.is_zero())
    }

    fn tell(&self) {
        telemetry::redis_closed(self.closed_for().unwrap_or_default());
    }
}

/// A guard as it was read.
struct Found {
    id: String,
    beats: u64,
    closed_until: u64,
    call: String,
    window_ms: u64,
    own: u64,
}

fn read(answer: &Value) -> Option<(Found, Timestamp)> {
    let Value::Array(answers) = answer else { return None };
    let [Value::Array(found), own, told] = &answers[..] else { return None };
    let [id, beats, closed_until, call, window] = &found[..] else { return None };
    let text = |value: &Value| -> Option<String> {
        let text: Option<String> = redis::from_redis_value_ref(value).ok()?;
        Some(text.unwrap_or_default())
    };
    // Redis' scripts may write large numbers as fractions.
    let number = |value: &Value| -> Option<u64> {
        let number: Option<f64> = redis::from_redis_value_ref(value).ok()?;
        Some(number.unwrap_or_default() as u64)
    };
    let found = Found {
        id: text(id)?,
        beats: number(beats)?,
        closed_until: number(closed_until)?,
        call: text(call)?,
        window_ms: number(window)?,
        own: number(own)?,
    };
    Some((found, time(told)?))
}

/// Whether something is begun that is not under way.
fn begin(is_under_way: &AtomicBool) -> bool {
    !is_under_way.swap(true, Ordering::Relaxed)
}

/// Health of a Redis store.
#[derive(Clone)]
pub struct RedisHealth(pub(in super::super) Weak<Guard>);

impl RedisHealth {
    /// For how long no new key is taken, because records were lost; none where all is well.
    pub fn closed_for(&self) -> Option<Duration> {
        self.0.upgrade()?.closed_for()
    }

    /// Closes the store, see [`RedisStore::close`](super::super::RedisStore::close).
    pub async fn close(&self) {
        if let Some(guard) = self.0.upgrade() {
            guard.leave().await;
        }
    }
}

impl std::fmt::Debug for RedisHealth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RedisHealth({:?})", self.closed_for())
    }
}
