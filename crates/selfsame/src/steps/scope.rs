//! Step 2: whose key is it, and which record does it name?

use selfsame_core::{Label, RecordId, Scope, Secret};

use super::Keyed;
use crate::policy::{Policy, ScopeKind};
use crate::reject::Refusal;

pub(crate) struct Identity {
    pub(crate) id: RecordId,
    pub(crate) label: Label,
}

pub(crate) fn scope<B>(
    keyed: &Keyed<B>,
    policy: &Policy,
    secret: &Secret,
) -> Result<Identity, Refusal> {
    let tenant = (policy.tenant)(&keyed.parts).map_err(Refusal::MissingTenant)?;
    let scope = match policy.scope {
        ScopeKind::Tenant => Scope::Tenant,
        ScopeKind::Endpoint => {
            Scope::Endpoint { method: keyed.parts.method.clone(), route: policy.route.to_string() }
        }
    };
    let tag = tenant.tag(secret);
    Ok(Identity {
        id: RecordId::derive(secret, tag, &scope, &keyed.key),
        label: Label {
            tenant: tag,
            tenant_name: tenant.name().map(Into::into),
            key: keyed.key.clone(),
            route: (*policy.route).into(),
        },
    })
}
