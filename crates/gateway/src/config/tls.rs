//! What connections are encrypted with: from clients, and to the upstream.

use std::path::PathBuf;

use super::file::Section;
use super::mistakes::Mistakes;
use super::names::TLS;
use super::values::{Kind, PATH, choice};
use crate::tls::{self, files::Unfit};

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

/// The table `[tls]`, if it is there. Its files are read, too: a wrong one is a mistake.
pub(super) fn read(root: &mut Section<'_>, mistakes: &mut Mistakes) -> Option<Tls> {
    let mut section = root.child(&TLS);
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
    if let Some(tls) = tls.as_ref().filter(|_| is_sure)
        && let Err(Unfit { setting, text }) = tls::check(tls)
    {
        section.clash(&[setting], text);
    }
    section.finish(mistakes);
    tls
}
