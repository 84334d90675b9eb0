//! [`TieredStore`]: a durable store with Redis before it, which answers what needs no claim.
//!
//! The durable store decides: a claim is its row before anything runs, and its fence and its clock are the
//! only ones. Redis has copies of what was told, each with an end of its own: answers, and that somebody
//! runs. Whatever it forgets is asked of the durable store; whatever it has too long is dead by the durable
//! store's clock.
//!
//! | after | the cache gets |
//! |---|---|
//! | a claim that runs; a renewal | that somebody runs, while the work begins |
//! | an answer is recorded | the answer, before the client has it |
//! | a run ends without one; a person decides | a mark: nobody runs |
//! | a replay by the durable store | the answer, beside the replay |
//! | an erasure | a mark that refuses whatever comes late |

mod bell;
mod cache;
mod entry;
mod options;
mod owed;
mod store;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use selfsame_core::{Fence, Fingerprint, FullStore, Secret, StoreError};

pub(super) use cache::Cache;
pub use options::TieredOptions;

use super::heard::HeardClock;
use super::redis::{Aside, RedisOpenError};
use super::runs::Runs;
use crate::background;
use bell::TieredBell;

/// How long the cache may know anything. What it does not hear of, such as an erasure while it cannot be
/// reached, is over by then.
const LIFE_MAX: Duration = Duration::from_secs(10 * 60);

/// How often the durable store is asked for its time.
const TIME_EVERY: Duration = Duration::from_secs(5);

/// The fact that tells the entries of one durable store from those of another, and from forgeries.
const SECRET: &str = "cache";

/// A durable store with a cache in Redis before it, which any number of processes may share.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use selfsame::stores::{EmbeddedOptions, EmbeddedStore, TieredOptions, TieredStore};
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let durable = EmbeddedStore::open("./data", EmbeddedOptions::default())?;
/// let cache = "rediss://selfsame:password@redis.internal:6379/0";
/// let store = TieredStore::open(Arc::new(durable), cache, TieredOptions::default()).await?;
/// # Ok(())
/// # }
/// ```
///
/// A cache that forgets, lags or is away costs time, and nothing else: see `docs/TIERED.md`. To have what
/// it keeps sealed, put a [`SealedStore`](super::SealedStore) around this one.
pub struct TieredStore {
    durable: Arc<dyn FullStore>,
    cache: Arc<Cache>,
    runs: Runs<Run>,
    bell: Arc<TieredBell>,
}

/// A run of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    fingerprint: Fingerprint,
    fence: Fence,
    /// Whether the cache may know that it runs.
    is_told: bool,
}

/// Why a cache could not be put before a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TieredOpenError {
    /// The address of the cache is none, or names a file that is of no use.
    #[error(transparent)]
    Address(#[from] RedisOpenError),
    /// The durable store does not work.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TieredStore {
    /// `durable` with the Redis at `cache_url` before it, which need not be there yet.
    pub async fn open(
        durable: Arc<dyn FullStore>,
        cache_url: &str,
        options: TieredOptions,
    ) -> Result<Self, TieredOpenError> {
        let redis = Aside::new(cache_url, options.time_out)?;
        // A store that was made anew does not know what another one has answered.
        let secret = durable.fact_or(SECRET, Secret::random().as_bytes()).await?;
        let secret = Secret::from_bytes(&secret);
        let clock = HeardClock::new(Arc::new(options.clock()));
        clock.ask(&*durable).await?;
        let cache = Cache::new(redis, secret, clock);
        cache.connect().await;
        background::spawn(tell_time(Arc::downgrade(&durable), Arc::downgrade(&cache)));
        let bell = TieredBell { cache: cache.bell(), durable: durable.bell() };
        Ok(Self { durable, cache, runs: Runs::default(), bell: Arc::new(bell) })
    }

    #[cfg(feature = "postgres")]
    pub(super) fn durable(&self) -> &dyn FullStore {
        &*self.durable
    }

    #[cfg(feature = "postgres")]
    pub(super) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }
}

/// Asks for the time now and then, for as long as anybody has a use for it.
async fn tell_time(durable: Weak<dyn FullStore>, cache: Weak<Cache>) {
    loop {
        tokio::time::sleep(TIME_EVERY).await;
        let (Some(durable), Some(cache)) = (durable.upgrade(), cache.upgrade()) else { return };
        // What was told before goes on.
        let _away = cache.clock.ask(&*durable).await;
    }
}

impl fmt::Debug for TieredStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TieredStore({} behind a cache)", self.durable.name())
    }
}

#[cfg(test)]
mod tests;
