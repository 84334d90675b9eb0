//! Whole files: what loads, and as what.

mod complaints;
mod encryption;
mod tls;

use std::path::Path;

use selfsame::{
    JsonPointer, KeyFormat, KeyMode, KeyRules, Mode, OnConflict, OnStoreError, Origin, Profile,
    ReplayStatus, ScopeKind, ServerErrors, StatusPattern,
};
use selfsame_core::{FingerprintForm, Recover};

use super::names::{
    ADMIN, ADMIN_TLS, AUDIT, CHECKPOINTS, ENCRYPTION, FORWARD_AUTH, IDEMPOTENCY, JWT, LIMITS,
    ROUTE, STORE, TLS, TOP, UPSTREAM_TLS,
};
use super::*;

const DOCUMENTATION: &str = include_str!("../../../../../docs/CONFIGURATION.md");

/// The example of the contract's section 7.
const EXAMPLE: &str = r#"
listen   = "0.0.0.0:8080"
upstream = "http://127.0.0.1:3000"

[store]
url = "file:./selfsame-data"     # memory: · file: · postgres: · redis:
# cache_url = "redis://…"        # with postgres: or file:

[admin]
listen = "127.0.0.1:9090"        # off loopback it refuses to start without token_file

[idempotency]                    # defaults for every route
profile   = "ietf"
key       = "optional"           # "required" | "optional" | "off"
tenant    = "authorization"
recover   = "auto"
retention = "24h"
lease     = "30s"

[[route]]
match = "POST /v1/charges"       # method(s) and path, with {param} and {*rest}
key   = "required"
recover = "hold"
"#;

pub(super) fn load(text: &str) -> Result<Config, Mistakes> {
    load_with(text, &Overrides::default())
}

fn load_with(text: &str, overrides: &Overrides) -> Result<Config, Mistakes> {
    let source = Source::new("f.toml".to_owned(), text.to_owned());
    checked::check(&source, overrides, Mistakes::default())
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

#[test]
fn without_a_file_only_the_upstream_is_needed() {
    let overrides = Overrides { upstream: text("http://127.0.0.1:3000"), ..Overrides::default() };
    let config = Config::load(None, &overrides).expect("valid");
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.tls, None);
    assert_eq!(config.upstream.authority.as_str(), "127.0.0.1:3000");
    assert_eq!(config.connect_timeout, Duration::from_secs(5));
    assert_eq!(config.drain_timeout, Duration::from_secs(30));
    assert_eq!(config.trusted_proxies, []);
    assert_eq!(config.secret_file, None);
    assert!(!config.log_keys);
    assert_eq!(config.public_url, None);
    assert!(config.contract_page && !config.status);
    assert_eq!(config.store, StoreUrl::File("./selfsame-data".into()));
    assert_eq!(config.spool.as_deref(), Some(Path::new("./selfsame-data/spool")));
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:9090");
    assert_eq!(config.admin.token_file, None);
    assert_eq!(config.checkpoints, None);
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.forward_auth, None);
    assert_eq!(config.defaults, RouteSettings::default());
    assert_eq!(config.routes, []);
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let settings = load("upstream = 'http://a'").expect("valid").defaults;
    assert_eq!(settings.mode, Mode::Enforce);
    assert_eq!(settings.profile, Profile::Ietf);
    assert_eq!(settings.key, KeyMode::Optional);
    assert_eq!(settings.key_headers, ["idempotency-key"]);
    assert_eq!(settings.key_pointer, None);
    assert!(!settings.strict);
    assert_eq!(settings.key_rules, KeyRules::default());
    assert_eq!(settings.methods, ["POST", "PATCH"]);
    assert_eq!(settings.tenant, TenantSource::Authorization);
    assert_eq!(settings.scope, ScopeKind::Tenant);
    assert_eq!(settings.fingerprint, FingerprintForm::Canonical);
    assert!(settings.ignore.is_empty());
    assert!(settings.fingerprint_headers.is_empty());
    assert!(!settings.mismatch_hint);
    assert_eq!(settings.recover, Recover::Auto);
    assert_eq!(settings.completing, None);
    assert_eq!(settings.server_errors, ServerErrors::Retry);
    assert_eq!(settings.on_conflict, OnConflict::Reject);
    assert_eq!(settings.wait_max, Duration::from_secs(10));
    assert_eq!(settings.retention, Duration::from_secs(24 * 60 * 60));
    assert_eq!(settings.remember, Duration::ZERO);
    assert_eq!(settings.lease, Duration::from_secs(30));
    assert_eq!(settings.response_timeout, Duration::from_secs(60));
    assert_eq!(settings.run_timeout, Duration::from_secs(15 * 60));
    assert_eq!(settings.request_bytes_max, 1024 * 1024);
    assert_eq!(settings.answer_bytes_max, 1024 * 1024);
    assert!(!settings.stream);
    assert!(!settings.needs_permission);
    assert_eq!(settings.replay_status, ReplayStatus::Same);
    assert!(!settings.replay_set_cookie);
    assert!(settings.replay_also.is_empty() && settings.replay_never.is_empty());
    assert!(settings.expires_header);
    assert!(settings.cors_origins.is_empty());
    assert_eq!(settings.on_store_error, OnStoreError::Reject);
}

