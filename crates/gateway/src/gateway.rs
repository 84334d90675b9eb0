//! [`Gateway`]: everything that runs together, from the first bind to the last drain.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use selfsame::Idempotency;
use selfsame::seal::Seal;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

use crate::admin::backup::Backups;
use crate::admin::{self, Admin, Token};
use crate::audit::Audit;
use crate::checkpoints::Checkpoints;
use crate::completer::Completer;
use crate::config::Config;
use crate::contract::ContractPage;
use crate::descriptors::Descriptors;
use crate::installation::{self, NewIdentity, Opened};
use crate::internal_listener::InternalListener;
use crate::live::{self, Live, Origin};
use crate::pace;
use crate::room::Room;
use crate::routes::{LiveRoutes, Pages, Protection, Routes};
use crate::shutdown::Shutdown;
use crate::status::StatusPage;
use crate::store_size::StoreWatch;
use crate::tls::{Alpn, Tls};
use crate::upstream::ConnectionLimits;
use crate::verification::{FoundDamage, Verifier};
use crate::workers::Workers;
use crate::{background, secret_files, server, telemetry};

/// How many connections may wait to be accepted. One more is dropped, and its client tries again
/// only after a second.
const BACKLOG: u32 = 4096;

/// A gateway that is bound and ready to serve.
pub(crate) struct Gateway {
    listener: TcpListener,
    admin_listener: InternalListener,
    admin: Arc<Admin>,
    checkpoints: Option<Checkpoints>,
    workers: Workers,
    room: Arc<Room>,
    idempotency: Idempotency,
    completer: Completer,
    store_watch: Option<Arc<StoreWatch>>,
    verifier: Option<Verifier>,
    audit: Option<Audit>,
    shutdown: Shutdown,
    stop: CancellationToken,
    live: Arc<Live>,
}

impl Gateway {
    /// Binds, opens the store and checks that it is the one this configuration belongs to. That can be
    /// read again from its `origin`.
    pub(crate) async fn open(
        config: Config,
        origin: Origin,
        new_identity: NewIdentity,
        shutdown: Shutdown,
    ) -> Result<Self> {
        let descriptors = Descriptors::raise();
        let stop = CancellationToken::new();
        let listener = bind(config.listen, "--listen")?;
        let admin_listener = bind(config.admin.listen, "--admin")?;
        let checkpoints_listener = match &config.checkpoints {
            Some(settings) => Some((bind(settings.listen, "checkpoints.listen")?, settings)),
            None => None,
        };
        let metrics = telemetry::metrics()?;
        let seal = Seal::none();
        seal.replace(config.encryption.clone());
        let Opened { store, audit, redis, disk, size, embedded } =
            installation::open_store(&config, &seal).await?;
        let idempotency = installation::idempotency(&config, store.clone(), new_identity).await?;
        let (limit, verify_every) = (config.store_bytes_max, config.verify_every);
        let watch = |size| Arc::new(StoreWatch::new(size, limit, idempotency.clone()));
        let store_watch = size.map(watch);
        let limits = descriptors.fit(config.limits);
        let room = Arc::new(Room::new(limits, &config.trusted_proxies, idempotency.clone()));
        let connections_max = descriptors.internal_connections_max();
        let internal = |listener, kind, tls| InternalListener {
            listener,
            kind,
            tls,
            connections_max,
            room: room.clone(),
        };
        let checkpoints = checkpoints_listener
            .map(|(listener, settings)| {
                let listener = internal(listener, pace::Listener::Checkpoints, None);
                Checkpoints::new(listener, settings, &idempotency, store.clone())
            })
            .transpose()?;
        let contract = Arc::new(ContractPage::new(&config));
        let token = Token::open(&config)?;
        let on_loopback = config.admin.listen.ip().is_loopback();
        let pages = Pages {
            contract: config.contract_page.then(|| contract.clone()),
            status: Arc::new(StatusPage::new(store.clone())),
        };
        let invitation = checkpoints.as_ref().map(Checkpoints::invitation);
        let connections = ConnectionLimits::new(config.limits.max_upstream_connections);
        let protection = Protection::new(&config, &idempotency, invitation.as_ref(), &connections)?;
        let routes = || Routes::new(&config, &protection, pages.clone(), None);
        let open_tls = |config: Option<&_>, alpn| {
            config.map(|config| Tls::open(config, alpn)).transpose().map(|tls| tls.map(Arc::new))
        };
        let tls = open_tls(config.tls.as_ref(), Alpn::Http1And2)?;
        let admin_tls = open_tls(config.admin_tls.as_ref(), Alpn::Http1)?;
        let workers = Workers::start(routes, tls.as_ref(), &room, &stop)
            .context("the threads cannot be started")?;
        let completing = Arc::new(LiveRoutes::new(routes()));
        let routes = workers.routes().into_iter().chain([completing.clone()]).collect();
        let rules = live::Rules {
            contract,
            routes,
            invitation,
            tls,
            admin_tls: admin_tls.clone(),
            seal,
            audit: audit.clone(),
            room: room.clone(),
            store_watch: store_watch.clone(),
            connections,
            descriptors,
        };
        // Only now: what keeps a gateway from starting is told alone.
        descriptors.warn_unless_fit(config.limits);
        if let Some(watch) = &store_watch {
            watch.warn_unless_fit();
        }
        if let Some(warning) = config.admin_warning() {
            tracing::warn!("{warning}");
        }
        secret_files::warn(&config, &origin);
        let live = Arc::new(Live::new(config, origin, idempotency.clone(), rules));
        let found_damage = Arc::<FoundDamage>::default();
        let verifier = embedded.clone().zip(verify_every);
        let verifier =
            verifier.map(|(store, every)| Verifier::new(store, every, found_damage.clone()));
        let admin = Admin {
            live: live.clone(),
            backups: Backups::new(embedded, stop.clone()),
            found_damage,
            store: store.clone(),
            redis,
            disk,
            keys: idempotency.admin_service(),
            metrics,
            token,
            on_loopback,
            stop: shutdown.announced.clone(),
        };
        let admin = Arc::new(admin);
        let admin_listener = internal(admin_listener, pace::Listener::Admin, admin_tls);
        let completer = Completer {
            store: store.clone(),
            idempotency: idempotency.clone(),
            routes: completing,
            stop: stop.clone(),
        };
        Ok(Self {
            listener,
            admin_listener,
            admin,
            checkpoints,
            workers,
            room,
            idempotency,
            completer,
            store_watch,
            verifier,
            audit,
            shutdown,
            stop,
            live,
        })
    }

