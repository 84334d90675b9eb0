//! The configured tenant source, as the layer asks it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::request::Parts;
use ipnet::IpNet;
use selfsame::Tenant;
use selfsame::tenant::{self, MissingTenant};

use crate::config::TenantSource;
use crate::jwt::Verifier;

/// Who is at the other end of the connection; found in the request's extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// The tenant of a request by `source`; headers count only from `trusted` peers, tokens if the
/// `verifier` believes them.
pub(crate) fn from_source(
    source: TenantSource,
    trusted: Arc<[IpNet]>,
    verifier: Option<Arc<Verifier>>,
) -> impl Fn(&Parts) -> Result<Tenant, MissingTenant> + Send + Sync + 'static {
    move |parts| match &source {
        TenantSource::Authorization => tenant::authorization(parts),
        TenantSource::Cookie(name) => tenant::cookie(parts, name),
        TenantSource::Header(_) if !is_trusted(parts, &trusted) => Err(MissingTenant::new(
            "this service knows its callers by a header that only its own proxies may set, and \
             the request did not come through one",
        )),
        TenantSource::Header(name) => tenant::header(parts, name),
        TenantSource::Jwt { claim, .. } => {
            verifier.as_ref().expect("without [jwt] no route has it").tenant(claim, parts)
        }
        TenantSource::None => tenant::none(parts),
    }
}

fn is_trusted(parts: &Parts, trusted: &[IpNet]) -> bool {
    let Some(Peer(address)) = parts.extensions.get() else { return false };
    // A dual-stack socket shows IPv4 peers as IPv6.
    let ip: IpAddr = address.ip().to_canonical();
    trusted.iter().any(|net| net.contains(&ip))
}
