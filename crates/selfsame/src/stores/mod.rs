//! The stores.

mod clock;
#[cfg(any(feature = "embedded", feature = "postgres"))]
mod columns;
#[cfg(feature = "embedded")]
mod embedded;
mod memory;
mod metered;
#[cfg(feature = "postgres")]
mod postgres;

pub use clock::SystemClock;
#[cfg(feature = "embedded")]
pub use embedded::{EmbeddedOptions, EmbeddedStore, Leases, OpenError};
pub use memory::MemoryStore;
pub(crate) use metered::Metered;
#[cfg(feature = "postgres")]
pub use postgres::{Migrated, Migrations, PostgresOpenError, PostgresOptions, PostgresStore};
