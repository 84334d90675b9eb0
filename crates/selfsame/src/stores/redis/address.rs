//! [`Address`]: where Redis is, and how it is told that it is the right one.

use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use redis::io::tcp::TcpSettings;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    TlsCertificates,
};

use super::trouble::RedisOpenError;

/// Where sentinels listen unless it is said.
const SENTINEL_PORT: u16 = 26_379;

/// The address of a server, of some servers of a cluster, or of those who know where the server is.
pub(super) struct Address {
    info: ConnectionInfo,
    /// Whose certificates count, if not those of the system.
    authorities: Option<PathBuf>,
    places: Vec<Place>,
    form: Form,
}

/// What is found at an address.
#[derive(Clone)]
pub(super) enum Form {
    Server,
    Cluster,
    /// Those who know who the master of this name is, and how they are spoken to.
    Sentinel {
        master: String,
        login: Box<RedisConnectionInfo>,
    },
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Place {
    /// As Redis writes it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let is_known = !matches!(host, "" | "?");
        is_known.then_some(())?;
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }

    pub(super) fn of(info: &ConnectionInfo) -> Option<Self> {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self { host: host.clone(), port: *port })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How servers are called, wherever they are: by which user, and trusting whom.
#[derive(Clone)]
pub(super) struct Dial {
    info: ConnectionInfo,
    root_cert: Option<Vec<u8>>,
}

impl Dial {
    pub(super) fn to(&self, place: &Place) -> Result<Client, RedisError> {
        let Place { host, port } = place.clone();
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.call(self.info.clone().set_addr(addr))
    }

    /// Where they are, without a password.
    pub(super) fn place(&self, places: &[Place]) -> String {
        self::places(&self.info, places)
    }

    /// The same as somebody else.
    pub(super) fn by(&self, login: RedisConnectionInfo) -> Self {
        let login = login.set_skip_set_lib_name();
        Self { info: self.info.clone().set_redis_settings(login), ..self.clone() }
    }

    fn call(&self, info: ConnectionInfo) -> Result<Client, RedisError> {
        match &self.root_cert {
            None => Client::open(info),
            root_cert => {
                let root_cert = root_cert.clone();
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
            }
        }
    }
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, RedisOpenError> {
        let (plain, query) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, rest) = plain.split_once("://").ok_or(RedisOpenError::Url)?;
        if url.contains('#') {
            return Err(RedisOpenError::Url);
        }
        let (base, many) = scheme.split_once('-').unwrap_or((scheme, ""));
        if !matches!(base, "redis" | "rediss") {
            return Err(RedisOpenError::Url);
        }
        let is_encrypted = base == "rediss";
        let (info, places, mut form) = match many {
            "" if scheme == base => {
                let info = read(plain)?;
                let place = Place::of(&info).filter(|place| !place.host.contains(','));
                let places = vec![place.ok_or(RedisOpenError::Url)?];
                (info, places, Form::Server)
            }
            "cluster" => {
                let (users_hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
                if !matches!(path, "" | "0") {
                    return Err(RedisOpenError::Url);
                }
                let (info, places) = several(base, users_hosts, "0", None)?;
                (info, places, Form::Cluster)
            }
            "sentinel" => {
                let (users_hosts, path) = rest.split_once('/').ok_or(RedisOpenError::Url)?;
                let (master, database) = path.split_once('/').unwrap_or((path, "0"));
                let (info, places) = several(base, users_hosts, database, Some(SENTINEL_PORT))?;
                let master = decoded(master).filter(|master| !master.is_empty());
                let master = master.ok_or(RedisOpenError::Url)?;
                (info, places, Form::Sentinel { master, login: Box::default() })
            }
            _ => return Err(RedisOpenError::Url),
        };
        let mut authorities = None;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').ok_or(RedisOpenError::Parameter)?;
            let value = decoded(value).ok_or(RedisOpenError::Parameter)?;
            match (name, &mut form) {
                ("sslrootcert", _) if is_encrypted => authorities = Some(PathBuf::from(value)),
                ("sentinel_user", Form::Sentinel { login, .. }) => {
                    **login = login.clone().set_username(value);
                }
                ("sentinel_password", Form::Sentinel { login, .. }) => {
                    **login = login.clone().set_password(value);
                }
                _ => return Err(RedisOpenError::Parameter),
            }
        }
        let redis = info.redis_settings().clone().set_skip_set_lib_name();
        // Without it a write waits for the acknowledgement of the one before.
        let tcp = TcpSettings::default().set_nodelay(true);
        let info = info.set_redis_settings(redis).set_tcp_settings(tcp);
        Ok(Self { info, authorities, places, form })
    }

