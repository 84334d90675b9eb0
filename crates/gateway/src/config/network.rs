//! Where the gateway listens, where it sends, whom it trusts, and where its records are.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use http::Uri;
use http::uri::{Authority, Scheme};
use ipnet::IpNet;
use rustls::pki_types::ServerName;
use selfsame::stores::{PostgresOpenError, PostgresStore, RedisOpenError, RedisStore};
use toml::de::DeValue;

use super::values::{Kind, Wrong, text};

/// The server that does the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// How it is spoken to.
    pub protocol: Protocol,
    /// Whether that goes over TLS.
    pub is_encrypted: bool,
    /// Its host and port.
    pub authority: Authority,
}

impl Upstream {
    /// Its address, where that needs no name server.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        let ip = match self.authority.host() {
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            host => host.trim_matches(['[', ']']).parse().ok()?,
        };
        let port = if self.is_encrypted { 443 } else { 80 };
        Some(SocketAddr::new(ip, self.authority.port_u16().unwrap_or(port)))
    }

    /// What it is called where certificates count.
    pub fn server_name(&self) -> Option<ServerName<'static>> {
        let name = || server_name(self.authority.host()).expect("it was read so");
        self.is_encrypted.then(name)
    }

    /// As it stands in a request's target.
    pub fn scheme(&self) -> Scheme {
        if self.is_encrypted { Scheme::HTTPS } else { Scheme::HTTP }
    }
}

/// How an upstream is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `http:` and `https:`: HTTP/1.1.
    Http1,
    /// `h2c:` and `h2:`: HTTP/2, without asking first.
    Http2,
}

/// Where clients know the service, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// The address, to which a path can be added.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where records are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// In this process: they end with it.
    Memory,
    /// In a folder on this machine.
    File(PathBuf),
    /// In a PostgreSQL database, which other gateways may share.
    Postgres(PostgresUrl),
    /// In Redis, which other gateways may share.
    Redis(RedisUrl),
}

impl StoreUrl {
    /// The address for people: the whole path of a folder, and no password.
    pub fn shown(&self) -> String {
        match self {
            Self::Memory => "memory:".to_owned(),
            Self::File(folder) => {
                let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
                format!("file:{}", folder.display())
            }
            Self::Postgres(url) => without_password(url.as_str()),
            Self::Redis(url) => url.shown(),
        }
    }

    /// The folder for answers that could not be recorded, unless another is configured.
    pub fn spool(&self) -> PathBuf {
        self.folder().join("spool")
    }

    /// The folder for what belongs to the store and is kept on this machine.
    pub fn folder(&self) -> &Path {
        match self {
            Self::File(folder) => folder,
            Self::Memory | Self::Postgres(_) | Self::Redis(_) => Path::new("./selfsame-data"),
        }
    }
}

/// A URL without the password before its host, and without its parameters: one of them may be another.
fn without_password(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.split(':').next().unwrap_or_default().to_owned();
    };
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(a, p)| (a, Some(p)));
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_host = |host: &str| match host.rsplit_once(':') {
        Some((_, port)) => host.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit()),
        None => true,
    };
    if !hosts.split(',').all(is_host) {
        // A password that should have been escaped.
        return format!("{scheme}://…");
    }
    let user = login.split(':').next().filter(|user| !user.is_empty());
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    let path = path.map(|path| format!("/{path}")).unwrap_or_default();
    format!("{scheme}://{user}{hosts}{path}")
}

/// Tells if an address holds a password.
fn has_password(url: &str) -> bool {
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let login = rest.rsplit_once('@').and_then(|(login, _)| login.split_once(':'));
    login.is_some_and(|(_, password)| !password.is_empty())
        || query.split('&').any(|parameter| parameter.starts_with("password="))
}

/// The address of a database. It may hold a password, so it is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// Tells if it holds a password.
    pub(crate) fn has_password(&self) -> bool {
        has_password(&self.0)
    }

    /// The address, password and all.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresUrl(…)")
    }
}

/// The address of a Redis. It may hold a password, so it is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// The address for people, without its password.
    pub fn shown(&self) -> String {
        without_password(&self.0)
    }

    /// Tells if it holds a password.
    pub(crate) fn has_password(&self) -> bool {
        has_password(&self.0)
    }

    /// The address, password and all.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisUrl(…)")
    }
}

