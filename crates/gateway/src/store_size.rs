//! [`StoreSize`]: how many bytes the store takes, reported to its budget while the gateway serves.

use std::sync::{Arc, Weak};
use std::time::Duration;

use selfsame::Idempotency;
use selfsame::stores::{EmbeddedStore, PostgresStore};
use tokio_util::sync::CancellationToken;

/// Pause between two looks at the size of a store in a folder, which are cheap.
const FILE_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two looks at the size of a database's tables.
const DATABASE_PAUSE: Duration = Duration::from_secs(5);

/// A store that knows its size. A store in a folder is not kept open by this.
pub(crate) enum StoreSize {
    File(Weak<EmbeddedStore>),
    Database(Arc<PostgresStore>),
}

impl StoreSize {
    /// Reports the size until `stop`.
    pub(crate) async fn watch(self, idempotency: Idempotency, stop: CancellationToken) {
        let pause = match &self {
            Self::File(_) => FILE_PAUSE,
            Self::Database(_) => DATABASE_PAUSE,
        };
        loop {
            if let Some(bytes) = self.bytes().await {
                idempotency.store_budget().report(bytes);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn bytes(&self) -> Option<u64> {
        match self {
            Self::File(store) => store.upgrade().map(|store| store.bytes()),
            Self::Database(store) => match store.bytes().await {
                Ok(bytes) => Some(bytes),
                Err(error) => {
                    tracing::debug!(%error, "the size of the store is not known at the moment");
                    None
                }
            },
        }
    }
}
