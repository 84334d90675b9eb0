//! [`Address`]: an address as people write it, with what the driver does not know of it.

use std::net::IpAddr;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::trouble::PostgresOpenError;

/// Where a database is, and how far it is trusted to be the one that is meant.
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) check: Check,
    /// Whether each transaction may meet another session of the server.
    pub(super) is_pooled: bool,
    /// The certificate that we show, and its key.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

/// What the database's certificate must be, where it shows one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Check {
    /// Anything.
    Nothing,
    /// Signed by an authority in this file.
    Authority(PathBuf),
    /// That, and for the name of the host.
    Host(Authorities),
}

/// Whose signature counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Authorities {
    In(PathBuf),
    OfTheSystem,
}

/// The parameters of an address that are read here, each with what it may be.
#[derive(Default)]
struct Ours {
    sslmode: Option<String>,
    sslrootcert: Option<String>,
    sslcert: Option<String>,
    sslkey: Option<String>,
    pooler: Option<String>,
}

impl Ours {
    fn slot(&mut self, name: &str) -> Option<&mut Option<String>> {
        Some(match name {
            "sslmode" => &mut self.sslmode,
            "sslrootcert" => &mut self.sslrootcert,
            "sslcert" => &mut self.sslcert,
            "sslkey" => &mut self.sslkey,
            "pooler" => &mut self.pooler,
            _ => return None,
        })
    }
}

impl Address {
    /// Other forms that the driver knows are not taken: a space or a quote in a password would
    /// change their meaning.
    pub(super) fn parse(url: &str) -> Result<Self, PostgresOpenError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(PostgresOpenError::Url);
        }
        let (theirs, ours) = split(url).ok_or(PostgresOpenError::Url)?;
        let mut config: Config = theirs.parse().map_err(|_| PostgresOpenError::Url)?;
        if config.get_hosts().is_empty() {
            // Also what a certificate is compared with.
            let addresses = config.get_hostaddrs().to_vec();
            for address in addresses {
                config.host(address.to_string());
            }
        }
        if config.get_hosts().is_empty() {
            return Err(PostgresOpenError::Url);
        }
        let (mode, check) = encryption(&ours)?;
        config.ssl_mode(if is_socket(&config) { SslMode::Disable } else { mode });
        let is_pooled = match ours.pooler.as_deref() {
            Some("transaction") => true,
            Some("session") | None => false,
            Some(_) => return Err(wrong("pooler must be transaction or session")),
        };
        let identity = match (ours.sslcert, ours.sslkey) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(wrong("sslcert and sslkey belong together; write both or neither")),
        };
        Ok(Self { config, check, is_pooled, identity })
    }
}

/// The address without the parameters that are ours, and those.
fn split(url: &str) -> Option<(String, Ours)> {
    let mut ours = Ours::default();
    // A password may hold a question mark.
    let host_at = url.find('@').unwrap_or(0);
    let Some(query_at) = url[host_at..].find('?').map(|at| host_at + at) else {
        return Some((url.to_owned(), ours));
    };
    let mut theirs = Vec::new();
    for parameter in url[query_at + 1..].split('&') {
        let slot = parameter.split_once('=').and_then(|(name, value)| {
            ours.slot(&percent_decode_str(name).decode_utf8_lossy()).map(|slot| (slot, value))
        });
        match slot {
            Some((slot, value)) => {
                *slot = Some(percent_decode_str(value).decode_utf8().ok()?.into_owned());
            }
            None => theirs.push(parameter),
        }
    }
    Some((format!("{}?{}", &url[..query_at], theirs.join("&")), ours))
}

