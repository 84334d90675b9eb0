//! [`IdempotencyLayer`]: the layer that wraps a service.

use std::sync::Arc;

use tower_layer::Layer;

use crate::engine::Engine;
use crate::policy::{Mode, Policy};
use crate::service::IdempotencyService;

/// Wraps a service so that the same key gives the same answer. Made by
/// [`Idempotency::layer`](crate::Idempotency::layer).
#[derive(Clone)]
pub struct IdempotencyLayer {
    engine: Arc<Engine>,
    policy: Arc<Policy>,
}

impl IdempotencyLayer {
    pub(crate) fn new(engine: Arc<Engine>, policy: Policy) -> Self {
        if policy.mode == Mode::Observe {
            tracing::info!(route = &*policy.route, "requests are observed, and not protected");
        }
        Self { engine, policy: Arc::new(policy) }
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, self.engine.clone(), self.policy.clone())
    }
}
