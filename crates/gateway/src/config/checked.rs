//! What is allowed: a file and flags become a [`Config`], or a list of all their mistakes.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use selfsame::Mode;

use super::audit;
use super::encryption;
use super::file::{Flag, Section, Source};
use super::forward_auth;
use super::hosts::HOST;
use super::jwt;
use super::limits;
use super::mistakes::Mistakes;
use super::names::{
    ADMIN, ADMIN_TLS, AUDIT, CHECKPOINTS, ENCRYPTION, FORWARD_AUTH, IDEMPOTENCY, JWT, LIMITS,
    ROUTE, STORE, TLS, TOP,
};
use super::network::{
    ADDRESS, CACHE_URL, DATABASE_URL, NETWORK, PUBLIC_URL, STORE_URL, UPSTREAM, overlap,
};
use super::routes::{MATCH, Taken};
use super::settings::Draft;
use super::tls;
use super::values::{
    COUNT_OR_OFF, DELAY, DISK_SIZE_OR_OFF, DURATION, DURATION_OR_OFF, Kind, PATH, SIZE_OR_OFF,
    SWITCH, choice,
};
use super::{
    Admin, Checkpoints, Config, Database, ForwardAuth, Jwt, Lock, Overrides, Redis, RedisUrl,
    Route, RouteSettings, StoreLimit, StoreUrl, TenantSource, Upstream,
};

/// How much memory finished records take near a store that is asked over a network, unless set.
const NEAR_CACHE: usize = 32 * 1024 * 1024;
/// Time in which all records of a store in a folder are read.
const VERIFY_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

const NEEDS_PROXIES: &str =
    "anyone can send a header; set trusted_proxies to the proxies that set this one";

const NEEDS_JWT: &str = "nothing says whose tokens are believed; add [jwt] with key_file, algorithms, issuer and audience";
const NEEDS_ENCRYPTION: &str =
    "requests are only kept where they are encrypted; add [encryption] with key_file";
const NEEDS_AUTH: &str = "nothing says who is asked; add [forward_auth] with url";
const NEVER_WAITS: &str = "a request that is only observed waits for nobody, so whose it is cannot be \
                           asked; take another tenant or another mode";
const NEEDS_CLIENTS: &str = "nobody is asked for a certificate; set tls.client_ca";