/// As libpq has it, but for one thing: an authority that signs for everybody proves nothing
/// unless the name is compared too.
fn encryption(ours: &Ours) -> Result<(SslMode, Check), PostgresOpenError> {
    let authorities = ours.sslrootcert.as_deref().map(|file| match file {
        "system" => Authorities::OfTheSystem,
        file => Authorities::In(file.into()),
    });
    let mode = ours.sslmode.as_deref().unwrap_or(match authorities {
        Some(Authorities::OfTheSystem) => "verify-full",
        _ => "prefer",
    });
    let everybody = || wrong("sslrootcert=system needs sslmode=verify-full");
    let by_authority = match &authorities {
        Some(Authorities::In(file)) => Ok(Some(Check::Authority(file.clone()))),
        Some(Authorities::OfTheSystem) => Err(everybody()),
        None => Ok(None),
    };
    Ok(match mode {
        "disable" => (SslMode::Disable, Check::Nothing),
        "prefer" => (SslMode::Prefer, by_authority?.unwrap_or(Check::Nothing)),
        "require" => (SslMode::Require, by_authority?.unwrap_or(Check::Nothing)),
        "verify-ca" => {
            let needs = "sslmode=verify-ca needs sslrootcert=FILE; without one, use verify-full";
            (SslMode::Require, by_authority?.ok_or_else(|| wrong(needs))?)
        }
        "verify-full" => {
            let authorities = authorities.unwrap_or(Authorities::OfTheSystem);
            (SslMode::Require, Check::Host(authorities))
        }
        _ => {
            return Err(wrong(
                "sslmode must be disable, prefer, require, verify-ca or verify-full",
            ));
        }
    })
}

fn wrong(text: &'static str) -> PostgresOpenError {
    PostgresOpenError::Parameter { text }
}

/// Whether all of it is reached through sockets of this machine, which need no encryption.
fn is_socket(config: &Config) -> bool {
    config.get_hosts().iter().all(|host| !matches!(host, Host::Tcp(_)))
}

/// Whether no byte leaves this machine.
pub(super) fn is_on_this_machine(config: &Config) -> bool {
    let is_here = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    let addresses = config.get_hostaddrs();
    config.get_hosts().iter().all(is_here) && addresses.iter().all(IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<(SslMode, Check), String> {
        let address = Address::parse(&format!("postgres://me:a?b@db/keys{query}"));
        address.map(|a| (a.config.get_ssl_mode(), a.check)).map_err(|error| error.to_string())
    }

    #[test]
    fn each_mode_says_what_is_encrypted_and_what_is_checked() {
        let authority = || Check::Authority("/ca.pem".into());
        let table = [
            ("", SslMode::Prefer, Check::Nothing),
            ("?sslmode=disable", SslMode::Disable, Check::Nothing),
            ("?sslmode=prefer&sslrootcert=/ca.pem", SslMode::Prefer, authority()),
            ("?sslmode=require", SslMode::Require, Check::Nothing),
            ("?sslmode=require&sslrootcert=%2Fca.pem", SslMode::Require, authority()),
            ("?sslrootcert=/ca.pem&sslmode=verify-ca", SslMode::Require, authority()),
            (
                "?connect_timeout=3&sslmode=verify-full&sslrootcert=/ca.pem",
                SslMode::Require,
                Check::Host(Authorities::In("/ca.pem".into())),
            ),
            ("?sslmode=verify-full", SslMode::Require, Check::Host(Authorities::OfTheSystem)),
            ("?sslrootcert=system", SslMode::Require, Check::Host(Authorities::OfTheSystem)),
        ];
        for (query, mode, check) in table {
            assert_eq!(read(query), Ok((mode, check)), "{query}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let table = [
            ("?sslmode=allow", "sslmode must be"),
            ("?sslmode=verify-ca", "needs sslrootcert=FILE"),
            ("?sslmode=verify-ca&sslrootcert=system", "needs sslmode=verify-full"),
            ("?sslmode=require&sslrootcert=system", "needs sslmode=verify-full"),
            ("?sslcert=/me.pem", "belong together"),
            ("?pooler=statement", "pooler must be transaction or session"),
            ("?nonsense=1", "not an address"),
        ];
        for (query, expected) in table {
            let said = read(query).expect_err(query);
            assert!(said.contains(expected), "{query}: {said}");
        }
    }

    #[test]
    fn a_socket_is_never_encrypted() {
        let address = Address::parse("postgres://me@%2Frun%2Fpg/keys?sslmode=verify-full");
        let config = address.expect("an address").config;
        assert_eq!(config.get_ssl_mode(), SslMode::Disable);
        assert!(is_on_this_machine(&config));
    }

    #[test]
    fn what_stays_on_this_machine_is_known() {
        let table = [
            ("postgres://localhost/a", true),
            ("postgres://127.0.0.1:5433/a", true),
            ("postgres://[::1]/a", true),
            ("postgres://db.internal/a", false),
            ("postgres://localhost,db.internal/a", false),
            ("postgres://localhost/a?hostaddr=10.0.0.1", false),
        ];
        for (url, expected) in table {
            let config = Address::parse(url).expect("an address").config;
            assert_eq!(is_on_this_machine(&config), expected, "{url}");
        }
    }
}
