//! [`Routes`]: which policy a request meets, and the page that tells of them all.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use ipnet::IpNet;
use parking_lot::{RwLock, RwLockReadGuard};
use selfsame::{Dialect, Idempotency, IdempotencyLayer, IdempotencyService, Policy, Work};
use tower_layer::Layer;

use crate::checkpoints::Invitation;
use crate::config::{self, Config, Host, RouteSettings, TenantSource};
use crate::contract::ContractPage;
use crate::forward_auth::{AuthRole, ForwardAuth};
use crate::jwt::Verifier;
use crate::request_head::HeadRules;
use crate::request_path::{Slashes, normal};
use crate::route_table::{Entry, RouteTable};
use crate::status::{LookUp, StatusPage};
use crate::tenant;
use crate::tls::files::Unfit;
use crate::upstream::{ConnectionLimits, Outward, Upstream, Upstreams};

/// The upstream behind one route's policy.
#[derive(Clone)]
pub(crate) struct Protected {
    pub(crate) service: IdempotencyService<Upstream>,
    /// Who is asked whose requests they are, if somebody is.
    pub(crate) auth: Option<Arc<ForwardAuth>>,
}

/// Every route's policy around its upstream.
pub(crate) struct Routes {
    pub(crate) head_rules: Arc<HeadRules>,
    table: RouteTable<Protected>,
    slashes: Slashes,
    otherwise: Protected,
    pages: Pages,
    tells_status: bool,
    upstreams: Upstreams,
    /// The shortest time after which abandoned requests are run again, if any are.
    completes_after: Option<Duration>,
}

/// What clients find at the gateway itself.
#[derive(Clone)]
pub(crate) struct Pages {
    /// None where its path is the upstream's.
    pub(crate) contract: Option<Arc<ContractPage>>,
    /// Asked only where the configuration has it switched on.
    pub(crate) status: Arc<StatusPage>,
}

/// The routes that count; others may take their place while requests come and go.
pub(crate) struct LiveRoutes(RwLock<Routes>);

impl LiveRoutes {
    pub(crate) fn new(routes: Routes) -> Self {
        Self(RwLock::new(routes))
    }

    /// What is looked up here is kept by whoever looks: nothing that began is disturbed by a change.
    pub(crate) fn look(&self) -> RwLockReadGuard<'_, Routes> {
        self.0.read()
    }

    /// Puts what `next` makes of the routes in their place.
    pub(crate) fn change(&self, next: impl FnOnce(&Routes) -> Routes) {
        let next = next(&self.look());
        *self.0.write() = next;
    }
}

/// What stands before the upstream on each route, whoever serves it.
pub(crate) struct Protection {
    /// In the order of the configuration's routes.
    routes: Vec<Guard>,
    otherwise: Guard,
    outward: Outward,
}

struct Guard {
    /// The route's name.
    name: Arc<str>,
    layer: IdempotencyLayer,
    dialect: Dialect,
    invitation: Option<Invitation>,
    head_rules: Arc<HeadRules>,
    auth: Option<Arc<ForwardAuth>>,
}

impl Protection {
    /// With `invitation`, upstreams may save how far their runs have come.
    ///
    /// # Errors
    /// A file for TLS with upstreams that is of no use.
    pub(crate) fn new(
        config: &Config,
        idempotency: &Idempotency,
        invitation: Option<&Invitation>,
        connections: &Arc<ConnectionLimits>,
    ) -> Result<Self, Unfit> {
        let trusted: Arc<[IpNet]> = config.trusted_proxies.clone().into();
        let verifier = config
            .jwt
            .as_ref()
            .map(|jwt| Arc::new(Verifier::new(jwt).expect("the configuration was checked")));
        let outward = Outward::open(config, connections)?;
        let auth = config.forward_auth.as_ref();
        let ask = |role| {
            auth.map(|auth| Arc::new(ForwardAuth::new(auth, role, &outward, trusted.clone())))
        };
        let (naming, permitting) = (ask(AuthRole::NamesTenants), ask(AuthRole::Permits));
        let address: Arc<str> = config.contract_address().into();
        let head_rules = Arc::new(HeadRules::new(config));
        let guard = |name: &str, settings: &RouteSettings, at: Option<&Host>| {
            let dialect = Dialect::new(settings.profile, address.clone())
                .readable_by(settings.cors_origins.clone());
            let policy = policy(name, settings, trusted.clone(), verifier.clone())
                .log_keys(config.log_keys)
                // Where hosts are told apart, another host is another request.
                .fingerprint_authority(at.is_some())
                .dialect(dialect.clone());
            let invitation = invitation.map(|invitation| invitation.for_runs_of(settings));
            let auth = match settings.tenant {
                TenantSource::ForwardAuth { .. } => naming.clone(),
                _ => permitting.clone().filter(|_| settings.needs_permission),
            };
            let head_rules = head_rules.clone();
            let (name, layer) = (name.into(), idempotency.layer(policy));
            Guard { name, layer, dialect, invitation, head_rules, auth }
        };
        let routes = config.routes.iter();
        let routes = routes.map(|route| guard(&route.name(), &route.settings, route.host.as_ref()));
        let otherwise = guard("default", &config.defaults, None);
        Ok(Self { routes: routes.collect(), otherwise, outward })
    }
}

