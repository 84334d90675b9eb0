//! [`RedisStore`]: records in Redis, which any number of machines may share.
//!
//! | connection | carries |
//! |---|---|
//! | eight, sharded by record | calls about one record, of all callers at once |
//! | look | scans: finding, counting, sweeping; facts |
//! | bell | wake-ups for those who wait; it listens |
//!
//! A new key is claimed by one script in one round trip. All changes are decided by core's rules over what was read, or
//! written, and a script puts them in its place if it is still as it was seen; so an answer is recorded in one
//! round trip, too. Time is Redis'.

mod address;
mod bell;
mod changes;
mod claims;
mod guard;
mod inspect;
mod link;
mod options;
mod own;
mod safety;
mod scan;
mod scripts;
mod store;
mod sweep;
mod trouble;
mod value;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use selfsame_core::{RecordId, StoreError, Timestamp};

pub use options::RedisOptions;
pub use trouble::RedisOpenError;

use address::Address;
use bell::RedisBell;
use guard::Guard;
use link::{Ask, Link};
use own::Own;
use scripts::Call;
use sweep::Spot;
use trouble::{Access, Fault};

/// How many connections carry calls about records: Redis reads 16 KiB of each, a dozen calls, and makes all
/// it has read durable at once.
const LINKS: usize = 8;

/// How long a step of a scan may take.
const LOOK_TIME_OUT: Duration = Duration::from_secs(60);

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
    links: [Arc<Link>; LINKS],
    look: Link,
    bell: Arc<RedisBell>,
    guard: Arc<Guard>,
    own: Own,
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
        let client = address.client()?;
        let (place, time_out) = (address.place(), options.time_out);
        if address.is_open_to_others() {
            tracing::warn!(
                "the connection to Redis is not encrypted, and leaves this machine: others can read \
                 answers and the password; use rediss:"
            );
        }
        let look = Link::new(client.clone(), LOOK_TIME_OUT.max(time_out), 0);
        let links: [_; LINKS] = std::array::from_fn(|_| {
            Arc::new(Link::new(client.clone(), time_out, options.wait_replicas))
        });
        safety::check(&links[0], &options, &place).await?;
        let guard = Guard::start(links[LINKS - 1].clone(), &options).await;
        let guard = guard.map_err(|fault| RedisOpenError::Connection {
            place: place.clone(),
            cause: fault.message,
        })?;
        let bell = RedisBell::start(client, links[0].clone(), address.database(), time_out);
        let (bell, swept_to) = (Arc::new(bell), Mutex::default());
        let own = Own::default();
        Ok(Self { links, look, bell, guard, own, options, place, swept_to })
    }

    /// The connection for calls about `id`. Ids are hashes: their last byte spreads them.
    fn link(&self, id: &RecordId) -> &Link {
        &self.links[usize::from(id.as_bytes()[RecordId::LEN - 1]) % LINKS]
    }

    /// Runs a script about `id`.
    async fn call(&self, id: &RecordId, call: Call) -> Result<Value, StoreError> {
        let answer = self.link(id).ask(Access::Write, Ask::Script(&call)).await?;
        if call.wrote(&answer) {
            self.guard.note_write();
        }
        Ok(answer)
    }

    /// The time as `TIME` told it.
    fn time(&self, told: &Value) -> Option<Timestamp> {
        let told: (u64, u64) = redis::from_redis_value_ref(told).ok()?;
        let millis = told.0 * 1000 + told.1 / 1000;
        Some(Timestamp::from_millis(millis + self.options.ahead()))
    }
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
