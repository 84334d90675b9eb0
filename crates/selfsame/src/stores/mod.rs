//! The stores.

mod clock;
#[cfg(any(feature = "embedded", feature = "postgres", feature = "redis"))]
mod durable;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod ears;
#[cfg(feature = "embedded")]
mod embedded;
mod memory;
mod metered;
mod packed;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

#[cfg(feature = "postgres")]
use std::any::Any;

use selfsame_core::FullStore;

pub use clock::SystemClock;
#[cfg(feature = "embedded")]
pub use embedded::{EmbeddedOptions, EmbeddedStore, Leases, OpenError};
pub use memory::MemoryStore;
pub(crate) use metered::Metered;
#[cfg(feature = "postgres")]
pub(crate) use postgres::{Journal, Known, Note, Standing};
#[cfg(feature = "postgres")]
pub use postgres::{Migrated, Migrations, PostgresOpenError, PostgresOptions, PostgresStore};
#[cfg(feature = "redis")]
pub use redis::{RedisOpenError, RedisOptions, RedisStore};

/// Only PostgreSQL has one.
#[cfg(not(feature = "postgres"))]
#[derive(Clone)]
pub(crate) enum Journal {}

/// The journal of this store, if it has one.
#[cfg(feature = "postgres")]
pub(crate) fn journal_of(store: &dyn FullStore) -> Option<Journal> {
    (store as &dyn Any).downcast_ref().map(PostgresStore::journal)
}

#[cfg(not(feature = "postgres"))]
pub(crate) fn journal_of(_: &dyn FullStore) -> Option<Journal> {
    None
}