    /// Where requests come in, with the port that was really bound.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Where the admin listener is, with the port that was really bound.
    pub(crate) fn admin_address(&self) -> Result<SocketAddr> {
        Ok(self.admin_listener.listener.local_addr()?)
    }

    /// Where upstreams save checkpoints, if they may, with the port that was really bound.
    pub(crate) fn checkpoints_address(&self) -> Result<Option<SocketAddr>> {
        Ok(self.checkpoints.as_ref().map(Checkpoints::address).transpose()?)
    }

    /// Serves until told to stop; then running work ends, within the drain time-out.
    pub(crate) async fn run(mut self) -> Result<()> {
        let hangups = background::spawn(live::follow(self.live.clone(), live::hangups()?));
        let redis = self.admin.redis.clone();
        let admin = background::spawn(admin::serve(self.admin_listener, self.admin));
        let checkpoints =
            self.checkpoints.map(|checkpoints| background::spawn(checkpoints.serve()));
        let completer = background::spawn(self.completer.run());
        if let Some(watch) = self.store_watch {
            background::spawn(watch.run(self.stop.clone()));
        }
        if let Some(verifier) = self.verifier {
            background::spawn(verifier.run(self.stop.clone()));
        }
        let (stop, live, shutdown) = (self.stop.clone(), self.live, self.shutdown);
        // One limit for both: first the connections, then the work whose clients have gone.
        let served = async {
            server::accept(self.listener, &self.workers, &self.room, &self.stop).await;
            self.workers.served().await;
            self.idempotency.drained().await;
        };
        let over = async {
            shutdown.begun(|| live.shutdown_delay()).await;
            stop.cancel();
            tokio::time::sleep(live.drain_timeout()).await;
        };
        tokio::select! {
            () = served => {}
            () = over => tracing::warn!(
                "work was still running when the drain time was over; its keys recover"
            ),
        }
        self.workers.end();
        self.idempotency.spool_rest().await;
        // The admin listener told everyone that we drain.
        let _ended = completer.await;
        if let Some(audit) = self.audit {
            audit.end().await;
        }
        if let Some(redis) = redis {
            redis.close().await;
        }
        admin.abort();
        hangups.abort();
        if let Some(checkpoints) = checkpoints {
            checkpoints.abort();
        }
        Ok(())
    }
}

fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    listen(address)
        .with_context(|| format!("cannot listen on {address}; choose another address with {flag}"))
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restart does not wait for the last connections to be forgotten.
    socket.set_reuseaddr(true)?;
    // Connections have it from here: one whose other end vanished does not stay for ever.
    socket.set_keepalive(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
