//! `Mode::Observe`: nobody notices, and what would have become of each request is counted.

mod counts;
mod unnoticed;

use std::convert::Infallible;
use std::future::Future;

use http::{Request, Response};
use http_body_util::BodyExt;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use selfsame::{IdempotencyService, Mode, Policy, RequestBody, Served};
use tower::Layer;

use crate::support::{Body, Inner, Rig, Runs, answer, send};

fn observing() -> Policy {
    Policy::new().mode(Mode::Observe)
}

/// A service that reads its request's body and then works.
fn reading<W, F, E>(rig: &Rig, policy: Policy, work: W) -> IdempotencyService<impl Inner<E>>
where
    W: Fn(usize) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
    E: Send + 'static,
{
    let runs = Runs::default();
    let service = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let (runs, work) = (runs.clone(), work.clone());
        async move {
            request.into_body().collect().await.map_err(|never| match never {}).expect("read");
            work(runs.begin()).await
        }
    });
    rig.idempotency.layer(policy).layer(service)
}

/// A service that answers each request with another charge.
pub(crate) fn charging(rig: &Rig, policy: Policy) -> IdempotencyService<impl Inner<Infallible>> {
    let charge = |number| async move { Ok(answer(201, format!("charge {number}"))) };
    reading(rig, policy, charge)
}

/// What was counted while this lives.
struct Counted {
    recorder: PrometheusRecorder,
}

impl Counted {
    fn new() -> Self {
        Self { recorder: PrometheusBuilder::new().build_recorder() }
    }

    fn number(&self, metric: &str) -> u64 {
        let text = self.recorder.handle().render();
        let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
        line.map_or(0, |number| number.parse().expect("a whole number"))
    }

    /// How many requests would have been served so.
    fn observed(&self, outcome: &str) -> u64 {
        let labels = format!(r#"{{route="default",outcome="{outcome}"}}"#);
        self.number(&format!("selfsame_observed_total{labels}"))
    }

    fn unobserved(&self, reason: &str) -> u64 {
        let labels = format!(r#"{{route="default",reason="{reason}"}}"#);
        self.number(&format!("selfsame_unobserved_total{labels}"))
    }

    fn differing(&self) -> u64 {
        self.number(r#"selfsame_observed_differing_answers_total{route="default"}"#)
    }
}

/// Counts what happens on this thread, which is where these tests' tasks run.
macro_rules! counted {
    ($counted:ident) => {
        let $counted = Counted::new();
        let _counting = metrics::set_default_local_recorder(&$counted.recorder);
    };
}

/// Sends it, checks that it passed, and comes back when it is counted.
async fn pass<S, E>(rig: &Rig, service: &IdempotencyService<S>, request: Request<Body>) -> String
where
    S: Inner<E>,
    E: std::fmt::Debug + Send,
{
    let seen = send(service, request).await;
    assert_eq!((seen.served, seen.replayed), (Served::Passed, false), "{seen:?}");
    rig.idempotency.drained().await;
    seen.body
}

use counted;
