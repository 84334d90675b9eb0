//! The configured tenant source, as the layer asks it.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, HeaderValue};
use ipnet::IpNet;
use selfsame::Tenant;
use selfsame::tenant::{self, MissingTenant};

use crate::config::TenantSource;
use crate::forward_auth::Vouched;
use crate::jwt::Verifier;
use crate::peer::Peer;

/// The tenant of a request by `source`; headers count only from `trusted` peers, tokens if the
/// `verifier` believes them.
pub(crate) fn from_source(
    source: TenantSource,
    trusted: Arc<[IpNet]>,
    verifier: Option<Arc<Verifier>>,
) -> impl Fn(&Parts) -> Result<Tenant, MissingTenant> + Send + Sync + 'static {
    move |parts| match &source {
        TenantSource::Authorization => authorized(parts, &trusted),
        TenantSource::Credential(name) => tenant::credential(parts, name),
        TenantSource::Cookie(name) => tenant::cookie(parts, name),
        TenantSource::Header(_) if !is_trusted(parts, &trusted) => Err(MissingTenant::new(
            "this service knows its callers by a header that only its own proxies may set, and \
             the request did not come through one",
        )),
        TenantSource::Header(name) => tenant::header(parts, name),
        TenantSource::Jwt { claim, .. } => {
            verifier.as_ref().expect("without [jwt] no route has it").tenant(claim, parts)
        }
        TenantSource::ForwardAuth { header } => vouched_for(parts, header),
        TenantSource::Mtls => certified(parts),
        TenantSource::None => tenant::none(parts),
    }
}

/// The credential in `Authorization`. A certificate is a credential too, so those who have shown
/// only that do not share the anonymous tenant; a proxy's own tells nothing of its callers.
fn authorized(parts: &Parts, trusted: &[IpNet]) -> Result<Tenant, MissingTenant> {
    let tenant = tenant::authorization(parts)?;
    let peer: Option<&Peer> = parts.extensions.get();
    let is_certified = peer.is_some_and(|peer| peer.holder.is_some() && !peer.is_among(trusted));
    match tenant.is_shared() && is_certified {
        true => Err(MissingTenant::new(
            "the request came with a client certificate and no Authorization header, so callers \
             cannot be told apart; send the credential in Authorization, or have the service take \
             callers from their certificates: tenant = \"mtls\"",
        )),
        false => Ok(tenant),
    }
}

fn is_trusted(parts: &Parts, trusted: &[IpNet]) -> bool {
    parts.extensions.get().is_some_and(|peer: &Peer| peer.is_among(trusted))
}

/// Where a tenant comes from that another service names in this header.
pub(crate) fn forward_auth_source(header: &HeaderName) -> String {
    format!("forward-auth:{header}")
}

fn vouched_for(parts: &Parts, header: &HeaderName) -> Result<Tenant, MissingTenant> {
    match parts.extensions.get() {
        Some(Vouched(name)) => Ok(Tenant::named(&forward_auth_source(header), name)),
        None => Err(MissingTenant::new("nobody was asked whose request this is")),
    }
}

fn certified(parts: &Parts) -> Result<Tenant, MissingTenant> {
    let peer: Option<&Peer> = parts.extensions.get();
    match peer.and_then(|peer| peer.holder.as_deref()) {
        Some(holder) => Ok(Tenant::named("mtls", holder)),
        None => Err(MissingTenant::new(
            "this service knows its callers by their client certificates; connect with one that \
             says whose it is",
        )
        .challenge(HeaderValue::from_static("ClientCertificate"))),
    }
}