#[test]
fn the_contracts_example_loads() {
    let config = load(EXAMPLE).expect("valid");
    assert_eq!(config.listen.to_string(), "0.0.0.0:8080");
    assert_eq!(config.defaults, RouteSettings::default());
    let expected = RouteSettings {
        methods: vec![http::Method::POST],
        key: KeyMode::Required,
        recover: Recover::Hold,
        ..RouteSettings::default()
    };
    let pattern = "/v1/charges".to_owned();
    assert_eq!(config.routes, [Route { host: None, upstream: None, pattern, settings: expected }]);
}

#[test]
fn every_setting_can_be_written() {
    let config = load(
        r#"
        listen = "[::]:80"
        upstream = "http://a:1/"
        connect_timeout = "1s"
        drain_timeout = "2m"
        trusted_proxies = ["10.0.0.0/8", "::1"]
        secret_file = "/s"
        log_keys = true
        shutdown_delay = "3s"
        public_url = "https://api.example.com/"
        contract_page = false
        status = true
        store = { url = "memory:", spool = "/spool" }
        admin = { listen = "0.0.0.0:1", token_file = "/t" }
        checkpoints = { listen = "0.0.0.0:2", url = "http://gateway.internal:2/" }
        [idempotency]
        mode = "observe"
        profile = "stripe"
        key = "required"
        key_headers = ["X-Key", "Y-Key"]
        key_pointer = "/idempotency_key"
        strict = true
        format = "uuidv7"
        min_length = 36
        reject_older_than = "7d"
        methods = ["PUT", "DELETE"]
        tenant = "header:X-Account"
        scope = "endpoint"
        fingerprint = "canonical"
        ignore = ["/sent_at"]
        headers = ["Stripe-Account"]
        mismatch_hint = true
        recover = "resume"
        upstream_idempotent = true
        complete_abandoned = false
        completer_after = "10m"
        completer_attempts = 3
        completer_headers = ["X-Account"]
        server_errors = "keep"
        final_statuses = [500, "4xx"]
        transient_statuses = [409]
        unknown_statuses = [202]
        on_conflict = "wait"
        wait_max = "4s"
        retention = "1m"
        remember = "2d"
        allow_short_retention = true
        lease = "1s"
        response_timeout = "2s"
        run_timeout = "3s"
        max_request_body = 4
        max_response_body = "5KiB"
        max_live_keys = 6
        max_claims = 7
        max_held_keys = "off"
        stream = true
        replay_status = "ok"
        replay_set_cookie = true
        replay_also = ["X-Request-Id"]
        replay_never = ["X-Node"]
        expires_header = false
        cors_origins = ["https://a.example"]
        on_store_error = "bypass"
        "#,
    )
    .expect("valid");
    let seconds = Duration::from_secs;
    let expected = RouteSettings {
        mode: Mode::Observe,
        profile: Profile::Stripe,
        key: KeyMode::Required,
        key_headers: vec!["x-key".parse().expect("a name"), "y-key".parse().expect("a name")],
        key_pointer: Some(JsonPointer::parse("/idempotency_key").expect("a pointer")),
        strict: true,
        key_rules: KeyRules {
            format: KeyFormat::UuidV7,
            len_min: 36,
            age_max: seconds(7 * 24 * 60 * 60),
        },
        methods: vec![http::Method::PUT, http::Method::DELETE],
        tenant: TenantSource::Header("x-account".parse().expect("a name")),
        scope: ScopeKind::Endpoint,
        fingerprint: FingerprintForm::Canonical,
        ignore: vec![JsonPointer::parse("/sent_at").expect("a pointer")],
        fingerprint_headers: vec!["stripe-account".parse().expect("a name")],
        mismatch_hint: true,
        recover: Recover::Resume,
        probe: None,
        completing: None,
        server_errors: ServerErrors::Keep,
        final_statuses: vec![status(500), StatusPattern::class("4xx").expect("a class")],
        transient_statuses: vec![status(409)],
        unknown_statuses: vec![status(202)],
        on_conflict: OnConflict::Wait,
        wait_max: seconds(4),
        retention: seconds(60),
        remember: seconds(2 * 24 * 60 * 60),
        lease: seconds(1),
        response_timeout: seconds(2),
        run_timeout: seconds(3),
        request_bytes_max: 4,
        answer_bytes_max: 5 * 1024,
        live_keys_max: Some(6).into(),
        claims_max: Some(7).into(),
        held_keys_max: None.into(),
        stream: true,
        needs_permission: false,
        replay_status: ReplayStatus::Ok,
        replay_set_cookie: true,
        replay_also: vec!["x-request-id".parse().expect("a name")],
        replay_never: vec!["x-node".parse().expect("a name")],
        expires_header: false,
        cors_origins: vec![Origin::parse("https://a.example").expect("an origin")],
        on_store_error: OnStoreError::Bypass,
    };
    assert_eq!(config.defaults, expected);
    assert_eq!((config.store, config.spool), (StoreUrl::Memory, Some("/spool".into())));
    assert_eq!(config.admin.token_file, Some("/t".into()));
    let checkpoints = config.checkpoints.expect("said");
    assert_eq!(checkpoints.listen.to_string(), "0.0.0.0:2");
    assert_eq!(checkpoints.url.expect("said").as_str(), "http://gateway.internal:2");
    assert_eq!(config.secret_file, Some("/s".into()));
    assert_eq!((config.connect_timeout, config.drain_timeout), (seconds(1), seconds(120)));
    assert_eq!(config.shutdown_delay, seconds(3));
    assert_eq!(config.trusted_proxies.len(), 2);
    assert!(config.log_keys);
    assert_eq!(config.public_url.expect("said").as_str(), "https://api.example.com");
    assert!(!config.contract_page && config.status);
}

