//! Stores that are opened beside the gateway, to be looked at or copied.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use selfsame::stores::{
    EmbeddedOptions, EmbeddedStore, Leases, Migrations, PostgresOptions, PostgresStore,
    RedisOptions, RedisStore, Transfer,
};

use crate::config::StoreUrl;

/// The name of our connections: whoever else is called `selfsame` serves.
const NAME: &str = "selfsame-store";

/// Difference of two stores' times that does no harm.
pub(super) const CLOCK_DIFFERENCE_MAX_MS: i64 = 60_000;

/// A store that is open, and where it is.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Transfer>,
    pub(super) place: String,
    /// How far the wall clock is ahead of the store's time, where the store keeps a time of its
    /// own.
    pub(super) clock_offset_ms: i64,
    /// The store, if it is in a folder.
    pub(super) embedded: Option<Arc<EmbeddedStore>>,
}

/// Requirements for a Redis that records are copied to.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct Accepting {
    /// Accept a Redis to copy to that may lose records
    #[arg(long)]
    accept_loss: bool,
    /// Accept a Redis to copy to that does not tell whether it keeps records
    #[arg(long)]
    accept_unverified: bool,
}

impl Opened {
    /// A store that must be there.
    pub(super) async fn existing(url: &StoreUrl) -> Result<Self> {
        let postgres = PostgresOptions::default().migrations(Migrations::Elsewhere);
        let redis = RedisOptions::default().accept_loss().accept_unverified();
        must_have_log(url)?;
        let file = EmbeddedOptions::default().leases(Leases::Keep).leave_kept_time();
        Self::open(url, file, postgres, redis).await
    }

    /// A store that is made where it is missing.
    pub(super) async fn new(url: &StoreUrl, accepting: Accepting) -> Result<Self> {
        let mut redis = RedisOptions::default();
        if accepting.accept_loss {
            redis = redis.accept_loss();
        }
        if accepting.accept_unverified {
            redis = redis.accept_unverified();
        }
        let file = EmbeddedOptions::default().leases(Leases::Keep);
        Self::open(url, file, PostgresOptions::default(), redis).await
    }

    async fn open(
        url: &StoreUrl,
        file: EmbeddedOptions,
        postgres: PostgresOptions,
        redis: RedisOptions,
    ) -> Result<Self> {
        let (place, mut clock_offset_ms, mut embedded) = (url.shown(), 0, None);
        let store: Arc<dyn Transfer> = match url {
            StoreUrl::Memory => {
                bail!("records in memory: end with their process, so nobody else can read them")
            }
            StoreUrl::File(folder) => {
                let store = EmbeddedStore::open(folder, file);
                let store = store.with_context(|| format!("{place} cannot be opened"))?;
                clock_offset_ms = store.clock_offset_ms();
                embedded.insert(Arc::new(store)).clone()
            }
            StoreUrl::Postgres(url) => {
                let store =
                    PostgresStore::open(url.as_str(), postgres.application_name(NAME)).await;
                Arc::new(store.with_context(|| format!("{place} cannot be opened"))?)
            }
            StoreUrl::Redis(url) => {
                let store = RedisStore::open(url.as_str(), redis).await;
                Arc::new(store.with_context(|| format!("{place} cannot be opened"))?)
            }
        };
        Ok(Self { store, place, clock_offset_ms, embedded })
    }

    /// Refuses to copy to a store whose time is ahead: keys would expire early there.
    pub(super) fn must_not_be_behind(&self, to: &Self) -> Result<()> {
        let behind_ms = self.clock_offset_ms.saturating_sub(to.clock_offset_ms);
        if behind_ms > CLOCK_DIFFERENCE_MAX_MS {
            bail!(
                "the time of {} is {} s behind that of {}, so keys would expire early there. If \
                 the wall clock is right, run `selfsame store adopt-clock` for {} before",
                self.place,
                behind_ms / 1000,
                to.place,
                self.place
            );
        }
        Ok(())
    }

    /// How much longer a store in a folder takes no key that it does not know.
    pub(super) fn closed_for(&self) -> Option<Duration> {
        self.embedded.as_ref().and_then(|store| store.health().closed_for())
    }

    /// Refuses to copy a store that takes no unknown key to one that would take it.
    pub(super) fn must_stay_closed_in(&self, to: &StoreUrl) -> Result<()> {
        if let (Some(left), false) = (self.closed_for(), matches!(to, StoreUrl::File(_))) {
            bail!(
                "{} has lost records, and refuses keys that it does not know for {} more, which only \
                 another file: store can go on with. Copy it to one, wait, or see `selfsame store \
                 reopen`",
                self.place,
                humantime::format_duration(Duration::from_secs(left.as_secs().max(1)))
            );
        }
        Ok(())
    }

    /// Refuses a store that others use.
    pub(super) async fn must_be_idle(&self) -> Result<()> {
        match self.store.users().await? {
            None => Ok(()),
            Some(users) => {
                bail!("{} is in use, by {users}: stop them first", self.place)
            }
        }
    }
}

/// Refuses a folder without a store.
pub(super) fn must_have_log(url: &StoreUrl) -> Result<()> {
    match url {
        StoreUrl::File(folder) if !has_log(folder) => {
            bail!("there is no store in {}", url.shown())
        }
        _ => Ok(()),
    }
}

fn has_log(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with("records-"))
}
