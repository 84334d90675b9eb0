//! [`RedisStore`]: records in Redis, which any number of machines may share.
//!
//! | connection | carries |
//! |---|---|
//! | two to eight to each master, by how much there is to do | calls about one record, of all callers at once |
//! | one to each master | scans: finding, counting, sweeping; facts |
//! | bell | wake-ups for those who wait; it listens |
//! | guide, in a cluster | who has what, and wake-ups that are sent |
//!
//! A new key is claimed in one round trip: by a script or, where that cannot be split up, by plain commands in its place
//! (`at_once`). All changes are decided by core's rules over what was read, or
//! written, and a script puts them in its place if it is still as it was seen; so an answer is recorded in one
//! round trip, too. Time is Redis'.

mod address;
mod aside;
mod at_once;
mod bell;
mod buckets;
mod changes;
mod claims;
mod cluster;
mod gather;
mod guard;
mod inspect;
mod link;
mod load;
#[cfg(feature = "postgres")]
mod locks;
mod node;
mod options;
mod own;
mod routes;
mod safety;
mod scan;
mod scripts;
mod sentinel;
mod source;
mod store;
mod sweep;
mod transfer;
mod trouble;
mod value;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use selfsame_core::{Record, RecordId, StoreError, Timestamp};

pub(super) use aside::{Aside, Put, Rank};
pub use guard::RedisHealth;
pub use options::RedisOptions;
pub use trouble::RedisOpenError;

use address::Address;
use at_once::AtOnce;
use bell::RedisBell;
use guard::Guard;
use link::Ask;
use node::Lane;
use own::Own;
use routes::Routes;
use scripts::Call;
use sweep::Spot;
use trouble::{Access, Fault};

use super::runs::Runs;

/// Records in Redis, which any number of processes may share.
///
/// ```no_run
/// use selfsame::stores::{RedisOptions, RedisStore};
///
/// # async fn open() -> Result<(), selfsame::stores::RedisOpenError> {
/// let url = "rediss://selfsame:password@redis.internal:6379/0";
/// let store = RedisStore::open(url, RedisOptions::default()).await?;
/// # Ok(())
/// # }
/// ```
///
/// It keeps what Redis keeps: see `docs/REDIS.md` for what can be lost. Leases outlive the process that
/// took them: the work of another one may still be going on.
pub struct RedisStore {
    routes: Arc<Routes>,
    bell: Arc<RedisBell>,
    guard: Arc<Guard>,
    own: Own,
    /// Records of claims that are not as they were claimed any more, to be put back where they are lost.
    runs: Runs<Record>,
    at_once: AtOnce,
    options: RedisOptions,
    place: String,
    swept_to: Mutex<Spot>,
}

impl RedisStore {
    /// Whether `url` can be the address of a server, there or not. No file is read.
    pub fn check_address(url: &str) -> Result<(), RedisOpenError> {
        Address::parse(url).map(drop)
    }

    /// Opens the store at `url`.
    pub async fn open(url: &str, options: RedisOptions) -> Result<Self, RedisOpenError> {
        let address = Address::parse(url)?;
        let place = address.place();
        if address.is_open_to_others() {
            tracing::warn!(
                "the connection to Redis is not encrypted, and leaves this machine: others can read \
                 answers and the password; use rediss:"
            );
        }
        let routes = Arc::new(Routes::open(&address, &options).await?);
        let guard = Guard::start(routes.clone(), &options).await;
        let guard = guard.map_err(|fault| RedisOpenError::Connection {
            place: place.clone(),
            cause: fault.message,
        })?;
        let (source, link) = routes.bell();
        let bell = RedisBell::start(source, link, address.database(), options.time_out);
        let (bell, swept_to) = (Arc::new(bell), Mutex::default());
        let (own, runs) = (Own::default(), Runs::default());
        let at_once = AtOnce::new(&routes, &options);
        Ok(Self { routes, bell, guard, own, runs, at_once, options, place, swept_to })
    }

    /// Takes new keys again where a loss of records keeps them from being taken, in all of the Redis at `url` and for all
    /// processes, and tells how many parts of it were closed. For an operator who knows that no lost key is
    /// asked for again, or takes it upon himself.
    pub async fn reopen(url: &str, options: RedisOptions) -> Result<u64, RedisOpenError> {
        let address = Address::parse(url)?;
        let routes = Routes::open(&address, &options).await?;
        let reopened = guard::reopen_all(&routes, options.ahead()).await;
        reopened.map_err(|fault| RedisOpenError::Connection {
            place: address.place(),
            cause: fault.message,
        })
    }

    /// Closes the store: it takes no more keys, and other processes need not wait for this one when a server restarts or
    /// another takes over. Call it at the end of the process, when nothing claims any more; answers may still be
    /// recorded. It takes a second at most, also where Redis is away.
    pub async fn close(&self) {
        self.guard.leave().await;
    }

    /// Health of this store.
    pub fn health(&self) -> RedisHealth {
        RedisHealth(Arc::downgrade(&self.guard))
    }

    /// The count by which losses are noticed, as far as this process knows it; none while it has writes that are not counted.
    /// For tests.
    #[doc(hidden)]
    pub fn known_count(&self) -> Option<u64> {
        self.guard.known_count()
    }

    /// Where the record of `id` lies.
    fn key(&self, id: &RecordId) -> String {
        self.routes.buckets.key(id)
    }

    /// What Redis answers about `id`.
    async fn ask(&self, id: &RecordId, access: Access, ask: Ask<'_>) -> Result<Value, Fault> {
        self.ask_over(Lane::of(id), id, access, ask).await
    }

    /// Redis' answer about `id`, over the connections of `lane`.
    async fn ask_over(
        &self,
        lane: Lane,
        id: &RecordId,
        access: Access,
        ask: Ask<'_>,
    ) -> Result<Value, Fault> {
        self.routes.ask(self.routes.buckets.of(id), lane, access, ask).await
    }

    /// Runs a script about `id`, over the connections of `lane`.
    async fn call_over(
        &self,
        lane: Lane,
        id: &RecordId,
        access: Access,
        call: Call,
    ) -> Result<Value, StoreError> {
        let call = Arc::new(call);
        Ok(self.ask_over(lane, id, access, Ask::Script(&call)).await?)
    }

    /// The time as `TIME` told it; tests are ahead of it.
    fn time(&self, told: &Value) -> Option<Timestamp> {
        Some(time(told)? + Duration::from_millis(self.options.ahead()))
    }
}

/// The time as `TIME` told it.
fn time(told: &Value) -> Option<Timestamp> {
    let told: (u64, u64) = redis::from_redis_value_ref(told).ok()?;
    Some(Timestamp::from_millis(told.0 * 1000 + told.1 / 1000))
}

/// An answer that nothing of ours gives.
fn strange(access: Access) -> StoreError {
    Fault::strange(access).into()
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({})", self.place)
    }
}