/// Reads `source`, and `overrides` before it.
pub(super) fn check(
    source: &Source,
    overrides: &Overrides,
    mut mistakes: Mistakes,
) -> Result<Config, Mistakes> {
    let (table, syntax) = source.parse();
    let mut root = Section::new(source, &TOP, Some(table.get_ref()), 0);

    let upstream = root.get_flag("upstream", &UPSTREAM, Flag("--upstream", &overrides.upstream));
    // A file that could not be read may well hold it.
    if upstream.is_none() && mistakes.is_empty() {
        let text = "is missing; write upstream = \"http://127.0.0.1:3000\" or pass --upstream";
        root.missing("upstream", text);
    }
    let listen = root
        .get_flag("listen", &ADDRESS, Flag("--listen", &overrides.listen))
        .unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)));
    check_for_circle(&mut root, upstream.as_ref(), listen);

    let secret_file =
        root.get_flag("secret_file", &PATH, Flag("--secret-file", &overrides.secret_file));
    let mut connect_timeout = Duration::from_secs(5);
    root.set("connect_timeout", &DURATION, &mut connect_timeout);
    let mut shutdown_delay = Duration::ZERO;
    root.set("shutdown_delay", &DELAY, &mut shutdown_delay);
    let mut drain_timeout = Duration::from_secs(30);
    root.set("drain_timeout", &DURATION, &mut drain_timeout);
    let mut log_keys = false;
    root.set("log_keys", &SWITCH, &mut log_keys);
    let public_url = root.get("public_url", &PUBLIC_URL);
    let mut contract_page = true;
    root.set("contract_page", &SWITCH, &mut contract_page);
    let mut status = false;
    root.set("status", &SWITCH, &mut status);
    let mut trusted_proxies = Vec::new();
    root.set_list("trusted_proxies", &NETWORK, &mut trusted_proxies);
    let mut underscores_in_headers = false;
    root.set("underscores_in_headers", &SWITCH, &mut underscores_in_headers);
    let mut merge_slashes = true;
    root.set("merge_slashes", &SWITCH, &mut merge_slashes);

    let tls = tls::read(&mut root, &TLS, &mut mistakes);
    let admin_tls = tls::read(&mut root, &ADMIN_TLS, &mut mistakes);
    let Stored {
        store,
        spool,
        store_bytes_max,
        near_cache,
        clock_gap_max,
        verify_every,
        database,
        redis,
        cache,
        lock,
    } = read_store(&mut root, overrides, secret_file.is_some(), &mut mistakes);
    let audit = audit::read(root.child(&AUDIT), &store, &mut mistakes);
    let encryption = encryption::read(root.child(&ENCRYPTION), &mut mistakes);
    let jwt = jwt::read(root.child(&JWT), &mut mistakes);
    let forward_auth = forward_auth::read(root.child(&FORWARD_AUTH), &mut mistakes);
    let admin = read_admin(&mut root, overrides, listen, &mut mistakes);
    let checkpoints = read_checkpoints(&mut root, listen, &admin, &mut mistakes);
    let around = Around {
        upstream: upstream.as_ref(),
        listen,
        jwt: jwt.as_ref(),
        forward_auth: forward_auth.as_ref(),
        needs_proxies: trusted_proxies.is_empty() && !root.is_wrong("trusted_proxies"),
        needs_clients: tls::asks_nobody(tls.as_ref()) && !root.is_wrong("tls"),
        needs_jwt: !root.child(&JWT).is_written(),
        needs_encryption: !root.child(&ENCRYPTION).is_written(),
        needs_auth: !root.child(&FORWARD_AUTH).is_written(),
    };
    let (defaults, routes) = read_routes(&mut root, &around, &mut mistakes);
    let settings = routes.iter().map(|route| &route.settings).chain([&defaults]);
    let body_bytes_max = settings.map(|settings| settings.request_bytes_max).max();
    let body_bytes_max = body_bytes_max.expect("there are always defaults");
    let limits = limits::read(root.child(&LIMITS), body_bytes_max, &mut mistakes);
    let of_routes = routes.iter().filter_map(|route| route.upstream.as_ref());
    let asked = forward_auth.as_ref().map(|auth| &auth.service);
    let mut behind = of_routes.chain(upstream.as_ref()).chain(asked);
    let is_encrypted = behind.any(|upstream| upstream.is_encrypted);
    let upstream_tls = tls::read_upstream(&mut root, is_encrypted, &mut mistakes);
    root.finish(&mut mistakes);
    mistakes.add_syntax(syntax);

    match upstream {
        Some(upstream) if mistakes.is_empty() => Ok(Config {
            listen,
            tls,
            upstream,
            upstream_tls,
            connect_timeout,
            shutdown_delay,
            drain_timeout,
            trusted_proxies,
            underscores_in_headers,
            merge_slashes,
            secret_file,
            log_keys,
            public_url,
            contract_page,
            status,
            store,
            spool,
            store_bytes_max,
            near_cache,
            clock_gap_max,
            verify_every,
            database,
            redis,
            cache,
            lock,
            encryption,
            audit,
            admin,
            admin_tls,
            jwt,
            forward_auth,
            checkpoints,
            limits,
            defaults,
            routes,
        }),
        _ => Err(mistakes.sorted()),
    }
}

fn check_for_circle(root: &mut Section<'_>, upstream: Option<&Upstream>, listen: SocketAddr) {
    let Some(address) = upstream.and_then(Upstream::address) else { return };
    // Behind 0.0.0.0, only a loopback address is sure to be this machine's own.
    let is_here = address.ip() == listen.ip() || address.ip().is_loopback();
    if is_here && overlap(address, listen) {
        let text = format!("upstream ({address}) is where the gateway itself listens ({listen})");
        root.clash(&["upstream", "listen"], text);
    }
}

/// What `[store]` says.
struct Stored {
    store: StoreUrl,
    spool: Option<PathBuf>,
    store_bytes_max: StoreLimit,
    near_cache: Option<usize>,
    clock_gap_max: Option<Duration>,
    verify_every: Option<Duration>,
    database: Database,
    redis: Redis,
    cache: Option<RedisUrl>,
    lock: Lock,
}

