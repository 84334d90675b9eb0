//! What connections are encrypted with: from clients, and to the upstream.

use std::path::PathBuf;

use rustls::pki_types::ServerName;

use super::file::Section;
use super::mistakes::Mistakes;
use super::names::{UPSTREAM_TLS, Vocabulary};
use super::network::SERVER_NAME;
use super::values::{Kind, PATH, choice};
use crate::tls::{self, files::Unfit};
use crate::upstream::ClientTls;

/// How clients connect: encrypted, and not otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The file with the certificate that they are shown, and those that vouch for it.
    pub cert: PathBuf,
    /// The file with its key.
    pub key: PathBuf,
    /// Who may connect, if certificates tell.
    pub clients: Option<Clients>,
}

/// Whose certificates are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// The file with the certificates of those who sign clients'.
    pub ca: PathBuf,
    /// Whether each client must show one.
    pub auth: ClientAuth,
}

/// Whether clients must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// Without one, there is no connection.
    Required,
    /// They may come without one. A wrong one is refused all the same.
    Optional,
}

const CLIENT_AUTH: Kind<ClientAuth> = Kind {
    expected: r#""required" or "optional""#,
    read: |value| {
        let choices = [("required", ClientAuth::Required), ("optional", ClientAuth::Optional)];
        choice(value, &choices)
    },
};

/// Whether nobody is asked for a certificate.
pub(super) fn asks_nobody(tls: Option<&Tls>) -> bool {
    tls.is_none_or(|tls| tls.clients.is_none())
}

/// A listener's table, `[tls]` or `[admin_tls]`, if it is there. Its files are read, too: a wrong one is a
/// mistake.
pub(super) fn read(
    root: &mut Section<'_>,
    table: &'static Vocabulary,
    mistakes: &mut Mistakes,
) -> Option<Tls> {
    let mut section = root.child(table);
    let (cert, key) = (section.get("cert", &PATH), section.get("key", &PATH));
    let (ca, auth) = (section.get("client_ca", &PATH), section.get("client_auth", &CLIENT_AUTH));
    if !section.is_written() {
        return None;
    }
    if cert.is_none() {
        section.missing("cert", "is missing; name the PEM file with the server's certificate");
    }
    if key.is_none() {
        section.missing("key", "is missing; name the PEM file with the certificate's key");
    }
    if ca.is_none() && !section.is_wrong("client_ca") {
        section.clash(&["client_auth"], "needs client_ca, which tells whose certificates count");
    }
    let is_sure = !section.is_wrong("client_ca") && !section.is_wrong("client_auth");
    let clients = ca.map(|ca| Clients { ca, auth: auth.unwrap_or(ClientAuth::Required) });
    let tls = cert.zip(key).map(|(cert, key)| Tls { cert, key, clients });
    for Unfit { setting, text } in tls.as_ref().filter(|_| is_sure).map_or(vec![], tls::check) {
        section.clash(&[setting], text);
    }
    section.finish(mistakes);
    tls
}

/// How upstreams are known that are spoken to over TLS, and what they are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The file with the authorities that vouch for them; without one, those of the system do.
    pub ca: Option<PathBuf>,
    /// The files with the certificate that they are shown, and with its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whom their certificates must be for, where that is not the host they are reached at.
    pub server_name: Option<ServerName<'static>>,
}

/// The table `[upstream_tls]`. Its files are read where an upstream `is_encrypted`.
pub(super) fn read_upstream(
    root: &mut Section<'_>,
    is_encrypted: bool,
    mistakes: &mut Mistakes,
) -> UpstreamTls {
    let mut section = root.child(&UPSTREAM_TLS);
    let (cert, key) = (section.get("cert", &PATH), section.get("key", &PATH));
    if cert.is_some() != key.is_some() && !section.is_wrong("cert") && !section.is_wrong("key") {
        section.clash(&["cert", "key"], "a certificate and its key are only of use together");
    }
    let tls = UpstreamTls {
        ca: section.get("ca", &PATH),
        identity: cert.zip(key),
        server_name: section.get("server_name", &SERVER_NAME),
    };
    let is_sure = ["ca", "cert", "key"].iter().all(|name| !section.is_wrong(name));
    match is_encrypted {
        true if is_sure => {
            for Unfit { setting, text } in ClientTls::check(&tls) {
                match section.blame(&[setting]) {
                    Some(_) => section.clash(&[setting], text),
                    None => section.missing(setting, &text),
                }
            }
        }
        false if !root.is_wrong("upstream") => {
            let names = ["ca", "cert", "key", "server_name"];
            section.clash(&names, "no upstream is spoken to over TLS, as \"https://…\" would be");
        }
        _ => {}
    }
    section.finish(mistakes);
    tls
}
