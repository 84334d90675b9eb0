//! What an installation agrees on: its store, its secret, and what forms a key's identity.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use selfsame::seal::Seal;
use selfsame::stores::{
    EmbeddedHealth, EmbeddedOptions, EmbeddedStore, Leases, MemoryStore, Migrations, NearStore,
    PostgresOptions, PostgresStore, RedisHealth, RedisOptions, RedisStore, SealedStore, SplitStore,
    TieredOptions, TieredStore,
};
use selfsame::{Idempotency, Secret, Spool, Sweeping};
use selfsame_core::{AttemptId, Filter, Find, FullStore};

use crate::audit::{Audit, AuditedStore};
use crate::config::{AuditTo, Config, Database, Lock, RouteSettings, StoreUrl};
use crate::store_size::StoreSize;

/// The name under which the store keeps the identity's check value.
const IDENTITY: &str = "identity";

/// The name under which a store keeps where an unfinished copy into it comes from.
pub(crate) const COPYING: &str = "copying";

/// The name under which a store keeps that it was used.
const FIRST_USE: &str = "first-use";

/// The audit log in the folder of a store.
const AUDIT_FILE: &str = "audit.log";

/// Pause between two passes that remove expired records.
const SWEEP_PAUSE: Duration = Duration::from_secs(30);

/// Whether a changed identity is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewIdentity {
    /// It is: known keys become new ones.
    Accept,
    /// It is a mistake: known keys would run again.
    Refuse,
}

/// A store that was opened, and what goes with it.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn FullStore>,
    /// The audit log, if there is to be one.
    pub(crate) audit: Option<Audit>,
    /// Health of a Redis that has claims.
    pub(crate) redis: Option<RedisHealth>,
    /// Health of the disk that has the records, if it is this machine's.
    pub(crate) disk: Option<EmbeddedHealth>,
    /// Size of a store that knows it.
    pub(crate) size: Option<StoreSize>,
    /// The store, if it is in a folder. It is not kept open by this.
    pub(crate) embedded: Option<Weak<EmbeddedStore>>,
}

/// Opens the configured store, whose records are sealed by `seal`, and the audit log.
pub(crate) async fn open_store(config: &Config, seal: &Seal) -> Result<Opened> {
    let (mut table, mut redis, mut disk, mut size) = (None, None, None, None);
    let mut embedded = None;
    let mut store: Arc<dyn FullStore> = match &config.store {
        StoreUrl::Memory => Arc::new(MemoryStore::new()),
        StoreUrl::File(folder) => {
            let opened = folder.clone();
            // Claims of an earlier process stay leased: the upstream may still be working.
            let mut options = EmbeddedOptions::default().leases(Leases::Keep);
            if let Some(gap_max) = config.clock_gap_max {
                options = options.clock_gap_max(gap_max);
            }
            let open = move || EmbeddedStore::open(&opened, options);
            let store = Arc::new(tokio::task::spawn_blocking(open).await??);
            disk = Some(store.health());
            let (store_of, folder) = (Arc::downgrade(&store), folder.clone());
            size = Some(StoreSize::File { store: store_of.clone(), folder });
            embedded = Some(store_of);
            store
        }
        StoreUrl::Postgres(url) => {
            let options = postgres_options(&config.database);
            let store = Arc::new(PostgresStore::open(url.as_str(), options).await?);
            size = Some(StoreSize::Database(store.clone()));
            table.insert(store).clone()
        }
        StoreUrl::Redis(url) => {
            let store = RedisStore::open(url.as_str(), redis_options(config)).await?;
            redis = Some(store.health());
            Arc::new(store)
        }
    };
    // Below all that is around a store: it has records as they are kept there.
    match (&config.cache, config.lock, &table) {
        (Some(url), Lock::Redis, Some(table)) => {
            let options = redis_options(config);
            let split = SplitStore::open(table.clone(), url.as_str(), options).await?;
            redis = Some(split.health());
            store = Arc::new(split);
        }
        (Some(url), ..) => {
            let options = TieredOptions::default();
            store = Arc::new(TieredStore::open(store, url.as_str(), options).await?);
        }
        (None, ..) => {}
    }
    let audit = match (&config.audit, table) {
        (None, _) => None,
        (Some(AuditTo::File(path)), _) => Some(Audit::to_file(path)?),
        (Some(AuditTo::Store), Some(table)) => Some(Audit::to_table(table)),
        (Some(AuditTo::Store), None) => {
            Some(Audit::to_file(&config.store.folder().join(AUDIT_FILE))?)
        }
    };
    if let Some(audit) = &audit {
        audit.show_keys(config.log_keys);
        store = Arc::new(AuditedStore::new(store, audit.clone()));
    }
    if let Some(bytes_max) = config.near_cache {
        store = Arc::new(NearStore::new(store, bytes_max));
    }
    let store = Arc::new(SealedStore::new(store, seal.clone()));
    Ok(Opened { store, audit, redis, disk, size, embedded })
}

