//! [`IdempotencyService`]: one request's way, from the key to the replay.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::sync::oneshot;
use tower_service::Service;

use crate::body::{BoxError, RequestBody, ResponseBody};
use crate::delivery::{Delivery, await_reply};
use crate::engine::Engine;
use crate::observe;
use crate::outcome::Served;
use crate::policy::{Mode, Policy};
use crate::reject::{self, Refusal};
use crate::steps::{self, Parsed, Recorder, Settled};
use crate::telemetry::Meter;
use crate::timing::{RanFor, Stopwatch};

/// A service behind [`IdempotencyLayer`](crate::IdempotencyLayer). Its errors are the inner
/// service's own: a refusal is a response.
#[derive(Clone)]
pub struct IdempotencyService<S> {
    pub(crate) inner: S,
    pub(crate) engine: Arc<Engine>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) meter: Arc<Meter>,
}

impl<S> IdempotencyService<S> {
    /// The seven steps: parse, scope, fingerprint, claim, run, record, replay.
    async fn handle<B, R>(self, request: Request<B>) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let Self { mut inner, engine, policy, meter: _ } = self;
        if policy.mode == Mode::Observe {
            return Box::pin(observe::pass(&mut inner, request, engine, policy)).await;
        }

        let dialect = policy.dialect.to_sender_of(request.headers());
        let keyed = match steps::parse(request, &policy) {
            Parsed::Keyed(keyed) => keyed,
            Parsed::Unkeyed(request) => {
                return steps::pass(&mut inner, request.map(RequestBody::streamed)).await;
            }
            Parsed::Refused(refusal, _) => return Ok(reject::answer(&refusal, &dialect)),
        };
        let identity = match steps::scope(&keyed, &policy, &engine.secret) {
            Ok(identity) => identity,
            Err(refusal) => return Ok(reject::answer(&refusal, &dialect)),
        };
        engine.suspicions.look(&identity.label.key, identity.label.tenant);
        let asked = match steps::fingerprint(keyed, identity, &policy, &engine.secret).await {
            Ok(asked) => asked,
            Err(refusal) => return Ok(reject::answer(&refusal, &dialect)),
        };

        // The client may hang up from here on: what is claimed is run and recorded all the same.
        let (reply, answer) = oneshot::channel();
        let (home, response_timeout, waiting) =
            (engine.clone(), policy.response_timeout, dialect.clone());
        let work = Box::pin(async move {
            let turn = steps::take_turn(&engine, &asked.ask, asked.preferred_wait, &policy).await;
            let delivery = match turn.settled {
                Settled::Run(claim) => {
                    let claim = Arc::new(claim.start());
                    let deadline = tokio::time::Instant::now() + policy.run_timeout;
                    // Boxed, so that those who wait for their turn do not hold room for a run.
                    let mut recorded = Box::pin(async {
                        let ran = steps::run(inner, asked.request, &claim, deadline).await;
                        let recorder = Recorder {
                            claim: &claim,
                            engine: &engine,
                            policy: &policy,
                            dialect: &dialect,
                        };
                        recorder.record(ran, deadline).await
                    });
                    let delivery = steps::heartbeat(&claim, recorded.as_mut()).await;
                    engine.waiters.wake(&asked.ask.id);
                    delivery
                }
                Settled::Replay(found) => Delivery::of(steps::replay(found, &policy, &dialect)),
                Settled::Busy { .. } => Delivery::of(reject::answer(&Refusal::Busy, &dialect)),
                Settled::Refused(refusal) => Delivery::of(reject::answer(&refusal, &dialect)),
                Settled::Bypass => steps::bypass(&mut inner, asked.request).await,
            };
            delivery.after(turn.waited, asked.preferred_wait).deliver(reply).await;
        });
        home.see_through(work).await;
        await_reply(response_timeout, &waiting, answer).await
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone stays behind: readiness was polled on the one that is called.
        let clone = self.clone();
        let ready = std::mem::replace(self, clone);
        let meter = self.meter.clone();
        Box::pin(async move {
            let stopwatch = Stopwatch::start();
            let mut answered = ready.handle(request).await;
            if let Ok(response) = &mut answered {
                let served = response.extensions().get().copied().unwrap_or(Served::Passed);
                let ran = response.extensions_mut().remove::<RanFor>().map(|ran| ran.0);
                meter.served(served, stopwatch.elapsed(), ran);
            }
            answered
        })
    }
}
