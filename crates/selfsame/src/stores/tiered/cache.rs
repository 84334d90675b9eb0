//! [`Cache`]: Redis as a place for what may be forgotten, and left alone while it is away.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use selfsame_core::{Ask, Bell, Claimed, Lease, RecordId, Secret, StoreError};

use super::LIFE_MAX;
use super::entry::{self, Entry, Found, Mark};
use super::owed::Owed;
use crate::background;
use crate::stores::heard::HeardClock;
use crate::stores::redis::{Aside, Put, Rank};
use crate::telemetry::{self, Cached};

/// After how many failures in a row it is away.
const FAILURES_MAX: u32 = 3;
/// How often it is looked for while it is.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a look may take, connections and all.
const LOOK_TIME_OUT: Duration = Duration::from_secs(2);
/// How many entries may be on their way that nobody waits for; one more is not sent.
const SOON_MAX: usize = 1024;
/// How large an entry may be; one more would keep all others on its connection waiting.
const BYTES_MAX: usize = 1024 * 1024;
/// How much longer than anything it is to refuse a mark stays.
const MARGIN: Duration = Duration::from_secs(60);
/// How many marks are sent together.
const TOGETHER_MAX: usize = 64;

/// Entries in Redis. No call fails, and none takes longer than the time-out.
pub(in crate::stores) struct Cache {
    redis: Aside,
    /// What the keys of all entries have in common.
    family: String,
    /// Known to those who use the same durable store.
    secret: Secret,
    pub(super) clock: HeardClock,
    failures: AtomicU32,
    is_away: AtomicBool,
    is_tended: AtomicBool,
    owed: Owed,
    soon: AtomicUsize,
    own: Weak<Self>,
}

