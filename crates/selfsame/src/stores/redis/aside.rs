//! [`Aside`]: a Redis for what may be lost: values that are read, that take the place of what says less,
//! and wake-ups. One key for each call, and nothing is asked of how it is kept.

use std::sync::Arc;
use std::time::Duration;

use redis::{Value, cmd};
use selfsame_core::{Bell, Fence, RecordId, StoreError};

use super::address::Address;
use super::bell::RedisBell;
use super::link::Ask;
use super::node::Lane;
use super::options::RedisOptions;
use super::routes::Routes;
use super::safety::Safety;
use super::scripts::{Call, PUT};
use super::strange;
use super::trouble::{Access, Fault, RedisOpenError};
use super::value::millis;

/// How long whoever listens for wake-ups, which nobody waits for, may take to get through.
const BELL_TIME_OUT: Duration = Duration::from_secs(5);

/// How much an entry says: one of a higher rank is not replaced by one of a lower.
///
/// An entry begins with two bytes and a version of its own, its rank, and eight bytes of its fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::stores) enum Rank {
    /// Somebody runs under this fence. A later fence counts.
    Running = 1,
    /// Nobody runs under this fence any more.
    Ended = 2,
    /// It is final, under whichever fence.
    Done = 3,
    /// What was final is not to be known any more.
    Erased = 4,
}

/// A value, and what it may replace.
pub(in crate::stores) struct Put {
    pub(in crate::stores) rank: Rank,
    pub(in crate::stores) fence: Fence,
    /// After how long it goes.
    pub(in crate::stores) lives: Duration,
    pub(in crate::stores) value: Vec<u8>,
}

/// Connections to such a Redis.
pub(in crate::stores) struct Aside {
    routes: Routes,
    bell: Arc<RedisBell>,
    place: String,
}

impl Aside {
    /// The Redis at `url`, there or not. Each call is over within the time-out.
    pub(in crate::stores) fn new(url: &str, time_out: Duration) -> Result<Self, RedisOpenError> {
        let address = Address::parse(url)?;
        if address.is_open_to_others() {
            tracing::warn!(
                "the connection to the cache is not encrypted, and leaves this machine: others can \
                 read answers and the password; use rediss:"
            );
        }
        let options = RedisOptions::default().time_out(time_out);
        let routes = Routes::new(&address, &options, Safety::unasked())?;
        let (source, link) = routes.bell();
        let bell = RedisBell::start(source, link, address.database(), BELL_TIME_OUT);
        Ok(Self { routes, bell: Arc::new(bell), place: address.place() })
    }

    /// Where it is, without its password.
    pub(in crate::stores) fn place(&self) -> &str {
        &self.place
    }

    pub(in crate::stores) fn bell(&self) -> Arc<dyn Bell> {
        self.bell.clone()
    }

    /// The value about `id` in this family.
    pub(in crate::stores) async fn get(
        &self,
        family: &str,
        id: &RecordId,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut get = cmd("GET");
        get.arg(self.key(family, id));
        match self.ask(id, Access::Read, Ask::Command(&get)).await? {
            Value::BulkString(value) => Ok(Some(value)),
            Value::Nil => Ok(None),
            _ => Err(strange(Access::Read)),
        }
    }

    /// Puts a value about `id` into this family, unless what is there says more.
    pub(in crate::stores) async fn put(
        &self,
        family: &str,
        id: &RecordId,
        put: Put,
    ) -> Result<(), StoreError> {
        let call = Call::new(&PUT, &self.key(family, id))
            .number(put.rank as u64)
            .number(put.fence.number())
            .number(millis(put.lives))
            .arg(put.value);
        match self.ask(id, Access::Write, Ask::Script(&Arc::new(call))).await? {
            Value::Int(_) => Ok(()),
            _ => Err(strange(Access::Write)),
        }
    }

    /// Whether it is there: all connections are made by then, for which there is more time than for a call.
    pub(in crate::stores) async fn knock(&self, time_out: Duration) -> Result<(), StoreError> {
        Ok(self.routes.knock(time_out).await?)
    }

    fn key(&self, family: &str, id: &RecordId) -> String {
        self.routes.buckets.beside(self.routes.buckets.of(id), &format!("{family}:{id}"))
    }

    async fn ask(&self, id: &RecordId, access: Access, ask: Ask<'_>) -> Result<Value, Fault> {
        self.routes.ask_soon(self.routes.buckets.of(id), Lane::of(id), access, ask).await
    }
}