    /// How it is called. Reads the file that it names.
    pub(super) fn dial(&self) -> Result<Dial, RedisOpenError> {
        let root_cert = match &self.authorities {
            None => None,
            Some(path) => Some(fs::read(path).map_err(|error| RedisOpenError::File {
                path: path.clone(),
                cause: error.to_string(),
            })?),
        };
        let dial = Dial { info: self.info.clone(), root_cert };
        // Whether those are certificates at all.
        dial.to(&self.places[0]).map_err(|error| RedisOpenError::Connection {
            place: self.place(),
            cause: error.to_string(),
        })?;
        Ok(dial)
    }

    /// The client of a single server. Reads the file that it names.
    pub(super) fn client(&self) -> Result<Client, RedisOpenError> {
        let client = self.dial()?.to(&self.places[0]);
        client.map_err(|error| RedisOpenError::Connection {
            place: self.place(),
            cause: error.to_string(),
        })
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    pub(super) fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }

    /// Where it is, without its password.
    pub(super) fn place(&self) -> String {
        places(&self.info, &self.places)
    }

    /// Whether others on the way can read what is sent.
    pub(super) fn is_open_to_others(&self) -> bool {
        let is_here = |place: &Place| {
            let is_loopback = place.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
            is_loopback || place.host == "localhost"
        };
        let is_plain = matches!(self.info.addr(), ConnectionAddr::Tcp(..));
        is_plain && !self.places.iter().all(is_here)
    }
}

/// Where a server is, without its password.
pub(super) fn place(info: &ConnectionInfo) -> String {
    format!("{} at {}", info.redis_settings().db(), info.addr())
}

fn places(info: &ConnectionInfo, places: &[Place]) -> String {
    let places: Vec<_> = places.iter().map(ToString::to_string).collect();
    format!("{} at {}", info.redis_settings().db(), places.join(","))
}

fn read(url: &str) -> Result<ConnectionInfo, RedisOpenError> {
    url.into_connection_info().map_err(|_| RedisOpenError::Url)
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

/// The hosts of a list, and how the first is spoken to.
fn several(
    scheme: &str,
    users_hosts: &str,
    database: &str,
    port: Option<u16>,
) -> Result<(ConnectionInfo, Vec<Place>), RedisOpenError> {
    let (user, hosts) = users_hosts.rsplit_once('@').unwrap_or(("", users_hosts));
    let user = if user.is_empty() { String::new() } else { format!("{user}@") };
    let mut places = Vec::new();
    for host in hosts.split(',') {
        let place = Place::of(&read(&format!("{scheme}://{host}"))?).ok_or(RedisOpenError::Url)?;
        // What is not in the brackets of an address.
        let says_port = host.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
        let port = port.filter(|_| !says_port).unwrap_or(place.port);
        places.push(Place { port, ..place });
    }
    let first = hosts.split(',').next().unwrap_or_default();
    Ok((read(&format!("{scheme}://{user}{first}/{database}"))?, places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_or_refused_without_telling_its_password() {
        for url in [
            "redis://h",
            "redis://:p@h:1/3",
            "rediss://u:p@h/0?sslrootcert=%2Fa%20b",
            "redis-cluster://h",
            "redis-cluster://u:p@h,[::1]:7,h:1/0",
            "rediss-cluster://:p@h:1,g:2?sslrootcert=/a",
            "redis-sentinel://u:p@h,g:2/main",
            "rediss-sentinel://h/main/3?sentinel_user=p&sentinel_password=p&sslrootcert=/a",
        ] {
            let address = Address::parse(url).expect("an address");
            assert!(!address.place().contains('p'), "{}", address.place());
        }
        for url in [
            "redis:h",
            "redis://",
            "redis-://h",
            "redis-ring://h",
            "valkey://h",
            "valkey-cluster://h",
            "redis://h:port",
            "redis://h/one",
            "redis://h,g",
            "rediss://h/#insecure",
            "redis://h?sslrootcert=/a",
            "redis://h?protocol=resp3",
            "redis://h?sentinel_password=p",
            "redis-cluster://",
            "redis-cluster://h,",
            "redis-cluster://h/1",
            "redis-cluster://h?sslrootcert=/a",
            "redis-sentinel://h",
            "redis-sentinel://h/",
            "redis-sentinel://h/main/one",
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_list_of_hosts_says_all_of_them() {
        let place = |url| Address::parse(url).expect("an address").place();
        assert_eq!(place("redis-cluster://u:p,x@a,b:7,[::1]:8"), "0 at a:6379,b:7,::1:8");
        assert_eq!(place("redis-sentinel://a,[::1],b:8/main/2"), "2 at a:26379,::1:26379,b:8");
    }

    #[test]
    fn only_this_machine_is_safe_in_plain_text() {
        let is_open = |url| Address::parse(url).expect("an address").is_open_to_others();
        for url in ["redis://cache.internal", "redis://10.0.0.1", "redis-cluster://localhost,a"] {
            assert!(is_open(url), "{url}");
        }
        for url in ["redis://127.0.0.2", "redis://[::1]", "redis://localhost", "rediss://a"] {
            assert!(!is_open(url), "{url}");
        }
    }
}
