//! Step 2: whose key is it, and which record does it name?

use http::request::Parts;
use selfsame_core::{Key, Label, RecordId, Scope, Secret};

use crate::policy::{Policy, ScopeKind};
use crate::reject::Refusal;

pub(crate) struct Identity {
    pub(crate) id: RecordId,
    pub(crate) label: Label,
    /// Whether callers who do not know of each other have the tenant in common.
    pub(crate) is_shared: bool,
}

pub(crate) fn scope(
    key: Key,
    parts: &Parts,
    policy: &Policy,
    secret: &Secret,
) -> Result<Identity, Refusal> {
    let tenant = (policy.tenant)(parts).map_err(Refusal::MissingTenant)?;
    let scope = match policy.scope {
        ScopeKind::Tenant => Scope::Tenant,
        ScopeKind::Endpoint => {
            Scope::Endpoint { method: parts.method.clone(), route: policy.route.to_string() }
        }
    };
    let tag = tenant.tag(secret);
    Ok(Identity {
        id: RecordId::derive(secret, tag, &scope, &key),
        label: Label {
            tenant: tag,
            tenant_name: tenant.name().map(Into::into),
            key,
            route: policy.route.clone(),
        },
        is_shared: tenant.is_shared(),
    })
}
