//! Step 5: the work runs, its lease kept alive beside it.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use selfsame_core::headers::SELFSAME_PROTECTED;
use selfsame_core::{Claim, Fenced, Started};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout_at};
use tower_service::Service;

use crate::body::{BoxError, RequestBody, ResponseBody};
use crate::delivery::Delivery;
use crate::outcome::{Outcome, Served};
use crate::run::Run;
use crate::telemetry::{self, InFlight};
use crate::timing::{RanFor, Stopwatch};

/// How a run ended.
pub(crate) enum Ran<R, E> {
    Answered(Response<R>, RanFor),
    Errored(E),
    Panicked(Box<dyn Any + Send>),
    TimedOut,
}

/// Runs the work, which can see its own [`Run`].
pub(crate) async fn run<S, B, R>(
    mut inner: S,
    mut request: Request<RequestBody<B>>,
    run: &Run,
    deadline: Instant,
) -> Ran<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
{
    let _in_flight = InFlight::begin();
    let stopwatch = Stopwatch::start();
    request.extensions_mut().insert(run.clone());
    // The service is not used after a panic, so no one meets its broken state.
    let work = AssertUnwindSafe(async { inner.call(request).await }).catch_unwind();
    match timeout_at(deadline, work).await {
        Ok(Ok(Ok(response))) => Ran::Answered(response, RanFor(stopwatch.elapsed())),
        Ok(Ok(Err(error))) => Ran::Errored(error),
        Ok(Err(payload)) => Ran::Panicked(payload),
        Err(_) => Ran::TimedOut,
    }
}

/// Renews the lease every third of it for as long as `work` takes. Pinned by the caller: what is
/// handed over by value takes its room twice.
pub(crate) async fn heartbeat<T>(
    claim: &Claim<Started>,
    work: Pin<&mut impl Future<Output = T>>,
) -> T {
    let every = claim.grant().lease.length / 3;
    let beat = async {
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match claim.renew().await {
                Ok(Fenced::Applied) => {}
                Ok(Fenced::Lost) => break,
                Err(error) => tracing::warn!(%error, "a lease could not be renewed"),
            }
        }
        telemetry::fenced_write();
        tracing::warn!(record = claim.grant().lease.id.short(), "a run has lost its claim");
        // It cannot be called back; what it writes from now on is fenced off.
        std::future::pending().await
    };
    tokio::select! {
        biased;
        done = work => done,
        never = beat => never,
    }
}

/// Passes a request on that is none of our business.
pub(crate) fn pass<S, B, R>(
    mut inner: S,
    request: Request<RequestBody<B>>,
) -> impl Future<Output = Result<Response<ResponseBody<R>>, S::Error>>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
{
    let stopwatch = Stopwatch::start();
    let call = inner.call(request);
    async move {
        let response = call.await?.map(ResponseBody::streamed);
        Ok(passed(response, &stopwatch))
    }
}

fn passed<R>(
    mut response: Response<ResponseBody<R>>,
    stopwatch: &Stopwatch,
) -> Response<ResponseBody<R>> {
    // There is no key for a handler's word to decide about, but it is still not for the client.
    let _word = Outcome::take_from(response.headers_mut());
    response.extensions_mut().insert(RanFor(stopwatch.elapsed()));
    response.extensions_mut().insert(Served::Passed);
    response
}

/// Runs a keyed request unprotected, and says so.
pub(crate) async fn bypass<S, B, R>(
    inner: &mut S,
    request: Request<RequestBody<B>>,
) -> Delivery<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    match inner.call(request).await {
        Ok(response) => {
            let mut response = response.map(ResponseBody::streamed);
            let _word = Outcome::take_from(response.headers_mut());
            let no = HeaderValue::from_static("false");
            response.headers_mut().insert(SELFSAME_PROTECTED, no);
            response.extensions_mut().insert(Served::Bypassed);
            Delivery::of(response)
        }
        Err(error) => Delivery::error(error),
    }
}
