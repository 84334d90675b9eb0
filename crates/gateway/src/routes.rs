//! [`Routes`]: which policy a request meets.

use std::sync::Arc;

use http::Method;
use ipnet::IpNet;
use selfsame::{Dialect, Idempotency, IdempotencyService, Policy, Problem, Work};
use tower_layer::Layer;

use crate::config::{Config, RouteSettings};
use crate::tenant;
use crate::upstream::Upstream;

/// The upstream behind one route's policy.
pub(crate) type Protected = IdempotencyService<Upstream>;

/// Every route's policy around the same upstream: a router for each method, because `PUT /a` must
/// not hide `POST /{*rest}` from a `POST /a`.
pub(crate) struct Routes {
    by_method: Vec<(Method, matchit::Router<Protected>)>,
    otherwise: Protected,
}

impl Routes {
    pub(crate) fn new(config: &Config, idempotency: &Idempotency, upstream: &Upstream) -> Self {
        let trusted: Arc<[IpNet]> = config.trusted_proxies.clone().into();
        let protect = |name: &str, settings: &RouteSettings| {
            let dialect = Dialect::new(settings.profile, Problem::CONTRACT_PAGE);
            let policy = policy(name, settings, trusted.clone())
                .log_keys(config.log_keys)
                .dialect(dialect.clone());
            idempotency.layer(policy).layer(upstream.with_dialect(dialect))
        };
        let mut routes =
            Self { by_method: Vec::new(), otherwise: protect("default", &config.defaults) };
        for route in &config.routes {
            let protected = protect(&route.pattern, &route.settings);
            for method in &route.settings.methods {
                let inserted = routes.of(method).insert(&route.pattern, protected.clone());
                inserted.expect("the configuration was checked for clashes");
            }
        }
        routes
    }

    /// The upstream behind the policy of this method and path.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Protected {
        let routes = self.by_method.iter().find(|(found, _)| found == method);
        let found = routes.and_then(|(_, routes)| routes.at(path).ok());
        found.map_or(&self.otherwise, |found| found.value).clone()
    }

    fn of(&mut self, method: &Method) -> &mut matchit::Router<Protected> {
        let known = self.by_method.iter().position(|(found, _)| found == method);
        let at = known.unwrap_or_else(|| {
            self.by_method.push((method.clone(), matchit::Router::new()));
            self.by_method.len() - 1
        });
        &mut self.by_method[at].1
    }
}

fn policy(name: &str, settings: &RouteSettings, trusted: Arc<[IpNet]>) -> Policy {
    Policy::new()
        .route(name)
        .key(settings.key)
        .key_headers(settings.key_headers.clone())
        .strict_keys(settings.strict)
        .methods(settings.methods.clone())
        .tenant(tenant::from_source(settings.tenant.clone(), trusted))
        .scope(settings.scope)
        .fingerprint(settings.fingerprint)
        .fingerprint_headers(settings.fingerprint_headers.clone())
        .recover(settings.recover)
        .server_errors(settings.server_errors)
        .on_conflict(settings.on_conflict)
        .wait_max(settings.wait_max)
        .retention(settings.retention)
        .lease(settings.lease)
        .response_timeout(settings.response_timeout)
        .run_timeout(settings.run_timeout)
        .request_bytes_max(settings.request_bytes_max)
        .answer_bytes_max(settings.answer_bytes_max)
        .stream(settings.stream)
        .replay_set_cookie(settings.replay_set_cookie)
        .expires_header(settings.expires_header)
        .on_store_error(settings.on_store_error)
        .work(Work::Elsewhere)
}
