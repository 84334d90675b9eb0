//! [`IdempotencyLayer`]: the layer that wraps a service.

use std::sync::Arc;

use tower_layer::Layer;

use crate::engine::Engine;
use crate::policy::{Mode, Policy};
use crate::service::IdempotencyService;
use crate::telemetry::Meter;

/// What all requests of a route share. In one place, because each counts itself among its holders,
/// for which the cores have to take turns.
pub(crate) struct Route {
    pub(crate) engine: Arc<Engine>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) meter: Meter,
}

/// Wraps a service so that the same key gives the same answer. Made by
/// [`Idempotency::layer`](crate::Idempotency::layer).
#[derive(Clone)]
pub struct IdempotencyLayer {
    route: Arc<Route>,
}

impl IdempotencyLayer {
    pub(crate) fn new(engine: Arc<Engine>, policy: Policy) -> Self {
        if policy.mode == Mode::Observe {
            tracing::info!(route = &*policy.route, "requests are observed, and not protected");
        }
        let meter = Meter::new(policy.route.clone());
        Self { route: Arc::new(Route { engine, policy: Arc::new(policy), meter }) }
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService { inner, route: self.route.clone() }
    }
}
