//! [`IdempotencyService`]: one request's way, from the key to the replay.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tokio::time::Instant;
use tower_service::Service;

use crate::body::{BoxError, RequestBody, ResponseBody};
use crate::buffer_limit::BufferAllowance;
use crate::delivery::{Delivery, Reply, await_reply};
use crate::dialect::Dialect;
use crate::engine::Seen;
use crate::layer::Route;
use crate::observe;
use crate::policy::Mode;
use crate::reject::{self, Refusal};
use crate::run::Run;
use crate::steps::{
    self, Apart, Asked, ClaimContext, Identity, Keyed, Parsed, Recorder, Settled, Sought, Turn,
    Whole,
};
use crate::timing::Clocked;

/// A service behind [`IdempotencyLayer`](crate::IdempotencyLayer). Its errors are the inner
/// service's own: a refusal is a response.
#[derive(Clone)]
pub struct IdempotencyService<S> {
    pub(crate) inner: S,
    pub(crate) route: Arc<Route>,
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
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let Self { inner, route } = self;
        let clocked = Clocked::begin(route.clone());
        let (engine, policy) = (&route.engine, &route.policy);
        if policy.mode == Mode::Observe {
            return clocked.around(observe::pass(inner, request, engine.clone(), policy.clone()));
        }

        let dialect = policy.dialect.to_sender_of(request.headers());
        let Keyed { key, request } = match steps::parse(request, policy) {
            Parsed::Keyed(keyed) => keyed,
            Parsed::Sought(request) => {
                return clocked.around(seek(inner, request, route, dialect));
            }
            Parsed::Unkeyed(request) => {
                return clocked.around(steps::pass(inner, request.map(RequestBody::streamed)));
            }
            Parsed::Refused(refusal, _) => {
                return clocked.around(ready(Ok(reject::answer(&refusal, &dialect))));
            }
        };
        let identity = match steps::scope(key, &request.parts, policy, &engine.secret) {
            Ok(identity) => identity,
            Err(refusal) => return clocked.around(ready(Ok(reject::answer(&refusal, &dialect)))),
        };
        engine.suspicions.look(&identity.label.key, identity.label.tenant);
        let (parts, whole) = steps::read_whole(request, policy);
        let asking = Asking { inner, parts, identity };
        clocked.around(async move {
            let whole = whole.await;
            let whole =
                whole.and_then(|whole| whole.with_no_other_key(&asking.parts, &route.policy));
            let work = match asking.begin(whole, &route, &dialect) {
                Begun::Answered(response) => return Ok(response),
                Begun::Work(work) => work,
            };
            see_through(work, &route, &dialect).await
        })
    }
}

/// The same for a request whose key may be in its body, which is read first.
async fn seek<S, B, R>(
    inner: S,
    request: Apart<B>,
    route: Arc<Route>,
    dialect: Dialect,
) -> Result<Response<ResponseBody<R>>, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (engine, policy) = (&route.engine, &route.policy);
    let (key, parts, whole) = match steps::seek(request, policy).await {
        Sought::Found { key, parts, whole } => (key, parts, whole),
        Sought::Unkeyed(request) => return steps::pass(inner, request.whole()).await,
        Sought::Refused(refusal) => return Ok(reject::answer(&refusal, &dialect)),
    };
    let identity = match steps::scope(key, &parts, policy, &engine.secret) {
        Ok(identity) => identity,
        Err(refusal) => return Ok(reject::answer(&refusal, &dialect)),
    };
    engine.suspicions.look(&identity.label.key, identity.label.tenant);
    let asking = Asking { inner, parts, identity };
    let work = match asking.begin(Ok(whole), &route, &dialect) {
        Begun::Answered(response) => return Ok(response),
        Begun::Work(work) => work,
    };
    see_through(work, &route, &dialect).await
}

/// The answer to work that is seen through.
async fn see_through<R, E, W>(
    work: Pin<Box<W>>,
    route: &Route,
    dialect: &Dialect,
) -> Result<Response<ResponseBody<R>>, E>
where
    W: Future<Output = Reply<R, E>> + Send + 'static,
    R: Send + 'static,
    E: Send + 'static,
{
    // The client may hang up from here on: what is claimed is run and recorded all the same.
    let reply = match route.engine.see_through(work).await {
        Seen::Done(reply) => return reply.unwrapped(),
        Seen::Going(reply) => reply,
    };
    await_reply(route.policy.response_timeout, dialect, reply).await
}

/// A request whose body is still to come. What follows is begun in functions that wait for nothing:
/// a future has room for all that it ever held.
struct Asking<S> {
    inner: S,
    parts: Box<Parts>,
    identity: Identity,
}

#[expect(clippy::large_enum_variant, reason = "a response is the rule")]
enum Begun<R, W> {
    Answered(Response<ResponseBody<R>>),
    Work(Pin<Box<W>>),
}

