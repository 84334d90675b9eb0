//! [`IdempotencyService`]: one request's way, from the key to the replay.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::sync::oneshot;
use tower_service::Service;

use crate::body::{BoxError, RequestBody, ResponseBody};
use crate::delivery::{Delivery, Reply, await_reply};
use crate::dialect::Dialect;
use crate::engine::Engine;
use crate::observe;
use crate::policy::{Mode, Policy};
use crate::reject::{self, Refusal};
use crate::run::Run;
use crate::steps::{self, Asked, Parsed, Recorder, Settled};
use crate::telemetry::Meter;
use crate::timing::Clocked;

/// A service behind [`IdempotencyLayer`](crate::IdempotencyLayer). Its errors are the inner
/// service's own: a refusal is a response.
#[derive(Clone)]
pub struct IdempotencyService<S> {
    pub(crate) inner: S,
    pub(crate) engine: Arc<Engine>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) meter: Arc<Meter>,
}

/// A response on its way. Boxed as what it is: a request that only passes takes less room than one
/// that may run, wait and be recorded.
type Handled<R, E> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<R>>, E>> + Send>>;

impl<S> IdempotencyService<S> {
    /// The seven steps: parse, scope, fingerprint; then claim, run, record, replay in [`Work`].
    fn handle<B, R>(self, request: Request<B>) -> Handled<R, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let Self { inner, engine, policy, meter } = self;
        let clocked = Clocked::begin(meter);
        if policy.mode == Mode::Observe {
            return clocked.around(observe::pass(inner, request, engine, policy));
        }

        let dialect = policy.dialect.to_sender_of(request.headers());
        let keyed = match steps::parse(request, &policy) {
            Parsed::Keyed(keyed) => keyed,
            Parsed::Unkeyed(request) => {
                return clocked.around(steps::pass(inner, request.map(RequestBody::streamed)));
            }
            Parsed::Refused(refusal, _) => {
                return clocked.around(ready(Ok(reject::answer(&refusal, &dialect))));
            }
        };
        let identity = match steps::scope(&keyed, &policy, &engine.secret) {
            Ok(identity) => identity,
            Err(refusal) => return clocked.around(ready(Ok(reject::answer(&refusal, &dialect)))),
        };
        engine.suspicions.look(&identity.label.key, identity.label.tenant);
        clocked.around(async move {
            let (home, response_timeout) = (engine.clone(), policy.response_timeout);
            let (reply, answer) = oneshot::channel();
            let work = match steps::fingerprint(keyed, identity, &policy, &engine.secret).await {
                Ok(asked) => {
                    Work { inner, asked, engine, policy, dialect: dialect.clone(), reply }.begin()
                }
                Err(refusal) => return Ok(reject::answer(&refusal, &dialect)),
            };
            // The client may hang up from here on: what is claimed is run and recorded all the same.
            home.see_through(work).await;
            await_reply(response_timeout, &dialect, answer).await
        })
    }
}

/// What is done for a request whoever waits for it.
struct Work<S, B, R, E> {
    inner: S,
    asked: Asked<B>,
    engine: Arc<Engine>,
    policy: Arc<Policy>,
    dialect: Dialect,
    reply: oneshot::Sender<Reply<R, E>>,
}

impl<S, B, R> Work<S, B, R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    fn begin(self) -> Pin<Box<impl Future<Output = ()> + Send + 'static>> {
        // Taken apart before the future is made: it would keep room for the whole besides.
        let Self { mut inner, asked, engine, policy, dialect, reply } = self;
        Box::pin(async move {
            let turn = steps::take_turn(&engine, &asked.ask, asked.preferred_wait, &policy).await;
            let delivery = match turn.settled {
                Settled::Run(claim) => {
                    let run = Run::new(claim.start(), &engine, Some(policy.clone()));
                    let deadline = tokio::time::Instant::now() + policy.run_timeout;
                    // Boxed, so that those who wait for their turn do not hold room for a run.
                    let mut recorded = Box::pin(async {
                        let ran = steps::run(inner, asked.request, &run, deadline).await;
                        let recorder = Recorder {
                            run: &run,
                            engine: &engine,
                            policy: &policy,
                            dialect: &dialect,
                        };
                        recorder.record(ran, deadline).await
                    });
                    let delivery = steps::heartbeat(run.claim(), recorded.as_mut()).await;
                    engine.waiters.wake(&asked.ask.id);
                    delivery
                }
                Settled::Replay(found) => Delivery::of(steps::replay(found, &policy, &dialect)),
                Settled::Busy { .. } => Delivery::of(reject::answer(&Refusal::Busy, &dialect)),
                Settled::Refused(refusal) => Delivery::of(reject::answer(&refusal, &dialect)),
                Settled::Bypass => steps::bypass(&mut inner, asked.request).await,
            };
            delivery.after(turn.waited, asked.preferred_wait).deliver(reply).await;
        })
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
    type Future = Handled<R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone stays behind: readiness was polled on the one that is called.
        let clone = self.clone();
        std::mem::replace(self, clone).handle(request)
    }
}
