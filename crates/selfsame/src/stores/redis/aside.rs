//! [`Aside`]: a Redis for what may be lost: values that are read, that take the place of what says less,
//! and wake-ups. One key for each call, and nothing is asked of how it is kept.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::{Value, cmd};
use selfsame_core::{Bell, Fence, RecordId, StoreError};

use super::address::Address;
use super::bell::RedisBell;
use super::link::{Ask, Link};
use super::scripts::{Call, PUT};
use super::strange;
use super::trouble::{Access, Fault, RedisOpenError};
use super::value::millis;

/// How many connections carry the calls.
const LINKS: usize = 2;

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
    links: [Arc<Link>; LINKS],
    time_out: Duration,
    bell: Arc<RedisBell>,
    place: String,
}

impl Aside {
    /// The Redis at `url`, there or not. Each call is over within the time-out.
    pub(in crate::stores) fn new(url: &str, time_out: Duration) -> Result<Self, RedisOpenError> {
        let address = Address::parse(url)?;
        let client = address.client()?;
        if address.is_open_to_others() {
            tracing::warn!(
                "the connection to the cache is not encrypted, and leaves this machine: others can \
                 read answers and the password; use rediss:"
            );
        }
        let links: [_; LINKS] =
            std::array::from_fn(|_| Arc::new(Link::new(client.clone(), time_out)));
        let bell = RedisBell::start(client, links[0].clone(), address.database(), BELL_TIME_OUT);
        Ok(Self { links, time_out, bell: Arc::new(bell), place: address.place() })
    }

    /// Where it is, without its password.
    pub(in crate::stores) fn place(&self) -> &str {
        &self.place
    }

    pub(in crate::stores) fn bell(&self) -> Arc<dyn Bell> {
        self.bell.clone()
    }

    /// The value under `key`, which is about `id`.
    pub(in crate::stores) async fn get(
        &self,
        id: &RecordId,
        key: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut get = cmd("GET");
        get.arg(key);
        match self.ask(id, Access::Read, Ask::Command(&get)).await? {
            Value::BulkString(value) => Ok(Some(value)),
            Value::Nil => Ok(None),
            _ => Err(strange(Access::Read)),
        }
    }

    /// Puts a value under `key`, which is about `id`, unless what is there says more.
    pub(in crate::stores) async fn put(
        &self,
        id: &RecordId,
        key: &str,
        put: Put,
    ) -> Result<(), StoreError> {
        let call = Call::new(&PUT, key)
            .number(put.rank as u64)
            .number(put.fence.number())
            .number(millis(put.lives))
            .arg(put.value);
        match self.ask(id, Access::Write, Ask::Script(&call)).await? {
            Value::Int(_) => Ok(()),
            _ => Err(strange(Access::Write)),
        }
    }

    /// Whether it is there: all connections are made by then.
    pub(in crate::stores) async fn knock(&self, time_out: Duration) -> Result<(), StoreError> {
        let ping = cmd("PING");
        let answers = self.links.iter().map(|link| {
            let ping = Ask::Command(&ping);
            link.ask_within(time_out, Access::Read, ping)
        });
        let _pongs = try_join_all(answers).await.map_err(|fault: Fault| StoreError::from(fault))?;
        Ok(())
    }

    async fn ask(&self, id: &RecordId, access: Access, ask: Ask<'_>) -> Result<Value, Fault> {
        // Ids are hashes: their last byte spreads them.
        let link = &self.links[usize::from(id.as_bytes()[RecordId::LEN - 1]) % LINKS];
        link.ask_within(self.time_out, access, ask).await
    }
}
