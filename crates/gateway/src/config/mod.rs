//! The configuration: [`Config::load`] reads a file and flags, and reports every mistake at once.
//!
//! | file | what it holds |
//! |---|---|
//! | `file` | what was written: tables, read name by name, each value with its position |
//! | `names` | every name there is, and the nearest right one for those there are not |
//! | `values`, `network`, `tls`, `jwt`, `forward_auth`, `encryption`, `limits`, `words`, `hosts`, `routes` | what a value may look like |
//! | `settings`, `checked` | what is allowed, and what fits together |
//! | `schema` | the same for editors and other programs, found out by asking |
//! | `identity` | what forms a key's identity |
//! | `mistakes` | what is said about everything else |

mod audit;
mod checked;
mod encryption;
mod file;
mod forward_auth;
mod hosts;
mod identity;
mod jwt;
mod limits;
mod mistakes;
mod names;
mod network;
mod pattern;
mod routes;
mod schema;
mod settings;
mod shown;
mod statuses;
mod tenants;
#[cfg(test)]
mod tests;
mod tls;
mod values;
mod words;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use selfsame::Problem;
use selfsame::seal::Keyring;

pub use audit::AuditTo;
pub use forward_auth::ForwardAuth;
pub use hosts::Host;
pub use jwt::Jwt;
pub use limits::Limits;
pub use mistakes::Mistakes;
pub use network::{PostgresUrl, Protocol, PublicUrl, RedisUrl, StoreUrl, Upstream};
pub use routes::Route;
pub use schema::schema;
pub use settings::{RouteSettings, TenantSource};
pub use tls::{ClientAuth, Tls, UpstreamTls};

use file::Source;

/// A configuration that was checked: nothing is missing, and everything fits together.
///
/// Relative paths count from the working directory, in a file as in a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// How clients connect there, if not in the clear.
    pub tls: Option<Tls>,
    /// Where the work is done.
    pub upstream: Upstream,
    /// How upstreams are known that are spoken to over TLS.
    pub upstream_tls: UpstreamTls,
    /// How long a connection to the upstream may take to come about.
    pub connect_timeout: Duration,
    /// Time for which requests are still taken after a shutdown was announced.
    pub shutdown_delay: Duration,
    /// How long running work may take to end at shutdown.
    pub drain_timeout: Duration,
    /// The proxies whose headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Passes on headers of clients that have `_` in their names.
    pub underscores_in_headers: bool,
    /// Treats slashes side by side as one where routes are matched.
    pub merge_slashes: bool,
    /// The file with the installation's secret; without one, the store keeps it.
    pub secret_file: Option<PathBuf>,
    /// Whether logs show keys as they are.
    pub log_keys: bool,
    /// Where clients know this service, if that was said.
    pub public_url: Option<PublicUrl>,
    /// Whether clients find the contract page under its path, or whatever the upstream has there.
    pub contract_page: bool,
    /// Whether clients may ask what became of a key of theirs.
    pub status: bool,
    /// Where records are kept.
    pub store: StoreUrl,
    /// What else is to be known of it, where it is a database.
    pub database: Database,
    /// The same, where it is a Redis.
    pub redis: Redis,
    /// The Redis before it, if there is one.
    pub cache: Option<RedisUrl>,
    /// Where claims are.
    pub lock: Lock,
    /// The folder for answers that could not be recorded; none for a store in memory, which does
    /// not outlive them.
    pub spool: Option<PathBuf>,
    /// `max_store_bytes`: limit of the bytes that the store takes.
    pub store_bytes_max: StoreLimit,
    /// How much memory finished records may take that were asked for lately, where the store is asked
    /// over a network.
    pub near_cache: Option<usize>,
    /// `max_clock_gap`: longest gap between two boots of the machine that a store in a folder
    /// believes.
    pub clock_gap_max: Option<Duration>,
    /// Time in which all records of a store in a folder are read, over and over, if they are.
    pub verify_every: Option<Duration>,
    /// Where it is noted what happened to keys, if it is.
    pub audit: Option<AuditTo>,
    /// The keys that records are sealed with, if they are.
    pub encryption: Option<Keyring>,
    /// Where operators connect.
    pub admin: Admin,
    /// Encryption of their connections; none: in the clear.
    pub admin_tls: Option<Tls>,
    /// Whose tokens are believed, if routes tell their tenants by them.
    pub jwt: Option<Jwt>,
    /// Who is asked whose requests they are, if routes tell their tenants so.
    pub forward_auth: Option<ForwardAuth>,
    /// Where upstreams save how far they have come, if they may.
    pub checkpoints: Option<Checkpoints>,
    /// How much clients may take, and how long for it.
    pub limits: Limits,
    /// How requests are treated that no route takes.
    pub defaults: RouteSettings,
    /// How requests of certain paths are treated. No two routes take the same requests.
    pub routes: Vec<Route>,
}

/// How a database is used that records are kept in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// Where it is, past the pooler that the store's address leads to.
    pub direct_url: Option<PostgresUrl>,
    /// Whether a gateway that starts brings its schema up to date.
    pub auto_migrate: bool,
}

/// What is asked of a Redis that records are kept in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redis {
    /// Whether it may lose records.
    pub accept_loss: bool,
    /// Whether it need not tell that it keeps them.
    pub accept_unverified: bool,
    /// How many replicas must have a claim or an answer before it counts.
    pub wait_replicas: Option<u32>,
}