pub(super) const ADDRESS: Kind<SocketAddr> = Kind {
    expected: r#"an address and port like "127.0.0.1:8080", "0.0.0.0:8080" or "[::1]:8080""#,
    read: address,
};

pub(super) const NETWORK: Kind<IpNet> =
    Kind { expected: r#"an address or network like "10.0.0.1" or "10.0.0.0/8""#, read: network };

pub(super) const UPSTREAM: Kind<Upstream> = Kind {
    expected: r#"a host and port like "http://127.0.0.1:3000", "https://api.internal" or "h2c://127.0.0.1:50051""#,
    read: upstream,
};

pub(super) const SERVER_NAME: Kind<ServerName<'static>> = Kind {
    expected: r#"a host name like "api.example.com""#,
    read: |value| server_name(text(value)?).ok_or(Wrong::Form),
};

pub(super) const PUBLIC_URL: Kind<PublicUrl> =
    Kind { expected: r#"an address like "https://api.example.com""#, read: public_url };

pub(super) const STORE_URL: Kind<StoreUrl> = Kind {
    expected: r#""memory:", a folder like "file:./selfsame-data", a database like "postgres://user:password@host/database" or a Redis like "rediss://user:password@host:6379/0""#,
    read: store_url,
};

const A_DATABASE: &str = r#"a database like "postgres://user:password@host/database""#;

pub(super) const DATABASE_URL: Kind<PostgresUrl> = Kind {
    expected: A_DATABASE,
    read: |value| match store_url(value)? {
        StoreUrl::Postgres(url) => Ok(url),
        StoreUrl::Memory | StoreUrl::File(_) | StoreUrl::Redis(_) => Err(another_store(A_DATABASE)),
    },
};

const A_REDIS: &str = r#"a Redis like "rediss://user:password@host:6379/0""#;

pub(super) const CACHE_URL: Kind<RedisUrl> = Kind {
    expected: A_REDIS,
    read: |value| match store_url(value)? {
        StoreUrl::Redis(url) => Ok(url),
        StoreUrl::Memory | StoreUrl::File(_) | StoreUrl::Postgres(_) => Err(another_store(A_REDIS)),
    },
};

/// A store, but not one that is meant here. What was written may hold a password.
fn another_store(expected: &str) -> Wrong {
    Wrong::Because(format!("expected {expected}, found another store"))
}

/// Whether listening on both would fail, or would give one what is meant for the other.
pub(super) fn overlap(left: SocketAddr, right: SocketAddr) -> bool {
    // [::] takes IPv4 too on most systems.
    let covers =
        |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    let (l, r) = (left.ip(), right.ip());
    left.port() != 0 && left.port() == right.port() && (l == r || covers(l, r) || covers(r, l))
}

// ":8080" is not taken: it would open the gateway to the network without saying so.
fn address(value: &DeValue<'_>) -> Result<SocketAddr, Wrong> {
    let text = text(value)?;
    match text.strip_prefix("localhost:") {
        Some(port) => {
            let port = port.parse().map_err(|_| Wrong::Form)?;
            Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
        }
        None => text.parse().map_err(|_| Wrong::Form),
    }
}

fn network(value: &DeValue<'_>) -> Result<IpNet, Wrong> {
    let text = text(value)?;
    let network = text.parse().or_else(|_| text.parse().map(|ip: IpAddr| IpNet::from(ip)));
    network.map(|network| network.trunc()).map_err(|_| Wrong::Form)
}

fn upstream(value: &DeValue<'_>) -> Result<Upstream, Wrong> {
    let text = text(value)?;
    // Before anything else: what follows may quote the text.
    if text.contains('@') {
        let reason = "must not hold a name or password; what clients send is passed on as it is";
        return Err(Wrong::Because(reason.to_owned()));
    }
    let uri: Uri = text.parse().map_err(|_| Wrong::Form)?;
    let parts = uri.into_parts();
    let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
        return Err(Wrong::Form);
    };
    let (protocol, is_encrypted) = match scheme.as_str() {
        "http" => (Protocol::Http1, false),
        "https" => (Protocol::Http1, true),
        "h2c" => (Protocol::Http2, false),
        "h2" => (Protocol::Http2, true),
        _ => return Err(Wrong::Form),
    };
    let has_port = authority.as_str() != authority.host();
    let port_is_wrong = has_port && authority.port_u16().is_none_or(|port| port == 0);
    if port_is_wrong || text.contains('#') {
        return Err(Wrong::Form);
    }
    if parts.path_and_query.is_some_and(|path| path != "/") {
        let reason = "must not have a path or query: each request brings its own";
        return Err(Wrong::Because(reason.to_owned()));
    }
    if is_encrypted && server_name(authority.host()).is_none() {
        return Err(Wrong::Because("no certificate can be for such a host".to_owned()));
    }
    Ok(Upstream { protocol, is_encrypted, authority })
}

