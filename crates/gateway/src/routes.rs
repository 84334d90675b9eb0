//! [`Routes`]: which policy a request meets.

use std::sync::Arc;

use http::Method;
use ipnet::IpNet;
use selfsame::{Idempotency, IdempotencyService, Policy, Work};
use tower_layer::Layer;

use crate::config::{Config, RouteSettings};
use crate::tenant;
use crate::upstream::Upstream;

/// The upstream behind one route's policy.
pub(crate) type Protected = IdempotencyService<Upstream>;

/// Every route's policy around the same upstream.
pub(crate) struct Routes {
    paths: matchit::Router<Vec<(Vec<Method>, Protected)>>,
    otherwise: Protected,
}

impl Routes {
    pub(crate) fn new(config: &Config, idempotency: &Idempotency, upstream: &Upstream) -> Self {
        let trusted: Arc<[IpNet]> = config.trusted_proxies.clone().into();
        let protect = |name: &str, settings: &RouteSettings| {
            let policy = policy(name, settings, trusted.clone()).log_keys(config.log_keys);
            idempotency.layer(policy).layer(upstream.clone())
        };
        let mut by_path: Vec<(&str, Vec<(Vec<Method>, Protected)>)> = Vec::new();
        for route in &config.routes {
            let protected = protect(&route.pattern, &route.settings);
            let entry = (route.settings.methods.clone(), protected);
            match by_path.iter_mut().find(|(path, _)| *path == route.pattern) {
                Some((_, entries)) => entries.push(entry),
                None => by_path.push((&route.pattern, vec![entry])),
            }
        }
        let mut paths = matchit::Router::new();
        for (path, entries) in by_path {
            paths.insert(path, entries).expect("the configuration was checked for clashes");
        }
        Self { paths, otherwise: protect("default", &config.defaults) }
    }

    /// The upstream behind the policy of this method and path.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Protected {
        let entries = self.paths.at(path).map(|found| found.value.as_slice()).unwrap_or_default();
        let found = entries.iter().find(|(methods, _)| methods.contains(method));
        found.map_or(&self.otherwise, |(_, protected)| protected).clone()
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
        .retention(settings.retention)
        .lease(settings.lease)
        .response_timeout(settings.response_timeout)
        .run_timeout(settings.run_timeout)
        .request_bytes_max(settings.request_bytes_max)
        .answer_bytes_max(settings.answer_bytes_max)
        .stream(settings.stream)
        .replay_set_cookie(settings.replay_set_cookie)
        .on_store_error(settings.on_store_error)
        .work(Work::Elsewhere)
}