/// Where claims are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Where the answers are.
    Store,
    /// In the Redis before it.
    Redis,
}

/// `max_store_bytes`: limit of the bytes that the store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreLimit {
    /// No limit.
    Off,
    /// These many bytes.
    Bytes(u64),
    /// The smaller of 64 GiB and 90 % of what the store could take on its disk.
    Disk,
}

/// Where operators connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// On loopback, or with a token.
    pub listen: SocketAddr,
    /// The file with the token; without one, a token is made beside the data.
    pub token_file: Option<PathBuf>,
}

/// Where upstreams save how far they have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoints {
    /// Where they connect.
    pub listen: SocketAddr,
    /// How they are told to get there; without it, by the address that is listened on.
    pub url: Option<PublicUrl>,
}

/// What flags and the environment say, which goes before the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--upstream`: `upstream`.
    pub upstream: Option<String>,
    /// `--listen`: `listen`.
    pub listen: Option<String>,
    /// `--store`: `url` of `[store]`.
    pub store: Option<String>,
    /// `--store-direct`: `direct_url` of `[store]`.
    pub store_direct: Option<String>,
    /// `--store-cache`: `cache_url` of `[store]`.
    pub store_cache: Option<String>,
    /// `--admin`: `listen` of `[admin]`.
    pub admin: Option<String>,
    /// `--admin-token-file`: `token_file` of `[admin]`.
    pub admin_token_file: Option<String>,
    /// `--secret-file`: `secret_file`.
    pub secret_file: Option<String>,
}

impl Config {
    /// Reads the file at `path`, if any, and `overrides` before it.
    ///
    /// # Errors
    /// All mistakes of both, each with its place and what a right value looks like. A value in
    /// the file is read even where a flag goes before it.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Self, Mistakes> {
        let (source, mistakes) = path.map(Source::read).unwrap_or_default();
        checked::check(&source, overrides, mistakes)
    }

    /// The settings that stay as they are while a gateway serves, of those in which `other` differs.
    pub fn fixed_settings_changed_by(&self, other: &Self) -> Vec<&'static str> {
        // All are named, so that a new one is put on one of the two sides.
        let Self {
            listen,
            tls,
            store,
            database,
            redis,
            cache,
            lock,
            spool,
            near_cache,
            clock_gap_max,
            verify_every,
            audit,
            admin,
            admin_tls,
            checkpoints,
            secret_file,
            upstream: _,
            upstream_tls: _,
            encryption: _,
            connect_timeout: _,
            drain_timeout: _,
            shutdown_delay: _,
            trusted_proxies: _,
            underscores_in_headers: _,
            merge_slashes: _,
            log_keys: _,
            public_url: _,
            contract_page: _,
            jwt: _,
            forward_auth: _,
            limits: _,
            store_bytes_max: _,
            status: _,
            defaults: _,
            routes: _,
        } = self;
        let changed = [
            ("listen", *listen != other.listen),
            ("whether there is a [tls]", tls.is_some() != other.tls.is_some()),
            ("store.url", *store != other.store),
            ("store.direct_url or store.auto_migrate", *database != other.database),
            ("what is asked of the Redis in [store]", *redis != other.redis),
            ("store.cache_url", *cache != other.cache),
            ("store.lock", *lock != other.lock),
            ("store.spool", *spool != other.spool),
            ("store.near_cache", *near_cache != other.near_cache),
            ("store.max_clock_gap", *clock_gap_max != other.clock_gap_max),
            ("store.verify_every", *verify_every != other.verify_every),
            ("[audit]", *audit != other.audit),
            ("[admin]", *admin != other.admin),
            ("whether there is an [admin_tls]", admin_tls.is_some() != other.admin_tls.is_some()),
            ("[checkpoints]", *checkpoints != other.checkpoints),
            ("secret_file", *secret_file != other.secret_file),
        ];
        changed.into_iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| name).collect()
    }

    /// Whether an upstream, or another service behind the gateway, is spoken to over TLS.
    pub fn has_encrypted_upstream(&self) -> bool {
        let of_routes = self.routes.iter().filter_map(|route| route.upstream.as_ref());
        let asked = self.forward_auth.as_ref().map(|auth| &auth.service);
        of_routes.chain([&self.upstream]).chain(asked).any(|upstream| upstream.is_encrypted)
    }

    /// Warns of an admin listener whose token goes over the network in the clear.
    pub fn admin_warning(&self) -> Option<String> {
        let listen = self.admin.listen;
        let is_safe = listen.ip().is_loopback() || self.admin_tls.is_some();
        let text = "can be reached from other machines without TLS, so the admin token can be read on its \
                    way; add [admin_tls], or listen on 127.0.0.1";
        (!is_safe).then(|| format!("admin.listen: {listen} {text}"))
    }

    /// The shortest time after which abandoned requests are run again, if any are.
    pub fn completes_after(&self) -> Option<Duration> {
        let settings = self.routes.iter().map(|route| &route.settings).chain([&self.defaults]);
        settings.filter_map(|settings| Some(settings.completing.as_ref()?.after)).min()
    }

    /// Where clients read the rules; relative to the service where its address was not said.
    pub fn contract_address(&self) -> String {
        let base = self.public_url.as_ref().map(PublicUrl::as_str).unwrap_or_default();
        format!("{base}{}", Problem::CONTRACT_PAGE)
    }
}