fn read_store(
    root: &mut Section<'_>,
    overrides: &Overrides,
    has_secret_file: bool,
    mistakes: &mut Mistakes,
) -> Stored {
    let mut section = root.child(&STORE);
    let store = section
        .get_flag("url", &STORE_URL, Flag("--store", &overrides.store))
        .unwrap_or(StoreUrl::File("./selfsame-data".into()));
    let spool = section.get("spool", &PATH).or_else(|| match &store {
        StoreUrl::Memory => None,
        StoreUrl::File(_) | StoreUrl::Postgres(_) | StoreUrl::Redis(_) => Some(store.spool()),
    });
    let store_bytes_max = section.get("max_store_bytes", &DISK_SIZE_OR_OFF);
    if matches!(store, StoreUrl::Memory | StoreUrl::Redis(_)) && !section.is_wrong("url") {
        let text = "needs a store in a file: folder or a postgres: database; a Redis has its own maxmemory";
        section.clash(&["max_store_bytes"], text);
    }
    let store_bytes_max = match (&store, store_bytes_max) {
        (StoreUrl::Memory | StoreUrl::Redis(_), _) | (_, Some(None)) => StoreLimit::Off,
        (_, Some(Some(bytes))) => StoreLimit::Bytes(bytes),
        (StoreUrl::File(_), None) => StoreLimit::Disk,
        (StoreUrl::Postgres(_), None) => StoreLimit::Off,
    };
    let near_cache = section.get("near_cache", &SIZE_OR_OFF);
    if matches!(store, StoreUrl::Memory | StoreUrl::File(_)) && !section.is_wrong("url") {
        section.clash(&["near_cache"], "needs a store that is asked over a network");
    }
    let near_cache = match &store {
        StoreUrl::Memory | StoreUrl::File(_) => None,
        StoreUrl::Postgres(_) | StoreUrl::Redis(_) => near_cache.unwrap_or(Some(NEAR_CACHE)),
    };
    let clock_gap_max = section.get("max_clock_gap", &DURATION_OR_OFF);
    if !matches!(store, StoreUrl::File(_)) && !section.is_wrong("url") {
        section.clash(
            &["max_clock_gap"],
            "needs a store in a file: folder; others have a clock of their own",
        );
    }
    let clock_gap_max = clock_gap_max.filter(|gap| !gap.is_zero());
    let verify_every = section.get("verify_every", &DURATION_OR_OFF);
    if !matches!(store, StoreUrl::File(_)) && !section.is_wrong("url") {
        section.clash(&["verify_every"], "needs a store in a file: folder");
    }
    let verify_every = match &store {
        StoreUrl::File(_) => verify_every.unwrap_or(VERIFY_EVERY),
        StoreUrl::Memory | StoreUrl::Postgres(_) | StoreUrl::Redis(_) => Duration::ZERO,
    };
    let verify_every = Some(verify_every).filter(|every| !every.is_zero());
    let direct = Flag("--store-direct", &overrides.store_direct);
    let direct_url = section.get_flag("direct_url", &DATABASE_URL, direct);
    let mut auto_migrate = true;
    section.set("auto_migrate", &SWITCH, &mut auto_migrate);
    if !matches!(store, StoreUrl::Postgres(_)) && !section.is_wrong("url") {
        section.clash(&["direct_url", "auto_migrate"], "needs a store in a postgres: database");
    }
    let mut redis = Redis { accept_loss: false, accept_unverified: false, wait_replicas: None };
    section.set("accept_loss", &SWITCH, &mut redis.accept_loss);
    section.set("accept_unverified", &SWITCH, &mut redis.accept_unverified);
    section.set("wait_replicas", &COUNT_OR_OFF, &mut redis.wait_replicas);
    let mut lock = Lock::Store;
    section.set("lock", &LOCK, &mut lock);
    let is_in_redis = matches!(store, StoreUrl::Redis(_)) || lock == Lock::Redis;
    if !is_in_redis && !section.is_wrong("url") && !section.is_wrong("lock") {
        let names = ["accept_loss", "accept_unverified", "wait_replicas"];
        section.clash(&names, "needs a store in Redis, or lock = \"redis\"");
    }
    if redis.accept_loss && matches!(store, StoreUrl::Redis(_)) && !has_secret_file {
        section.clash(
            &["accept_loss"],
            "needs secret_file: the installation's secret is kept in the store else, and nodes that start before and \
             after it is lost go by different ones, so that every key runs once for each; write at least 32 random \
             bytes into a file that all nodes have",
        );
    }
    let cache = Flag("--store-cache", &overrides.store_cache);
    let cache = section.get_flag("cache_url", &CACHE_URL, cache);
    if matches!(store, StoreUrl::Memory | StoreUrl::Redis(_)) && !section.is_wrong("url") {
        section.clash(&["cache_url"], "needs a store in a postgres: database or a file: folder");
    }
    if lock == Lock::Redis && !section.is_wrong("url") && !section.is_wrong("cache_url") {
        check_lock(&mut section, &store, cache.as_ref());
    }
    section.finish(mistakes);
    let database = Database { direct_url, auto_migrate };
    Stored {
        store,
        spool,
        store_bytes_max,
        near_cache,
        clock_gap_max,
        verify_every,
        database,
        redis,
        cache,
        lock,
    }
}

