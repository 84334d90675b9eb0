//! The stores.

mod clock;
#[cfg(any(feature = "embedded", feature = "postgres", feature = "redis"))]
mod durable;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod ears;
#[cfg(feature = "embedded")]
mod embedded;
mod heard;
mod memory;
mod metered;
mod near;
mod packed;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod runs;
mod sealed;
mod shared_bodies;
#[cfg(all(feature = "postgres", feature = "redis"))]
mod split;
#[cfg(feature = "redis")]
mod tiered;
#[cfg(any(feature = "embedded", feature = "postgres", feature = "redis"))]
mod transfer;

use std::any::Any;
use std::sync::Arc;

use selfsame_core::{FullStore, StoreError, StoreErrorKind};

pub use clock::SystemClock;
#[cfg(feature = "embedded")]
pub use embedded::{
    Backup, BackupError, DamagedPlace, EmbeddedHealth, EmbeddedOptions, EmbeddedStore, Leases,
    OpenError, RepairError, RepairOptions, Repaired, StoreSummary, VerificationPass, Verified,
    VerifiedPiece,
};
pub use memory::MemoryStore;
pub(crate) use memory::TakenFromId;
pub(crate) use metered::Metered;
pub use near::NearStore;
#[cfg(feature = "postgres")]
pub use postgres::{
    AuditEntry, Migrated, Migrations, PostgresOpenError, PostgresOptions, PostgresStore,
};
#[cfg(feature = "postgres")]
pub(crate) use postgres::{Journal, Known, Note, Standing};
#[cfg(feature = "redis")]
pub use redis::{RedisHealth, RedisOpenError, RedisOptions, RedisStore};
pub use sealed::SealedStore;
#[cfg(all(feature = "postgres", feature = "redis"))]
pub use split::SplitStore;
#[cfg(feature = "redis")]
pub use tiered::{TieredOpenError, TieredOptions, TieredStore};
#[cfg(any(feature = "embedded", feature = "postgres", feature = "redis"))]
pub use transfer::{Imported, JournalRow, Transfer};

use crate::seal::Seal;

/// The store with what seals its records: what was sealed by others is never taken for plain.
pub(crate) fn sealed(store: Arc<dyn FullStore>) -> SealedStore {
    let sealed = (&*store as &dyn Any).downcast_ref().cloned();
    sealed.unwrap_or_else(|| SealedStore::new(store, Seal::none()))
}

/// The error of a claim of which something was written before: whoever asked takes it back.
pub(crate) fn may_have_landed(error: &StoreError) -> StoreError {
    StoreError::new(StoreErrorKind::MayHaveLanded, error.to_string())
}

/// Only PostgreSQL has one.
#[cfg(not(feature = "postgres"))]
#[derive(Clone)]
pub(crate) enum Journal {}

/// The journal of this store, if it has one.
#[cfg(feature = "postgres")]
pub(crate) fn journal_of(store: &dyn FullStore) -> Option<Journal> {
    let store = store as &dyn Any;
    if let Some(sealed) = store.downcast_ref::<SealedStore>() {
        return Some(journal_of(sealed.inner())?.sealed_by(sealed.seal()));
    }
    if let Some(near) = store.downcast_ref::<NearStore>() {
        return journal_of(near.inner());
    }
    #[cfg(feature = "redis")]
    if let Some(tiered) = store.downcast_ref::<TieredStore>() {
        return Some(journal_of(tiered.durable())?.before(tiered.cache()));
    }
    store.downcast_ref().map(PostgresStore::journal)
}

#[cfg(not(feature = "postgres"))]
pub(crate) fn journal_of(_: &dyn FullStore) -> Option<Journal> {
    None
}