fn server_name(host: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).ok()
}

fn public_url(value: &DeValue<'_>) -> Result<PublicUrl, Wrong> {
    let text = text(value)?;
    // Before anything else: what follows may quote the text.
    if text.contains('@') {
        let reason = "must not hold a name or password; every client reads it";
        return Err(Wrong::Because(reason.to_owned()));
    }
    let uri: Uri = text.parse().map_err(|_| Wrong::Form)?;
    // It becomes part of a header, which takes no other letters.
    if !matches!(uri.scheme_str(), Some("http" | "https")) || !text.is_ascii() {
        return Err(Wrong::Form);
    }
    if uri.query().is_some() || text.contains('#') {
        return Err(Wrong::Because("must not have a query or fragment".to_owned()));
    }
    Ok(PublicUrl(text.trim_end_matches('/').to_owned()))
}

fn store_url(value: &DeValue<'_>) -> Result<StoreUrl, Wrong> {
    let text = text(value)?;
    // It is not quoted in complaints where it may hold a password, as in "password=hunter2".
    let quotable = || match text.contains(['@', '=']) {
        true => Wrong::Because(format!("expected {}, found another form", STORE_URL.expected)),
        false => Wrong::Form,
    };
    let (scheme, rest) = text.split_once(':').ok_or_else(quotable)?;
    match (scheme, rest) {
        ("memory", "") => Ok(StoreUrl::Memory),
        ("memory", _) => Err(Wrong::Because("nothing may follow \"memory:\"".to_owned())),
        ("file", "" | "//") => Err(quotable()),
        ("file", rest) => match rest.strip_prefix("//") {
            Some(path) if !path.starts_with('/') => Err(quotable()),
            path => Ok(StoreUrl::File(path.unwrap_or(rest).into())),
        },
        ("postgres" | "postgresql", rest) => {
            let url = format!("{scheme}:{rest}");
            match PostgresStore::check_address(&url) {
                Ok(()) => Ok(StoreUrl::Postgres(PostgresUrl(url))),
                Err(PostgresOpenError::Url) => Err(another_form(scheme)),
                Err(error) => Err(Wrong::Because(error.to_string())),
            }
        }
        (
            "redis" | "rediss" | "redis-cluster" | "rediss-cluster" | "redis-sentinel"
            | "rediss-sentinel",
            rest,
        ) => {
            let url = format!("{scheme}:{rest}");
            match RedisStore::check_address(&url) {
                Ok(()) => Ok(StoreUrl::Redis(RedisUrl(url))),
                Err(RedisOpenError::Url) => Err(another_form(scheme)),
                Err(error) => Err(Wrong::Because(error.to_string())),
            }
        }
        ("mysql" | "dynamodb", _) => Err(Wrong::Later(format!("\"{scheme}:\""))),
        _ if scheme.contains(['@', '=']) => Err(quotable()),
        _ => Err(Wrong::Because(format!("expected {}, found \"{scheme}:\"", STORE_URL.expected))),
    }
}