/// How the configured database is opened.
pub(crate) fn postgres_options(database: &Database) -> PostgresOptions {
    let options = PostgresOptions::default().migrations(match database.auto_migrate {
        true => Migrations::AtOpen,
        false => Migrations::Elsewhere,
    });
    match &database.direct_url {
        Some(url) => options.direct_url(url.as_str()),
        None => options,
    }
}

/// The longest time of any route.
pub(crate) fn longest(config: &Config, time: impl Fn(&RouteSettings) -> Duration) -> Duration {
    let of_routes = config.routes.iter().map(|route| &route.settings);
    of_routes.chain([&config.defaults]).map(time).max().unwrap_or_default()
}

/// Options for the configured Redis.
pub(crate) fn redis_options(config: &Config) -> RedisOptions {
    let redis = &config.redis;
    let known_for = |settings: &RouteSettings| match config.lock {
        Lock::Redis => settings.lease,
        Lock::Store => {
            settings.retention.saturating_add(settings.remember).saturating_add(settings.lease)
        }
    };
    let longest = longest(config, known_for);
    let mut options =
        RedisOptions::default().wait_replicas(redis.wait_replicas.unwrap_or(0)).known_for(longest);
    if redis.accept_loss {
        options = options.accept_loss();
    }
    if redis.accept_unverified {
        options = options.accept_unverified();
    }
    options
}

/// Refuses a store into which a copy is not finished, and warns of one that knows no key yet.
async fn check_contents(config: &Config, store: &dyn FullStore) -> Result<()> {
    let place = config.store.shown();
    let source = store.fact_or(COPYING, b"").await?;
    if !source.is_empty() {
        let source = String::from_utf8_lossy(&source).into_owned();
        bail!(
            "a copy from {source} to {place} is not finished, so keys that are still to come would \
             run again; run `selfsame store copy {source} {place}` again, with the same stores"
        );
    }
    let mark = AttemptId::random();
    let is_first = store.fact_or(FIRST_USE, mark.as_bytes()).await? == mark.as_bytes();
    let all = Find::Matching { filter: Filter::default(), after: None };
    if is_first && store.find(&all, 1).await?.is_empty() {
        tracing::warn!(
            store = place,
            "this store is new: no key is known in it, so a retry of earlier work runs again. If you \
             changed the store, or the folder in which the gateway is started, go back, or copy the \
             records with `selfsame store copy`"
        );
    }
    Ok(())
}

/// Idempotency on `store`, with the installation's secret and an identity that was checked.
pub(crate) async fn idempotency(
    config: &Config,
    store: Arc<dyn FullStore>,
    new_identity: NewIdentity,
) -> Result<Idempotency> {
    check_contents(config, &*store).await?;
    let secret = match &config.secret_file {
        Some(path) => secret_in(path)?,
        None => Idempotency::stored_secret(&*store).await?,
    };
    check_identity(config, &*store, &secret, new_identity).await?;
    let spool = config.spool.clone().map(Spool::new);
    let sweeping = Sweeping::every(SWEEP_PAUSE).counted();
    let idempotency = Idempotency::new(store, secret, spool).sweeping(sweeping);
    idempotency.land_spooled().await;
    Ok(idempotency)
}

async fn check_identity(
    config: &Config,
    store: &dyn FullStore,
    secret: &Secret,
    new_identity: NewIdentity,
) -> Result<()> {
    let mine = secret.tag("identity", &[config.identity().as_bytes()]);
    if new_identity == NewIdentity::Accept {
        return Ok(store.set_fact(IDENTITY, &mine).await?);
    }
    if store.fact_or(IDENTITY, &mine).await? != mine {
        bail!(
            "the secret, scope, tenant source or key source differs from what this store was used \
             with, so keys it knows would run again; undo the change, or start once with \
             --new-identity if that is meant"
        );
    }
    Ok(())
}

fn secret_in(path: &Path) -> Result<Secret> {
    let bytes = std::fs::read(path)
        .with_context(|| format!("the secret file {} cannot be read", path.display()))?;
    let bytes = bytes.trim_ascii();
    if bytes.len() < Secret::LEN {
        bail!(
            "the secret file {} holds {} bytes; write at least {} random ones into it",
            path.display(),
            bytes.len(),
            Secret::LEN
        );
    }
    Ok(Secret::from_bytes(bytes))
}
