//! [`Live`]: the configuration that counts, and another put in its place while requests come and go.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use parking_lot::{Mutex, RwLock};
use selfsame::Idempotency;
use selfsame::seal::Seal;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::audit::Audit;
use crate::checkpoints::Invitation;
use crate::config::{Config, Overrides};
use crate::contract::ContractPage;
use crate::descriptors::Descriptors;
use crate::room::Room;
use crate::routes::{LiveRoutes, Pages, Protection, Routes};
use crate::store_size::StoreWatch;
use crate::tls::Tls;
use crate::upstream::ConnectionLimits;
use crate::{secret_files, telemetry};

/// Where a configuration was read, and is read again.
#[derive(Default)]
pub(crate) struct Origin {
    pub(crate) path: Option<PathBuf>,
    pub(crate) overrides: Overrides,
}

/// All that follows from a configuration and may change with it.
pub(crate) struct Live {
    origin: Origin,
    idempotency: Idempotency,
    contract: RwLock<Arc<ContractPage>>,
    routes: Vec<Arc<LiveRoutes>>,
    invitation: Option<Invitation>,
    tls: Option<Arc<Tls>>,
    admin_tls: Option<Arc<Tls>>,
    seal: Seal,
    audit: Option<Audit>,
    room: Arc<Room>,
    store_watch: Option<Arc<StoreWatch>>,
    connections: Arc<ConnectionLimits>,
    descriptors: Descriptors,
    /// Locked for as long as one is put in its place.
    served: Mutex<Config>,
}

/// What was made of the first configuration.
pub(crate) struct Rules {
    pub(crate) contract: Arc<ContractPage>,
    pub(crate) routes: Vec<Arc<LiveRoutes>>,
    pub(crate) invitation: Option<Invitation>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) admin_tls: Option<Arc<Tls>>,
    pub(crate) seal: Seal,
    pub(crate) audit: Option<Audit>,
    pub(crate) room: Arc<Room>,
    pub(crate) store_watch: Option<Arc<StoreWatch>>,
    pub(crate) connections: Arc<ConnectionLimits>,
    pub(crate) descriptors: Descriptors,
}

impl Live {
    /// `config` as it came from `origin`, which `rules` were made of.
    pub(crate) fn new(
        config: Config,
        origin: Origin,
        idempotency: Idempotency,
        rules: Rules,
    ) -> Self {
        let Rules {
            contract,
            routes,
            invitation,
            tls,
            admin_tls,
            seal,
            audit,
            room,
            store_watch,
            connections,
            descriptors,
        } = rules;
        let (contract, served) = (RwLock::new(contract), Mutex::new(config));
        Self {
            origin,
            idempotency,
            contract,
            routes,
            invitation,
            tls,
            admin_tls,
            seal,
            audit,
            room,
            store_watch,
            connections,
            descriptors,
            served,
        }
    }

    pub(crate) fn contract(&self) -> Arc<ContractPage> {
        self.contract.read().clone()
    }

    pub(crate) fn shutdown_delay(&self) -> Duration {
        self.served.lock().shutdown_delay
    }

    pub(crate) fn drain_timeout(&self) -> Duration {
        self.served.lock().drain_timeout
    }

    /// Reads the configuration again, and returns how many routes it has. Requests that were begun
    /// end under the one they began under. If it cannot be taken, nothing has changed.
    pub(crate) fn reload(&self) -> Result<usize> {
        if let Some(audit) = &self.audit {
            audit.reopen();
        }
        let reloaded = self.replace();
        telemetry::reloaded(reloaded.is_ok());
        match &reloaded {
            Ok(routes) => tracing::info!(routes, "the configuration was read again, and counts"),
            Err(error) => tracing::error!("the configuration stays as it was: {error:#}"),
        }
        reloaded
    }

    fn replace(&self) -> Result<usize> {
        let mut served = self.served.lock();
        let Some(path) = &self.origin.path else {
            bail!("there is no file to read again: this gateway was started with flags alone");
        };
        let config = Config::load(Some(path), &self.origin.overrides)?;
        let fixed = served.fixed_settings_changed_by(&config);
        if !fixed.is_empty() {
            bail!("{} cannot change while requests are served: restart for that", fixed.join(", "));
        }
        if config.identity() != served.identity() {
            bail!(
                "the scope, tenant source or key source of a route differs, so keys that the store \
                 knows would run again; undo the change, or start once with --new-identity if that \
                 is meant"
            );
        }
        let contract = Arc::new(ContractPage::new(&config));
        let invitation = self.invitation.as_ref();
        let protection =
            Protection::new(&config, &self.idempotency, invitation, &self.connections)?;
        let public = self.tls.as_deref().zip(config.tls.as_ref());
        let admin = self.admin_tls.as_deref().zip(config.admin_tls.as_ref());
        // The last that can fail: nothing was replaced before, and all is from here on.
        Tls::reload(public.into_iter().chain(admin))?;
        self.seal.replace(config.encryption.clone());
        if let Some(audit) = &self.audit {
            audit.show_keys(config.log_keys);
        }
        for routes in &self.routes {
            routes.change(|before| {
                let public = config.contract_page.then(|| contract.clone());
                let pages = Pages { contract: public, status: before.status_page() };
                Routes::new(&config, &protection, pages, Some(before))
            });
        }
        self.connections.set(config.limits.max_upstream_connections);
        self.descriptors.warn_unless_fit(config.limits);
        secret_files::warn(&config, &self.origin);
        self.room.change(self.descriptors.fit(config.limits), &config.trusted_proxies);
        if let Some(watch) = &self.store_watch {
            watch.change(config.store_bytes_max);
        }
        *self.contract.write() = contract;
        let routes = config.routes.len();
        *served = config;
        Ok(routes)
    }
}

/// SIGHUP, which asks for the configuration to be read again, from now on.
pub(crate) fn hangups() -> Result<Signal> {
    Ok(signal(SignalKind::hangup())?)
}

/// Reads the configuration again at each of `hangups`.
pub(crate) async fn follow(live: Arc<Live>, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        // Said in the log.
        let _told = reload(live.clone()).await;
    }
}

/// As [`Live::reload`], beside what else is to be done here: a file is read.
pub(crate) async fn reload(live: Arc<Live>) -> Result<usize> {
    tokio::task::spawn_blocking(move || live.reload()).await?
}