impl Guard {
    fn before(&self, upstream: &Upstream) -> Protected {
        let Self { name, layer, dialect, invitation, head_rules, auth } = self;
        let (dialect, invitation) = (dialect.clone(), invitation.clone());
        let upstream = upstream.for_route(name, dialect, invitation, head_rules.clone());
        Protected { service: layer.layer(upstream), auth: auth.clone() }
    }
}

impl Routes {
    /// Connections of the routes `before` are used on.
    pub(crate) fn new(
        config: &Config,
        protection: &Protection,
        pages: Pages,
        before: Option<&Self>,
    ) -> Self {
        let known = before.map(|routes| routes.upstreams.clone()).unwrap_or_default();
        let mut upstreams = Upstreams::default();
        let mut upstream = |at: &Option<config::Upstream>| {
            let address = at.as_ref().unwrap_or(&config.upstream);
            upstreams.at(address, &protection.outward, &known).clone()
        };
        let otherwise = protection.otherwise.before(&upstream(&None));
        let has_several = config.routes.iter().any(|route| route.upstream.is_some());
        let entries = config.routes.iter().zip(&protection.routes).map(|(route, guard)| {
            let upstream = upstream(&route.upstream);
            let passing = has_several.then(|| protection.otherwise.before(&upstream));
            Entry { route, taken: guard.before(&upstream), passing }
        });
        let entries: Vec<_> = entries.collect();
        let slashes = Slashes::merged_if(config.merge_slashes);
        Self {
            head_rules: protection.otherwise.head_rules.clone(),
            table: RouteTable::new(slashes, &entries),
            slashes,
            otherwise,
            pages,
            tells_status: config.status,
            upstreams,
            completes_after: config.completes_after(),
        }
    }

    /// The shortest time after which abandoned requests are run again, if any are.
    pub(crate) fn completes_after(&self) -> Option<Duration> {
        self.completes_after
    }

    /// The upstream behind the policy of this request.
    pub(crate) fn find<B>(&self, request: &Request<B>) -> Protected {
        let found = self.table.taker(request).or_else(|| self.table.passing(request));
        found.unwrap_or(&self.otherwise).clone()
    }

    /// The contract page, if that is what this path asks for.
    pub(crate) fn contract_at(&self, path: &str) -> Option<Arc<ContractPage>> {
        let page = self.pages.contract.as_ref()?;
        ContractPage::is_at(&normal(path, self.slashes)).then(|| page.clone())
    }

    /// The question about a key, if that is what this request is.
    pub(crate) fn look_up_at<B>(&self, request: &Request<B>) -> Option<Box<LookUp>> {
        let is_one =
            self.tells_status && StatusPage::is_at(&normal(request.uri().path(), self.slashes));
        is_one
            .then(|| Box::new(self.pages.status.clone().look_up(request, |named| self.find(named))))
    }

    pub(crate) fn status_page(&self) -> Arc<StatusPage> {
        self.pages.status.clone()
    }
}

fn policy(
    name: &str,
    settings: &RouteSettings,
    trusted: Arc<[IpNet]>,
    verifier: Option<Arc<Verifier>>,
) -> Policy {
    Policy::new()
        .route(name)
        .mode(settings.mode)
        .key(settings.key)
        .key_headers(settings.key_headers.clone())
        .key_pointer(settings.key_pointer.clone())
        .strict_keys(settings.strict)
        .key_rules(settings.key_rules)
        .methods(settings.methods.clone())
        .tenant(tenant::from_source(settings.tenant.clone(), trusted, verifier))
        .scope(settings.scope)
        .fingerprint(settings.fingerprint)
        .ignore(settings.ignore.clone())
        .fingerprint_headers(settings.fingerprint_headers.clone())
        .mismatch_hint(settings.mismatch_hint)
        .recover(settings.recover)
        .probe(settings.probe.clone())
        .completing(settings.completing.clone())
        .server_errors(settings.server_errors)
        .final_statuses(settings.final_statuses.clone())
        .transient_statuses(settings.transient_statuses.clone())
        .unknown_statuses(settings.unknown_statuses.clone())
        .on_conflict(settings.on_conflict)
        .wait_max(settings.wait_max)
        .retention(settings.retention)
        .remember(settings.remember)
        .lease(settings.lease)
        .response_timeout(settings.response_timeout)
        .run_timeout(settings.run_timeout)
        .request_bytes_max(settings.request_bytes_max)
        .answer_bytes_max(settings.answer_bytes_max)
        .max_live_keys(settings.live_keys_max)
        .max_claims(settings.claims_max)
        .max_held_keys(settings.held_keys_max)
        .stream(settings.stream)
        .replay_status(settings.replay_status)
        .replay_set_cookie(settings.replay_set_cookie)
        .replay_also(settings.replay_also.clone())
        .replay_never(settings.replay_never.clone())
        .expires_header(settings.expires_header)
        .on_store_error(settings.on_store_error)
        .work(Work::Elsewhere)
}
