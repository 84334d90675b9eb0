//! [`Peer`]: who is at the other end of a client's connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

/// Who is at the other end; found in the extensions of each request.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Whether nobody in between can read along.
    pub(crate) is_encrypted: bool,
    /// Whose certificate it has shown, if any: subject and issuer.
    pub(crate) holder: Option<Arc<str>>,
}

impl Peer {
    pub(crate) fn ip(&self) -> IpAddr {
        // A dual-stack socket shows IPv4 peers as IPv6.
        self.address.ip().to_canonical()
    }

    pub(crate) fn is_among(&self, networks: &[IpNet]) -> bool {
        let ip = self.ip();
        networks.iter().any(|network| network.contains(&ip))
    }
}
