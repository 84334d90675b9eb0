//! The stores.

mod clock;
#[cfg(feature = "embedded")]
mod embedded;
mod memory;
mod metered;

pub use clock::SystemClock;
#[cfg(feature = "embedded")]
pub use embedded::{EmbeddedOptions, EmbeddedStore, Leases, OpenError};
pub use memory::MemoryStore;
pub(crate) use metered::Metered;
