//! Set-ups: stores and the servers behind them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use selfsame::stores::{
    EmbeddedOptions, EmbeddedStore, PostgresOptions, PostgresStore, RedisOptions, RedisStore,
    SplitStore, TieredOptions, TieredStore,
};
use selfsame_core::FullStore;

const TIME_OUT: Duration = Duration::from_secs(2);

/// How records are kept.
pub(super) struct SetUp {
    pub(super) name: &'static str,
    /// Of the server.
    pub(super) settings: &'static [&'static str],
    store: Kept,
    /// Whether there is something that a restart can be without.
    pub(super) has_file: bool,
    pub(super) has_replica: bool,
}

/// By which store.
enum Kept {
    Redis(fn(RedisOptions) -> RedisOptions),
    /// In a folder, with Redis before it.
    Folder,
    /// In a database, with Redis before it.
    Database,
    /// The same, with its claims in that Redis.
    Split(fn(RedisOptions) -> RedisOptions),
}

impl SetUp {
    const fn new(name: &'static str, settings: &'static [&'static str], store: Kept) -> Self {
        Self { name, settings, store, has_file: true, has_replica: false }
    }

    /// Whether a second process can open the same store.
    pub(super) fn is_shared(&self) -> bool {
        !matches!(self.store, Kept::Folder)
    }
}

pub(super) const SET_UPS: &[SetUp] = &[
    SetUp {
        has_file: false,
        ..SetUp::new(
            "snapshots only, `accept_loss`",
            &["appendonly no"],
            Kept::Redis(RedisOptions::accept_loss),
        )
    },
    SetUp::new("`appendfsync everysec`", &["appendfsync everysec"], Kept::Redis(|options| options)),
    SetUp::new("`appendfsync always`", &["appendfsync always"], Kept::Redis(|options| options)),
    SetUp {
        has_replica: true,
        ..SetUp::new(
            "the same and `wait_replicas = 1`",
            &["appendfsync always"],
            Kept::Redis(|options| options.wait_replicas(1)),
        )
    },
    SetUp {
        has_file: false,
        ..SetUp::new("`file:` with such a Redis as `cache_url`", &["appendonly no"], Kept::Folder)
    },
    SetUp {
        has_file: false,
        ..SetUp::new("`postgres:` with the same", &["appendonly no"], Kept::Database)
    },
    SetUp {
        has_file: false,
        ..SetUp::new(
            "the same and `lock = \"redis\"`, `accept_loss`",
            &["appendonly no"],
            Kept::Split(RedisOptions::accept_loss),
        )
    },
    SetUp::new(
        "`lock = \"redis\"`, `appendfsync everysec`",
        &["appendfsync everysec"],
        Kept::Split(|options| options),
    ),
    SetUp {
        has_replica: true,
        ..SetUp::new(
            "`lock = \"redis\"`, `appendfsync always`, `wait_replicas = 1`",
            &["appendfsync always"],
            Kept::Split(|options| options.wait_replicas(1)),
        )
    },
];

/// The store of one round, as both processes open it.
#[derive(clap::Args)]
pub(crate) struct Location {
    /// Index of the set-up
    pub(super) set_up: usize,
    pub(super) redis: String,
    pub(super) database: String,
    pub(super) schema: String,
    pub(super) folder: PathBuf,
}

impl Location {
    /// Command-line arguments that parse to this location.
    pub(super) fn args(&self) -> [OsString; 5] {
        [
            self.set_up.to_string().into(),
            self.redis.clone().into(),
            self.database.clone().into(),
            self.schema.clone().into(),
            self.folder.clone().into(),
        ]
    }

    /// Opens the store.
    pub(super) async fn open(&self) -> Result<Arc<dyn FullStore>> {
        let set_up = SET_UPS.get(self.set_up).context("there is no set-up of that index")?;
        let redis = RedisOptions::default().time_out(TIME_OUT);
        let url = &self.redis;
        Ok(match set_up.store {
            Kept::Redis(options) => Arc::new(RedisStore::open(url, options(redis)).await?),
            Kept::Folder => {
                let durable =
                    Arc::new(EmbeddedStore::open(&self.folder, EmbeddedOptions::default())?);
                Arc::new(TieredStore::open(durable, url, TieredOptions::default()).await?)
            }
            Kept::Database => {
                let durable = self.open_database().await?;
                Arc::new(TieredStore::open(durable, url, TieredOptions::default()).await?)
            }
            Kept::Split(options) => {
                let durable = self.open_database().await?;
                Arc::new(SplitStore::open(durable, url, options(redis)).await?)
            }
        })
    }

    async fn open_database(&self) -> Result<Arc<PostgresStore>> {
        let options = PostgresOptions::default().schema(&self.schema);
        Ok(Arc::new(PostgresStore::open(&self.database, options).await?))
    }
}