const LOCK: Kind<Lock> = Kind {
    expected: r#""store" or "redis""#,
    read: |value| choice(value, &[("store", Lock::Store), ("redis", Lock::Redis)]),
};

/// Claims can be in the Redis before a database.
fn check_lock(section: &mut Section<'_>, store: &StoreUrl, cache: Option<&RedisUrl>) {
    let text = match (store, cache) {
        (StoreUrl::Postgres(_), Some(_)) => return,
        (StoreUrl::Postgres(_), None) => "needs cache_url: the Redis that claims are in",
        (StoreUrl::Redis(_), _) => {
            "needs a store in a postgres: database: with this one claims are in Redis already"
        }
        (StoreUrl::Memory | StoreUrl::File(_), _) => {
            "needs a store in a postgres: database: one process needs no lock elsewhere"
        }
    };
    section.clash(&["lock"], text);
}

fn read_admin(
    root: &mut Section<'_>,
    overrides: &Overrides,
    public: SocketAddr,
    mistakes: &mut Mistakes,
) -> Admin {
    let mut section = root.child(&ADMIN);
    let listen = section
        .get_flag("listen", &ADDRESS, Flag("--admin", &overrides.admin))
        .unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)));
    let token_file = section.get_flag(
        "token_file",
        &PATH,
        Flag("--admin-token-file", &overrides.admin_token_file),
    );
    if !listen.ip().is_loopback() && token_file.is_none() {
        let text = format!(
            "{listen} can be reached from other machines; set admin.token_file, or listen on \
             127.0.0.1"
        );
        section.clash(&["listen", "token_file"], text);
    }
    if overlap(public, listen) && !root.is_wrong("listen") && !section.is_wrong("listen") {
        let text = format!("listen ({public}) and admin.listen ({listen}) need different ports");
        match section.blame(&["listen"]) {
            Some(_) => section.clash(&["listen"], text),
            None => root.clash(&["listen"], text),
        }
    }
    section.finish(mistakes);
    Admin { listen, token_file }
}

/// What routes must fit to.
struct Around<'a> {
    upstream: Option<&'a Upstream>,
    listen: SocketAddr,
    jwt: Option<&'a Jwt>,
    forward_auth: Option<&'a ForwardAuth>,
    /// What a tenant source may need and is not there.
    needs_proxies: bool,
    needs_clients: bool,
    needs_jwt: bool,
    /// Whether there is no key to encrypt kept requests with.
    needs_encryption: bool,
    needs_auth: bool,
}

fn read_checkpoints(
    root: &mut Section<'_>,
    public: SocketAddr,
    admin: &Admin,
    mistakes: &mut Mistakes,
) -> Option<Checkpoints> {
    let mut section = root.child(&CHECKPOINTS);
    let listen = section.get("listen", &ADDRESS);
    let url = section.get("url", &PUBLIC_URL);
    match listen {
        None => section.clash(&["url"], "needs checkpoints.listen, the address to listen on"),
        Some(listen) if overlap(listen, public) || overlap(listen, admin.listen) => {
            let text = format!(
                "listen ({public}), admin.listen ({}) and checkpoints.listen ({listen}) need \
                 different ports",
                admin.listen
            );
            section.clash(&["listen"], text);
        }
        Some(listen) if listen.ip().is_unspecified() && url.is_none() => {
            let text = format!(
                "{listen} is no address that upstreams could be told; set checkpoints.url to one \
                 where they reach it"
            );
            section.clash(&["listen", "url"], text);
        }
        Some(_) => {}
    }
    section.finish(mistakes);
    listen.map(|listen| Checkpoints { listen, url })
}

