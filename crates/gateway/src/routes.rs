//! [`Routes`]: which policy a request meets, and the page that tells of them all.

use std::sync::Arc;

use http::{Method, Request};
use ipnet::IpNet;
use selfsame::{Dialect, Idempotency, IdempotencyLayer, IdempotencyService, Policy, Work};
use selfsame_core::headers::authority;
use tower_layer::Layer;

use crate::config::{Config, Host, RouteSettings};
use crate::contract::ContractPage;
use crate::tenant;
use crate::upstream::Upstream;

/// The upstream behind one route's policy.
pub(crate) type Protected = IdempotencyService<Upstream>;

/// Every route's policy around the same upstream.
pub(crate) struct Routes {
    /// The closest host first.
    at_host: Vec<(Host, Paths)>,
    anywhere: Paths,
    otherwise: Protected,
    contract: Option<Arc<ContractPage>>,
}

/// A router for each method, because `PUT /a` must not hide `POST /{*rest}` from a `POST /a`.
#[derive(Default)]
struct Paths(Vec<(Method, matchit::Router<Protected>)>);

/// What stands before the upstream on each route, whoever serves it.
pub(crate) struct Protection {
    /// In the order of the configuration's routes.
    routes: Vec<Guard>,
    otherwise: Guard,
}

struct Guard {
    layer: IdempotencyLayer,
    dialect: Dialect,
}

impl Protection {
    pub(crate) fn new(config: &Config, idempotency: &Idempotency) -> Self {
        let trusted: Arc<[IpNet]> = config.trusted_proxies.clone().into();
        let address: Arc<str> = config.contract_address().into();
        let guard = |name: &str, settings: &RouteSettings, at: Option<&Host>| {
            let dialect = Dialect::new(settings.profile, address.clone())
                .readable_by(settings.cors_origins.clone());
            let policy = policy(name, settings, trusted.clone())
                .log_keys(config.log_keys)
                // Where hosts are told apart, another host is another request.
                .fingerprint_authority(at.is_some())
                .dialect(dialect.clone());
            Guard { layer: idempotency.layer(policy), dialect }
        };
        let routes = config.routes.iter();
        let routes = routes.map(|route| guard(&route.name(), &route.settings, route.host.as_ref()));
        Self { routes: routes.collect(), otherwise: guard("default", &config.defaults, None) }
    }
}

impl Guard {
    fn before(&self, upstream: &Upstream) -> Protected {
        self.layer.layer(upstream.with_dialect(self.dialect.clone()))
    }
}

impl Routes {
    /// With `contract`, the page of that name is ours; without it, the upstream's.
    pub(crate) fn new(
        config: &Config,
        protection: &Protection,
        upstream: &Upstream,
        contract: Option<Arc<ContractPage>>,
    ) -> Self {
        let otherwise = protection.otherwise.before(upstream);
        let (at_host, anywhere) = Default::default();
        let mut routes = Self { at_host, anywhere, otherwise, contract };
        for (route, guard) in config.routes.iter().zip(&protection.routes) {
            let protected = guard.before(upstream);
            let paths = routes.at(route.host.as_ref());
            for method in &route.settings.methods {
                let inserted = paths.of(method).insert(&route.pattern, protected.clone());
                inserted.expect("the configuration was checked for clashes");
            }
        }
        routes.at_host.sort_by_key(|(host, _)| host.rank());
        routes
    }

    /// The upstream behind the policy of this request.
    pub(crate) fn find<B>(&self, request: &Request<B>) -> Protected {
        let at_host = match self.at_host.is_empty() {
            true => None,
            false => self.find_at_host(request),
        };
        let found = at_host.or_else(|| self.anywhere.find(request));
        found.unwrap_or(&self.otherwise).clone()
    }

    /// The contract page, if that is what this path asks for.
    pub(crate) fn contract_at(&self, path: &str) -> Option<Arc<ContractPage>> {
        self.contract.as_ref().filter(|_| path == ContractPage::PATH).cloned()
    }

    fn find_at_host<B>(&self, request: &Request<B>) -> Option<&Protected> {
        let authority = authority(request.uri(), request.headers())?;
        let fitting = self.at_host.iter().filter(|(host, _)| host.fits(&authority));
        fitting.map(|(_, paths)| paths).find_map(|paths| paths.find(request))
    }

    fn at(&mut self, host: Option<&Host>) -> &mut Paths {
        let Some(host) = host else { return &mut self.anywhere };
        let known = self.at_host.iter().position(|(found, _)| found == host);
        let at = known.unwrap_or_else(|| {
            self.at_host.push((host.clone(), Paths::default()));
            self.at_host.len() - 1
        });
        &mut self.at_host[at].1
    }
}

impl Paths {
    fn find<B>(&self, request: &Request<B>) -> Option<&Protected> {
        let (_, paths) = self.0.iter().find(|(method, _)| method == request.method())?;
        Some(paths.at(request.uri().path()).ok()?.value)
    }

    fn of(&mut self, method: &Method) -> &mut matchit::Router<Protected> {
        let known = self.0.iter().position(|(found, _)| found == method);
        let at = known.unwrap_or_else(|| {
            self.0.push((method.clone(), matchit::Router::new()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

fn policy(name: &str, settings: &RouteSettings, trusted: Arc<[IpNet]>) -> Policy {
    Policy::new()
        .route(name)
        .mode(settings.mode)
        .key(settings.key)
        .key_headers(settings.key_headers.clone())
        .strict_keys(settings.strict)
        .methods(settings.methods.clone())
        .tenant(tenant::from_source(settings.tenant.clone(), trusted))
        .scope(settings.scope)
        .fingerprint(settings.fingerprint)
        .ignore(settings.ignore.clone())
        .fingerprint_headers(settings.fingerprint_headers.clone())
        .recover(settings.recover)
        .server_errors(settings.server_errors)
        .on_conflict(settings.on_conflict)
        .wait_max(settings.wait_max)
        .retention(settings.retention)
        .remember(settings.remember)
        .lease(settings.lease)
        .response_timeout(settings.response_timeout)
        .run_timeout(settings.run_timeout)
        .request_bytes_max(settings.request_bytes_max)
        .answer_bytes_max(settings.answer_bytes_max)
        .stream(settings.stream)
        .replay_status(settings.replay_status)
        .replay_set_cookie(settings.replay_set_cookie)
        .replay_also(settings.replay_also.clone())
        .replay_never(settings.replay_never.clone())
        .expires_header(settings.expires_header)
        .on_store_error(settings.on_store_error)
        .work(Work::Elsewhere)
}