fn another_form(scheme: &str) -> Wrong {
    Wrong::Because(format!("expected {}, found another form of \"{scheme}:\"", STORE_URL.expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take<T>(kind: &Kind<T>, text: &str) -> Result<T, String> {
        kind.take(&DeValue::String(text.into()))
    }

    fn form<T>(kind: &Kind<T>, found: &str) -> String {
        format!("expected {}, found {found:?}", kind.expected)
    }

    #[test]
    fn an_address_is_an_ip_or_localhost_with_a_port() {
        let table =
            [("0.0.0.0:80", "0.0.0.0:80"), ("[::1]:0", "[::1]:0"), ("localhost:1", "127.0.0.1:1")];
        for (text, address) in table {
            assert_eq!(take(&ADDRESS, text), Ok(address.parse().expect("an address")));
        }
        for text in ["8080", ":8080", "127.0.0.1", "example.com:80", "localhost:x", ""] {
            assert_eq!(take(&ADDRESS, text), Err(form(&ADDRESS, text)));
        }
    }

    #[test]
    fn a_network_is_taken_without_its_host_bits() {
        let table = [("10.1.2.3/8", "10.0.0.0/8"), ("10.1.2.3", "10.1.2.3/32"), ("::1", "::1/128")];
        for (text, network) in table {
            assert_eq!(take(&NETWORK, text), Ok(network.parse().expect("a network")));
        }
        assert_eq!(take(&NETWORK, "10.0.0.0/33"), Err(form(&NETWORK, "10.0.0.0/33")));
    }

    #[test]
    fn an_upstream_is_a_host_and_a_port() {
        for text in ["http://127.0.0.1:3000", "http://api/", "http://[::1]:3000"] {
            let upstream = take(&UPSTREAM, text).expect("valid");
            let expected = text.trim_start_matches("http://").trim_end_matches('/');
            assert_eq!(upstream.authority.as_str(), expected);
            assert_eq!(upstream.protocol, Protocol::Http1);
        }
        let grpc = take(&UPSTREAM, "h2c://127.0.0.1:50051").expect("valid");
        assert_eq!((grpc.protocol, grpc.authority.port_u16()), (Protocol::Http2, Some(50051)));
        assert!(!grpc.is_encrypted);
        for (text, protocol) in [("https://a", Protocol::Http1), ("h2://a", Protocol::Http2)] {
            let upstream = take(&UPSTREAM, text).expect("valid");
            assert_eq!((upstream.protocol, upstream.is_encrypted), (protocol, true), "{text}");
        }
        let local = take(&UPSTREAM, "https://127.0.0.1").expect("valid").address();
        assert_eq!(local.map(|address| address.port()), Some(443));
    }

    #[test]
    fn a_wrong_upstream_says_what_is_wrong() {
        let path = "must not have a path or query: each request brings its own";
        let table = [
            ("127.0.0.1:3000", form(&UPSTREAM, "127.0.0.1:3000")),
            ("ftp://a", form(&UPSTREAM, "ftp://a")),
            ("http://a:0", form(&UPSTREAM, "http://a:0")),
            ("http://a:", form(&UPSTREAM, "http://a:")),
            ("http://a:99999", form(&UPSTREAM, "http://a:99999")),
            ("http://a/#b", form(&UPSTREAM, "http://a/#b")),
            ("http://a/v1", path.to_owned()),
            ("http://a?b", path.to_owned()),
            ("https://a~b", "no certificate can be for such a host".to_owned()),
        ];
        for (text, expected) in table {
            assert_eq!(take(&UPSTREAM, text), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_public_url_is_taken_without_its_last_slash() {
        let table = [
            ("https://api.example.com", "https://api.example.com"),
            ("http://a:8080/", "http://a:8080"),
            ("https://a/payments/", "https://a/payments"),
        ];
        for (text, url) in table {
            assert_eq!(take(&PUBLIC_URL, text), Ok(PublicUrl(url.to_owned())));
        }
        for text in [
            "api.example.com",
            "/payments",
            "ftp://a",
            "https://",
            "https://a b",
            "https://a/é",
            "",
        ] {
            assert_eq!(take(&PUBLIC_URL, text), Err(form(&PUBLIC_URL, text)), "{text}");
        }
        for text in ["https://a?b", "https://a/#b", "https://a#b"] {
            let expected = "must not have a query or fragment".to_owned();
            assert_eq!(take(&PUBLIC_URL, text), Err(expected), "{text}");
        }
    }

    #[test]
    fn no_complaint_repeats_a_password() {
        let public = take(&PUBLIC_URL, "https://me:hunter2@a").expect_err("credentials");
        assert!(!public.contains("hunter2"), "{public}");
        for text in ["http://me:hunter2@a", "ftp://me:hunter2@a"] {
            let complaint = take(&UPSTREAM, text).expect_err("credentials");
            assert!(!complaint.contains("hunter2"), "{complaint}");
        }
        for text in [
            "postgres:me:hunter2@a",
            "redis:me:hunter2@a",
            "redis://:hunter2@a?b=c",
            "oracle://me:hunter2@a",
            "memory:hunter2",
        ] {
            let complaint = take(&STORE_URL, text).expect_err("unknown");
            assert!(!complaint.contains("hunter2"), "{complaint}");
        }
        for text in
            ["postgres://me:hunter2@a/b", "rediss://me:hunter2@a/1", "redis-cluster://:hunter2@a"]
        {
            let store = take(&STORE_URL, text).expect("an address");
            assert!(!format!("{store:?}").contains("hunter2"), "{store:?}");
        }
    }

    #[test]
    fn a_database_is_named_by_its_address() {
        for text in ["postgres://a/b", "postgresql://me:secret@a:5433,b/c?connect_timeout=3"] {
            let url = PostgresUrl(text.to_owned());
            assert_eq!(take(&STORE_URL, text), Ok(StoreUrl::Postgres(url)), "{text}");
        }
        for text in ["postgres:", "postgres:a", "postgres://a:port/b", "postgres://a?nonsense=1"] {
            let complaint = take(&STORE_URL, text).expect_err("no address");
            assert!(complaint.contains("found another form of \"postgres:\""), "{complaint}");
        }
    }

    #[test]
    fn a_redis_is_named_by_its_address() {
        for text in [
            "redis://a",
            "redis://:secret@a:6380/3",
            "rediss://a?sslrootcert=/ca.pem",
            "redis-cluster://:secret@a:7000,b:7000",
            "rediss-cluster://a?sslrootcert=/ca.pem",
            "redis-sentinel://:secret@a,b:26380/main/3",
            "rediss-sentinel://a/main?sentinel_password=secret",
        ] {
            let url = RedisUrl(text.to_owned());
            assert_eq!(take(&STORE_URL, text), Ok(StoreUrl::Redis(url)), "{text}");
        }
        for text in [
            "redis:",
            "redis:a",
            "redis://a:port",
            "rediss://a/#insecure",
            "redis-cluster://a/1",
            "redis-sentinel://a",
        ] {
            let complaint = take(&STORE_URL, text).expect_err("no address");
            assert!(complaint.contains("found another form of \"redis"), "{complaint}");
        }
        let complaint = take(&STORE_URL, "redis://a?protocol=resp3").expect_err("no parameter");
        assert!(complaint.contains("sslrootcert"), "{complaint}");
    }

    #[test]
    fn an_address_is_shown_whole_and_without_its_password() {
        let shown = [
            (
                "postgres://ann:secret@db.internal:5432/keys?sslmode=require",
                "postgres://ann@db.internal:5432/keys",
            ),
            ("postgres://db/keys?password=secret", "postgres://db/keys"),
            ("postgres://ann:se/cret@db/keys", "postgres://…"),
            ("rediss://:secret@r1:6379,r2:6380/0", "rediss://r1:6379,r2:6380/0"),
            ("redis://[::1]:6379/2", "redis://[::1]:6379/2"),
        ];
        for (url, expected) in shown {
            assert_eq!(super::without_password(url), expected);
        }
        let folder = StoreUrl::File("some/where".into()).shown();
        assert!(folder.starts_with("file:/") && folder.ends_with("/some/where"), "{folder}");
    }

    #[test]
    fn a_store_is_in_memory_or_in_a_folder() {
        assert_eq!(take(&STORE_URL, "memory:"), Ok(StoreUrl::Memory));
        let table = [
            ("file:./data", "./data"),
            ("file:data", "data"),
            ("file:/var/lib/x", "/var/lib/x"),
            ("file:///var/lib/x", "/var/lib/x"),
        ];
        for (text, path) in table {
            assert_eq!(take(&STORE_URL, text), Ok(StoreUrl::File(path.into())));
        }
        for text in ["file:", "file://host/x", "data"] {
            assert_eq!(take(&STORE_URL, text), Err(form(&STORE_URL, text)));
        }
        for scheme in ["mysql", "dynamodb"] {
            let expected = format!(
                "\"{scheme}:\" is not supported yet by this version; write {}",
                STORE_URL.expected
            );
            assert_eq!(take(&STORE_URL, &format!("{scheme}://a")), Err(expected));
        }
    }

    #[test]
    fn addresses_overlap_on_the_same_port_only() {
        let table = [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("127.0.0.1:80", "10.0.0.1:80", false),
            ("0.0.0.0:80", "127.0.0.1:81", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ];
        for (left, right, expected) in table {
            let (left, right) = (left.parse().expect("valid"), right.parse().expect("valid"));
            assert_eq!(overlap(left, right), expected, "{left} {right}");
            assert_eq!(overlap(right, left), expected, "{right} {left}");
        }
    }
}
