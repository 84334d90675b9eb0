//! [`IdempotencyLayer`]: the layer that wraps a service.

use std::sync::Arc;

use tower_layer::Layer;

use crate::engine::Engine;
use crate::policy::{Mode, Policy};
use crate::service::IdempotencyService;
use crate::telemetry::Meter;

/// Wraps a service so that the same key gives the same answer. Made by
/// [`Idempotency::layer`](crate::Idempotency::layer).
#[derive(Clone)]
pub struct IdempotencyLayer {
    engine: Arc<Engine>,
    policy: Arc<Policy>,
    meter: Arc<Meter>,
}

impl IdempotencyLayer {
    pub(crate) fn new(engine: Arc<Engine>, policy: Policy) -> Self {
        if policy.mode == Mode::Observe {
            tracing::info!(route = &*policy.route, "requests are observed, and not protected");
        }
        let meter = Arc::new(Meter::new(policy.route.clone()));
        Self { engine, policy: Arc::new(policy), meter }
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let Self { engine, policy, meter } = self.clone();
        IdempotencyService { inner, engine, policy, meter }
    }
}