fn read_routes(
    root: &mut Section<'_>,
    around: &Around<'_>,
    mistakes: &mut Mistakes,
) -> (RouteSettings, Vec<Route>) {
    let Around { upstream, listen, jwt, forward_auth, .. } = *around;
    let check_tenant = |section: &mut Section<'_>, draft: &mut Draft| {
        let is_observed = draft.settings.mode == Mode::Observe;
        let missing = match &mut draft.settings.tenant {
            TenantSource::Header(_) => around.needs_proxies.then_some(NEEDS_PROXIES),
            TenantSource::Mtls => around.needs_clients.then_some(NEEDS_CLIENTS),
            TenantSource::Jwt { issuer, .. } => {
                if let Some(jwt) = jwt {
                    issuer.clone_from(&jwt.issuer);
                }
                around.needs_jwt.then_some(NEEDS_JWT)
            }
            TenantSource::ForwardAuth { header } => {
                if let Some(auth) = forward_auth {
                    header.clone_from(&auth.tenant_header);
                }
                if is_observed {
                    section.clash(&["tenant", "mode"], NEVER_WAITS);
                }
                around.needs_auth.then_some(NEEDS_AUTH)
            }
            TenantSource::Authorization
            | TenantSource::Credential(_)
            | TenantSource::Cookie(_)
            | TenantSource::None => None,
        };
        if let Some(text) = missing {
            section.clash(&["tenant"], text);
        }
        if draft.settings.needs_permission {
            if is_observed {
                section.clash(&["replay_needs", "mode"], NEVER_WAITS);
            }
            if around.needs_auth {
                section.clash(&["replay_needs"], NEEDS_AUTH);
            }
            if let Some(text) = forward_auth.and_then(|auth| unseen(&draft.settings.tenant, auth)) {
                section.clash(&["replay_needs", "tenant"], text);
            }
        }
    };
    let check_kept = |section: &mut Section<'_>, draft: &Draft| {
        if draft.keeps_requests() && around.needs_encryption {
            section.clash(&["complete_abandoned"], NEEDS_ENCRYPTION);
        }
    };
    let mut idempotency = root.child(&IDEMPOTENCY);
    let mut defaults = Draft::default().changed_by(&mut idempotency);
    check_tenant(&mut idempotency, &mut defaults);
    check_kept(&mut idempotency, &defaults);

    let mut routes = Vec::new();
    let mut taken = Taken::default();
    for mut section in root.children(&ROUTE) {
        section.inherit(&idempotency);
        let mut draft = defaults.changed_by(&mut section);
        check_tenant(&mut section, &mut draft);
        check_kept(&mut section, &draft);
        if let Some(mut route) = read_route(&mut section, draft) {
            check_for_circle(&mut section, route.upstream.as_ref(), listen);
            route.upstream = route.upstream.filter(|own| Some(own) != upstream);
            // With a wrong host, nobody knows what it takes.
            if !section.is_wrong("host")
                && let Err(text) = taken.add(&route)
            {
                section.clash(&["match", "methods", "host", "upstream"], text);
            }
            routes.push(route);
        }
        section.finish(mistakes);
    }
    idempotency.finish(mistakes);
    (defaults.settled(), routes)
}

/// Complaint about a caller's credential that the service of `[forward_auth]` would have to know, and does not see.
fn unseen(tenant: &TenantSource, auth: &ForwardAuth) -> Option<String> {
    let (TenantSource::Credential(name) | TenantSource::Header(name)) = tenant else { return None };
    (!auth.headers.contains(name)).then(|| {
        format!("the service is not shown {name}, which tells callers apart; add it to forward_auth.headers")
    })
}

fn read_route(section: &mut Section<'_>, draft: Draft) -> Option<Route> {
    let host = section.get("host", &HOST);
    let upstream = section.get("upstream", &UPSTREAM);
    let Some(matched) = section.get("match", &MATCH) else {
        section.missing("match", "is missing; write match = \"POST /v1/charges\"");
        return None;
    };
    let mut settings = draft.settled();
    if !matched.methods.is_empty() {
        section.clash(&["methods"], "match names the methods already; leave them out of one");
        settings.methods = matched.methods;
    }
    Some(Route { host, upstream, pattern: matched.pattern, settings })
}