impl Cache {
    pub(super) fn new(redis: Aside, secret: Secret, clock: HeardClock) -> Arc<Self> {
        telemetry::cache_up(true);
        let name = secret.tag("cache name", &[]);
        let name: String = name[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Arc::new_cyclic(|own| Self {
            redis,
            family: format!("cache:{name}"),
            secret,
            clock,
            failures: AtomicU32::new(0),
            is_away: AtomicBool::new(false),
            is_tended: AtomicBool::new(false),
            owed: Owed::default(),
            soon: AtomicUsize::new(0),
            own: own.clone(),
        })
    }

    /// Connects to it, if it is there.
    pub(super) async fn connect(&self) {
        if let Err(error) = self.redis.knock(LOOK_TIME_OUT).await {
            self.leave_alone(&error);
        }
    }

    pub(super) fn bell(&self) -> Arc<dyn Bell> {
        self.redis.bell()
    }

    /// What a claim comes to, where the cache knows.
    pub(super) async fn settle(&self, ask: &Ask) -> Option<Claimed> {
        if self.is_away() {
            telemetry::cached(Cached::Away);
            return None;
        }
        let found = match self.redis.get(&self.family, &ask.id).await {
            Ok(found) => found,
            Err(error) => {
                self.failed(&error);
                return None;
            }
        };
        self.failures.store(0, Ordering::Relaxed);
        let entry = match found.map(|value| entry::read(&ask.id, &value, &self.secret)) {
            Some(Ok(Found::Entry(entry))) => Some(entry),
            Some(Ok(Found::Mark)) | None => None,
            Some(Err(cause)) => {
                telemetry::cached(Cached::Error);
                tracing::warn!(
                    record = ask.id.short(),
                    cause,
                    "an entry of the cache is of no use"
                );
                return None;
            }
        };
        // Only now: it must be later than the entry was there.
        let settled =
            entry.zip(self.clock.latest()).and_then(|(entry, now)| entry.settles(ask, now));
        telemetry::cached(if settled.is_some() { Cached::Hit } else { Cached::Miss });
        settled
    }

    /// Puts an entry there, which nobody waits for. Whether it may get there.
    pub(super) fn put_soon(&self, id: RecordId, entry: Entry) -> bool {
        let Some(own) = self.own.upgrade().filter(|cache| !cache.is_away()) else { return false };
        if self.soon.fetch_add(1, Ordering::Relaxed) >= SOON_MAX {
            self.soon.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        background::spawn(async move {
            own.put(&id, &entry).await;
            own.soon.fetch_sub(1, Ordering::Relaxed);
        });
        true
    }

    /// Puts an entry there, and tells whether it is.
    pub(super) async fn put(&self, id: &RecordId, entry: &Entry) -> bool {
        let Some(lives) = self.clock.earliest().map(|now| entry.lives(now)) else { return false };
        let (rank, fence, value) = (entry.rank(), entry.fence(), entry.write(id, &self.secret));
        if self.is_away() || lives.is_zero() || value.len() > BYTES_MAX {
            return false;
        }
        self.send(id, Put { rank, fence, lives, value }).await
    }

    /// The run of `lease` is over: whoever asks is not told that it runs.
    pub(in crate::stores) async fn end(&self, lease: &Lease) {
        self.mark(&lease.id, Mark { rank: Rank::Ended, fence: lease.fence }).await;
    }

    /// Takes an entry away, and leaves a mark that refuses it if it comes late. Where the cache is away, that is
    /// done once it is back.
    pub(super) async fn mark(&self, id: &RecordId, mark: Mark) {
        if self.is_away() || !self.send_mark(id, mark).await {
            self.owed.add(*id, mark);
            self.tend();
        }
    }

    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    async fn send_mark(&self, id: &RecordId, mark: Mark) -> bool {
        let Mark { rank, fence } = mark;
        // Whatever it is to refuse is dead by itself after that.
        let lives = LIFE_MAX + MARGIN;
        self.send(id, Put { rank, fence, lives, value: mark.write(id, &self.secret) }).await
    }

    async fn send(&self, id: &RecordId, put: Put) -> bool {
        match self.redis.put(&self.family, id, put).await {
            Ok(()) => {
                self.failures.store(0, Ordering::Relaxed);
                true
            }
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    fn failed(&self, error: &StoreError) {
        telemetry::cached(Cached::Error);
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX {
            self.leave_alone(error);
        }
    }

    fn leave_alone(&self, error: &StoreError) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            telemetry::cache_up(false);
            tracing::warn!(
                %error,
                cache = self.redis.place(),
                "the cache is away: all is asked of the durable store until it is back"
            );
        }
        self.tend();
    }

    /// Sees to it that the cache is looked for while it is away, and told what it is owed.
    fn tend(&self) {
        if !self.is_tended.swap(true, Ordering::SeqCst) {
            background::spawn(tend(self.own.clone()));
        }
    }

    /// Whether the cache is there and has got what it was owed.
    async fn is_settled(&self) -> bool {
        if self.redis.knock(LOOK_TIME_OUT).await.is_err() {
            return false;
        }
        loop {
            let owed = self.owed.take(TOGETHER_MAX);
            if owed.is_empty() {
                break;
            }
            let told = join_all(owed.iter().map(|(id, mark)| self.send_mark(id, *mark))).await;
            let untold = owed.iter().zip(&told).filter(|(_, is_told)| !**is_told);
            untold.for_each(|((id, mark), _)| self.owed.add(*id, *mark));
            if told.contains(&false) {
                return false;
            }
        }
        // Only now: it may have been told wrongly before.
        self.failures.store(0, Ordering::Relaxed);
        if self.is_away.swap(false, Ordering::Relaxed) {
            telemetry::cache_up(true);
            tracing::info!(cache = self.redis.place(), "the cache is back");
        }
        true
    }
}

async fn tend(cache: Weak<Cache>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(cache) = cache.upgrade() else { return };
        if !cache.is_settled().await {
            continue;
        }
        cache.is_tended.store(false, Ordering::SeqCst);
        // Whoever came in between saw that it was tended.
        if !cache.is_away() && cache.owed.is_empty() || cache.is_tended.swap(true, Ordering::SeqCst)
        {
            return;
        }
    }
}