impl<S> Asking<S> {
    fn begin<B, R>(
        self,
        whole: Result<Whole, Refusal>,
        route: &Arc<Route>,
        dialect: &Dialect,
    ) -> Begun<R, impl Future<Output = Reply<R, S::Error>> + Send + 'static + use<S, B, R>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let Self { inner, parts, identity } = self;
        let (engine, policy) = (&route.engine, &route.policy);
        let asked = whole
            .and_then(|whole| steps::fingerprint(parts, whole, identity, policy, &engine.secret));
        let mut asked = match asked {
            Ok(asked) => asked,
            Err(refusal) => return Begun::Answered(reject::answer(&refusal, dialect)),
        };
        if let Some(found) = steps::answered(engine, &asked.ask, policy) {
            let allowance = asked.request.parts.extensions.get();
            return Begun::Answered(steps::replay(found, allowance, policy, dialect));
        }
        asked.ask.keepsake = steps::keepsake(&asked, engine, policy);
        let (route, dialect) = (route.clone(), dialect.clone());
        let work = Work { inner, asked, route, dialect, is_abandoned: false };
        Begun::Work(work.begin())
    }
}

/// What is done for a request whoever waits for it.
pub(crate) struct Work<S, B> {
    pub(crate) inner: S,
    pub(crate) asked: Asked<B>,
    pub(crate) route: Arc<Route>,
    pub(crate) dialect: Dialect,
    /// Whether it is done without its client.
    pub(crate) is_abandoned: bool,
}

impl<S, B, R> Work<S, B>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    pub(crate) fn begin(
        self,
    ) -> Pin<Box<impl Future<Output = Reply<R, S::Error>> + Send + 'static + use<S, B, R>>> {
        // Taken apart before the future is made: it would keep room for the whole besides.
        let Self { mut inner, asked, route, dialect, is_abandoned } = self;
        let Asked { mut ask, request, preferred_wait, .. } = asked;
        Box::pin(async move {
            let (engine, policy) = (&*route.engine, &*route.policy);
            let allowance = request.parts.extensions.get::<BufferAllowance>().cloned();
            // In a block of its own, because what is settled is large; and boxed is what hardly anyone comes
            // to: those who run would hold room for both.
            let (run, waited) = 'turn: {
                let new_keys = request.parts.extensions.get();
                let context = ClaimContext { engine, policy, new_keys };
                let Turn { mut settled, waited } =
                    steps::take_turn(context, &mut ask, preferred_wait).await;
                if let (Settled::Refused(Refusal::Held), Some(probe)) = (&settled, &policy.probe) {
                    let parts = &*request.parts;
                    settled =
                        Box::pin(steps::probe(&mut inner, parts, &mut ask, probe, context)).await;
                }
                // It is written, and may be large.
                let outline = ask.keepsake.take().and_then(|kept| kept.outline);
                if let (Settled::Refused(Refusal::Reused(hint)), Some(_)) = (&mut settled, outline)
                {
                    let sent = (&*request.parts, request.body.data());
                    *hint = Box::pin(steps::difference(&ask.id, sent, engine, policy)).await;
                }
                let delivery = match settled {
                    Settled::Run(claim, place) => {
                        let run = Run::new(claim.start(), place, engine, Some(&route));
                        break 'turn (run, waited);
                    }
                    Settled::Replay(found) => {
                        let allowance = allowance.as_ref();
                        Delivery::of(steps::replay(*found, allowance, policy, &dialect))
                    }
                    Settled::Busy { .. } => {
                        Delivery::of(reject::about(Some(&ask.id), &Refusal::Busy, &dialect))
                    }
                    Settled::Refused(refusal) => {
                        Delivery::of(reject::about(Some(&ask.id), &refusal, &dialect))
                    }
                    // Nobody waits who would rather have it done twice than not at all.
                    Settled::Bypass if is_abandoned => {
                        Delivery::of(reject::answer(&Refusal::StoreDown, &dialect))
                    }
                    Settled::Bypass => Box::pin(steps::bypass(&mut inner, request)).await,
                };
                return delivery.after(waited, preferred_wait).begin(engine);
            };
            let now = Instant::now();
            let deadline = now + policy.run_timeout;
            let alive = engine.renewals.begin(run.claim(), ask.fingerprint, now);
            // Boxed, so that those who wait for their turn do not hold room for a run.
            let running = Box::pin(steps::run(inner, request, &run, deadline));
            let recorder = Recorder::new(&run, (engine, policy, &dialect), is_abandoned);
            let recorder = recorder.within(allowance.as_ref());
            let recorded = Box::pin(async { recorder.record(running.await, deadline).await });
            let delivery = recorded.await;
            drop(alive);
            engine.waiters.wake(&ask.id);
            delivery.after(waited, preferred_wait).begin(engine)
        })
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
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
