//! [`Address`]: where Redis is, and how it is told that it is the right one.

use std::fs;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use super::trouble::RedisOpenError;

/// The address of a server.
pub(super) struct Address {
    info: ConnectionInfo,
    /// Whose certificates count, if not those of the system.
    authorities: Option<PathBuf>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, RedisOpenError> {
        let (plain, query) = url.split_once('?').unwrap_or((url, ""));
        let is_ours = ["redis://", "rediss://"].iter().any(|scheme| plain.starts_with(scheme));
        if !is_ours || url.contains('#') {
            return Err(RedisOpenError::Url);
        }
        let info = plain.into_connection_info().map_err(|_| RedisOpenError::Url)?;
        let mut authorities = None;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslrootcert", path)) if plain.starts_with("rediss:") => {
                    let path = percent_decode_str(path).decode_utf8();
                    let path = path.map_err(|_| RedisOpenError::Parameter)?;
                    authorities = Some(PathBuf::from(path.into_owned()));
                }
                _ => return Err(RedisOpenError::Parameter),
            }
        }
        let redis = info.redis_settings().clone().set_skip_set_lib_name();
        // Without it a write waits for the acknowledgement of the one before.
        let tcp = TcpSettings::default().set_nodelay(true);
        let info = info.set_redis_settings(redis).set_tcp_settings(tcp);
        Ok(Self { info, authorities })
    }

    /// Reads the file that it names.
    pub(super) fn client(&self) -> Result<Client, RedisOpenError> {
        let info = self.info.clone();
        let client = match &self.authorities {
            None => Client::open(info),
            Some(path) => {
                let root_cert = fs::read(path).map_err(|error| RedisOpenError::File {
                    path: path.clone(),
                    cause: error.to_string(),
                })?;
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(root_cert) };
                Client::build_with_tls(info, certificates)
            }
        };
        client.map_err(|error| RedisOpenError::Connection {
            place: self.place(),
            cause: error.to_string(),
        })
    }

    pub(super) fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }

    /// Where it is, without its password.
    pub(super) fn place(&self) -> String {
        format!("{} at {}", self.database(), self.info.addr())
    }

    /// Whether others on the way can read what is sent.
    pub(super) fn is_open_to_others(&self) -> bool {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) => {
                let is_loopback = host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
                !is_loopback && host != "localhost"
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_or_refused_without_telling_its_password() {
        for url in ["redis://h", "redis://:p@h:1/3", "rediss://u:p@h/0?sslrootcert=%2Fa%20b"] {
            let address = Address::parse(url).expect("an address");
            assert!(!address.place().contains('p'), "{}", address.place());
        }
        for url in [
            "redis:h",
            "redis://",
            "valkey://h",
            "redis://h:port",
            "redis://h/one",
            "rediss://h/#insecure",
            "redis://h?sslrootcert=/a",
            "redis://h?protocol=resp3",
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn only_this_machine_is_safe_in_plain_text() {
        let is_open = |url| Address::parse(url).expect("an address").is_open_to_others();
        assert!(is_open("redis://cache.internal") && is_open("redis://10.0.0.1"));
        for url in ["redis://127.0.0.2", "redis://[::1]", "redis://localhost", "rediss://a"] {
            assert!(!is_open(url), "{url}");
        }
    }
}