fn status(number: u16) -> StatusPattern {
    StatusPattern::status(number).expect("a status")
}

#[test]
fn a_routes_statuses_go_before_those_of_the_defaults() {
    let config = load(
        "upstream = 'http://a'\n[idempotency]\nfinal_statuses = [500, 409]\n\
         transient_statuses = [404]\n[[route]]\nmatch = '/a'\ntransient_statuses = [409]\n\
         unknown_statuses = [404]\n[[route]]\nmatch = '/b'\nfinal_statuses = []\n",
    )
    .expect("valid");
    let of = |at: usize| {
        let settings = &config.routes[at].settings;
        let lists =
            [&settings.final_statuses, &settings.transient_statuses, &settings.unknown_statuses];
        lists.map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(of(0), ["500", "409", "404"]);
    assert_eq!(of(1), ["", "404", ""]);
}

#[test]
fn a_route_may_name_its_host() {
    let config = load(
        "upstream = 'http://a'\n[[route]]\nmatch = '/a'\n[[route]]\nhost = 'API.example.com'\n\
         match = 'POST /a'\n[[route]]\nhost = '*.example.com:8443'\nmatch = 'POST /{b}'\n\
         fingerprint = 'raw'",
    )
    .expect("valid");
    let names: Vec<String> = config.routes.iter().map(Route::name).collect();
    assert_eq!(names, ["/a", "api.example.com/a", "*.example.com:8443/{b}"]);
    assert_eq!(config.routes[2].settings.fingerprint, FingerprintForm::Raw);
}

#[test]
fn a_database_may_be_reached_past_a_pooler_and_migrated_by_somebody_else() {
    let config = load(
        "upstream = 'http://a'\n[store]\nurl = 'postgres://a/b'\ndirect_url = 'postgres://c/b'\n\
         auto_migrate = false",
    );
    let database = config.expect("valid").database;
    assert_eq!(database.direct_url.expect("said").as_str(), "postgres://c/b");
    assert!(!database.auto_migrate);
    for line in ["direct_url = 'postgres://c/b'", "auto_migrate = false"] {
        let mistakes = load(&format!("upstream = 'http://a'\n[store]\n{line}"));
        let said = mistakes.expect_err("there is no database").to_string();
        assert!(said.contains("needs a store in a postgres: database"), "{said}");
    }
}

#[test]
fn a_redis_may_be_asked_for_less_or_for_more() {
    let config = load(
        "upstream = 'http://a'\nsecret_file = '/s'\n[store]\nurl = 'redis://a'\naccept_loss = true\n\
         accept_unverified = true\nwait_replicas = 2",
    );
    let config = config.expect("valid");
    let redis = Redis { accept_loss: true, accept_unverified: true, wait_replicas: Some(2) };
    assert_eq!(config.redis, redis);
    assert_eq!(config.spool, Some("./selfsame-data/spool".into()));
    let careless = "upstream = 'http://a'\n[store]\nurl = 'redis://a'\naccept_loss = true";
    let said = load(careless).expect_err("the secret may be lost").to_string();
    assert!(said.contains("accept_loss: needs secret_file"), "{said}");
    for line in ["accept_loss = true", "accept_unverified = false", "wait_replicas = 1"] {
        let mistakes = load(&format!("upstream = 'http://a'\n[store]\n{line}"));
        let said = mistakes.expect_err("there is no Redis").to_string();
        assert!(said.contains("needs a store in Redis, or lock"), "{said}");
    }
}

#[test]
fn claims_may_be_in_the_redis_before_a_database() {
    let load = |lines: &str| load(&format!("upstream = 'http://a'\n[store]\n{lines}"));
    let both = "url = 'postgres://a/b'\ncache_url = 'redis://c'";
    assert_eq!(load(both).expect("valid").lock, Lock::Store);
    assert_eq!(load(&format!("{both}\nlock = 'store'")).expect("valid").lock, Lock::Store);
    let config = load(&format!("{both}\nlock = 'redis'\naccept_loss = true\nwait_replicas = 1"));
    let config = config.expect("valid");
    assert_eq!((config.lock, config.redis.wait_replicas), (Lock::Redis, Some(1)));
    for (lines, text) in [
        ("url = 'postgres://a/b'\nlock = 'redis'", "store.lock: needs cache_url"),
        ("url = 'file:./d'\ncache_url = 'redis://c'\nlock = 'redis'", "one process needs no lock"),
        ("url = 'redis://a'\nlock = 'redis'", "claims are in Redis already"),
        ("lock = 'table'", r#"expected "store" or "redis""#),
    ] {
        let said = load(lines).expect_err("it cannot be").to_string();
        assert!(said.contains(text), "{said}");
    }
}

#[test]
fn a_durable_store_may_have_a_redis_before_it() {
    let load = |store: &str, cache: &str| {
        load(&format!("upstream = 'http://a'\n[store]\nurl = '{store}'\ncache_url = '{cache}'"))
    };
    for store in ["postgres://a/b", "file:./data"] {
        let config = load(store, "rediss://me:hunter2@c/1").expect("valid");
        assert_eq!(config.cache.as_ref().expect("said").as_str(), "rediss://me:hunter2@c/1");
        assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    }
    for store in ["memory:", "redis://a"] {
        let said = load(store, "redis://c").expect_err("nothing is durable").to_string();
        assert!(said.contains("needs a store in a postgres: database or a file: folder"), "{said}");
    }
    for cache in ["memory:", "file:./a", "postgres://me:hunter2@a/b", "redis:me:hunter2@a"] {
        let said = load("file:./data", cache).expect_err("it is no Redis").to_string();
        assert!(said.contains("store.cache_url") && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn finished_records_are_kept_near_where_the_store_is_far() {
    let load = |store: &str, line: &str| {
        load(&format!("upstream = 'http://a'\n[store]\nurl = '{store}'\n{line}"))
    };
    let near = |store: &str, line: &str| load(store, line).expect("valid").near_cache;
    assert_eq!(near("redis://a", ""), Some(32 * 1024 * 1024));
    assert_eq!(near("postgres://a/b", "near_cache = '1MiB'"), Some(1024 * 1024));
    assert_eq!(near("redis://a", "near_cache = 'off'"), None);
    assert_eq!(near("file:./d", ""), None);
    for (store, line, said) in [
        ("file:./d", "near_cache = '1MiB'", "needs a store that is asked over a network"),
        ("redis://a", "near_cache = true", r#"expected a size like "32MiB""#),
    ] {
        let mistakes = load(store, line).expect_err("wrong").to_string();
        assert!(mistakes.contains(said), "{mistakes}");
    }
}

#[test]
fn a_gap_between_boots_may_be_limited() {
    let load = |store: &str, line: &str| {
        load(&format!("upstream = 'http://a'\n[store]\nurl = '{store}'\n{line}"))
    };
    let gap = |line: &str| load("file:./d", line).expect("valid").clock_gap_max;
    assert_eq!(gap(""), None);
    assert_eq!(gap("max_clock_gap = 'off'"), None);
    assert_eq!(gap("max_clock_gap = '7d'"), Some(Duration::from_secs(7 * 24 * 60 * 60)));
    for (store, line, said) in [
        ("postgres://a/b", "max_clock_gap = '1d'", "needs a store in a file: folder"),
        ("file:./d", "max_clock_gap = 1", r#"expected a duration like "12h""#),
    ] {
        let mistakes = load(store, line).expect_err("wrong").to_string();
        assert!(mistakes.contains(said), "{mistakes}");
    }
}

#[test]
fn a_store_in_a_folder_is_read_once_a_day_unless_said() {
    let load = |store: &str, line: &str| {
        load(&format!("upstream = 'http://a'\n[store]\nurl = '{store}'\n{line}"))
    };
    let every = |store: &str, line: &str| load(store, line).expect("valid").verify_every;
    assert_eq!(every("file:./d", ""), Some(Duration::from_secs(24 * 60 * 60)));
    assert_eq!(every("file:./d", "verify_every = '7d'"), Some(Duration::from_secs(7 * 86_400)));
    assert_eq!(every("file:./d", "verify_every = 'off'"), None);
    assert_eq!(every("memory:", ""), None);
    for (store, line, said) in [
        ("postgres://a/b", "verify_every = '1d'", "needs a store in a file: folder"),
        ("file:./d", "verify_every = 1", r#"expected a duration like "12h""#),
    ] {
        let mistakes = load(store, line).expect_err("wrong").to_string();
        assert!(mistakes.contains(said), "{mistakes}");
    }
}

#[test]
fn a_store_may_take_so_many_bytes() {
    let load = |store: &str, line: &str| {
        load(&format!("upstream = 'http://a'\n[store]\nurl = '{store}'\n{line}"))
    };
    let most = |store: &str, line: &str| load(store, line).expect("valid").store_bytes_max;
    let written = |size: &str| format!("max_store_bytes = '{size}'");
    assert_eq!(most("file:./d", ""), StoreLimit::Disk);
    assert_eq!(most("file:./d", &written("off")), StoreLimit::Off);
    assert_eq!(most("file:./d", &written("2000GiB")), StoreLimit::Bytes(2000 << 30));
    assert_eq!(most("postgres://a/b", ""), StoreLimit::Off);
    assert_eq!(most("postgres://a/b", &written("10GB")), StoreLimit::Bytes(10_000_000_000));
    assert_eq!(most("redis://a", ""), StoreLimit::Off);
    for (store, line, said) in [
        ("redis://a", "max_store_bytes = '1GiB'", "a Redis has its own maxmemory"),
        ("file:./d", "max_store_bytes = '1KiB'", "must be at least 1MiB"),
        ("file:./d", "max_store_bytes = true", r#"expected a size like "64GiB""#),
    ] {
        let mistakes = load(store, line).expect_err("wrong").to_string();
        assert!(mistakes.contains(said), "{mistakes}");
    }
}

#[test]
fn what_happened_is_noted_in_a_file_or_with_the_records() {
    let load = |store: &str, to: &str| {
        load(&format!("upstream = 'http://a'\nstore = {{ url = '{store}' }}\n[audit]\n{to}"))
    };
    let audit = |store: &str, to: &str| load(store, to).expect("valid").audit;
    assert_eq!(audit("file:./d", "to = 'store'"), Some(AuditTo::Store));
    assert_eq!(audit("memory:", "to = 'file:/a'"), Some(AuditTo::File("/a".into())));
    for (store, to, said) in [
        (
            "memory:",
            "to = 'store'",
            "4:6: audit.to: a store in memory does not outlive its records",
        ),
        ("file:./d", "to = 'file:'", "4:6: audit.to: expected \"store\" or a file like"),
        ("file:./d", "", "audit.to: is missing; write to = \"store\""),
    ] {
        let mistakes = load(store, to).expect_err("a mistake").to_string();
        assert!(mistakes.contains(said) && mistakes.ends_with("\n1 mistake"), "{mistakes}");
    }
}

#[test]
fn a_store_in_memory_has_no_spool() {
    let config = load("upstream = 'http://a'\n[store]\nurl = 'memory:'").expect("valid");
    assert_eq!(config.spool, None);
}

#[test]
fn a_route_takes_over_what_it_does_not_say() {
    let config = load(
        "upstream = 'http://a'\n[idempotency]\nlease = '9s'\nmethods = ['PUT']\n\
         [[route]]\nmatch = '/a'\nkey = 'required'\n[[route]]\nmatch = 'POST /a'\nlease = '8s'",
    )
    .expect("valid");
    let [put, post] = &config.routes[..] else { panic!("two routes") };
    assert_eq!(put.settings, RouteSettings { key: KeyMode::Required, ..config.defaults.clone() });
    assert_eq!(post.settings.methods, ["POST"]);
    assert_eq!(post.settings.lease, Duration::from_secs(8));
}

#[test]
fn an_idempotent_upstream_turns_auto_into_resume() {
    let config = load(
        "upstream = 'http://a'\n[idempotency]\nupstream_idempotent = true\n\
         [[route]]\nmatch = '/a'\n\
         [[route]]\nmatch = '/b'\nupstream_idempotent = false\n\
         [[route]]\nmatch = '/c'\nrecover = 'hold'",
    )
    .expect("valid");
    let recover: Vec<Recover> = config.routes.iter().map(|route| route.settings.recover).collect();
    assert_eq!(config.defaults.recover, Recover::Resume);
    assert_eq!(recover, [Recover::Resume, Recover::Auto, Recover::Hold]);
}

#[test]
fn stripes_manners_keep_server_errors_unless_the_file_says_otherwise() {
    let config = load(
        "upstream = 'http://a'\n[idempotency]\nprofile = 'stripe'\n\
         [[route]]\nmatch = '/a'\n\
         [[route]]\nmatch = '/b'\nprofile = 'ietf'\n\
         [[route]]\nmatch = '/c'\nserver_errors = 'hold'",
    )
    .expect("valid");
    let errors: Vec<_> = config.routes.iter().map(|route| route.settings.server_errors).collect();
    assert_eq!(config.defaults.server_errors, ServerErrors::Keep);
    assert_eq!(errors, [ServerErrors::Keep, ServerErrors::Retry, ServerErrors::Hold]);
}

#[test]
fn a_flag_goes_before_the_file() {
    let overrides = Overrides {
        upstream: text("http://b"),
        listen: text("127.0.0.1:1"),
        store: text("postgres://a/b"),
        store_direct: text("postgres://c/b"),
        store_cache: text("redis://d"),
        admin: text("0.0.0.0:2"),
        admin_token_file: text("/t"),
        secret_file: text("/s"),
    };
    let config = load_with(EXAMPLE, &overrides).expect("valid");
    assert_eq!(config.upstream.authority.as_str(), "b");
    assert_eq!(config.listen.to_string(), "127.0.0.1:1");
    assert!(matches!(&config.store, StoreUrl::Postgres(url) if url.as_str() == "postgres://a/b"));
    assert_eq!(config.database.direct_url.expect("said").as_str(), "postgres://c/b");
    assert_eq!(config.cache.expect("said").as_str(), "redis://d");
    let admin =
        Admin { listen: "0.0.0.0:2".parse().expect("valid"), token_file: Some("/t".into()) };
    assert_eq!(config.admin, admin);
    assert_eq!(config.secret_file, Some("/s".into()));
}

#[test]
fn every_name_is_documented() {
    let tables = [
        TLS,
        UPSTREAM_TLS,
        STORE,
        ENCRYPTION,
        AUDIT,
        ADMIN,
        ADMIN_TLS,
        CHECKPOINTS,
        JWT,
        FORWARD_AUTH,
        LIMITS,
        IDEMPOTENCY,
        ROUTE,
    ];
    let names = tables.each_ref().map(|vocabulary| vocabulary.table);
    for vocabulary in tables.iter().chain([&TOP]) {
        for name in vocabulary.iter().filter(|name| !names.contains(name)) {
            let row = format!("| `{name}` |");
            assert!(DOCUMENTATION.contains(&row), "{name} is missing from CONFIGURATION.md");
        }
    }
}

#[test]
fn the_documented_example_loads() {
    let example = DOCUMENTATION.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    load(example.expect("an example")).expect("valid");
}
