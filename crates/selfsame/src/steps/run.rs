//! Step 5: the work runs. Its lease is kept alive by `renewals`.

use std::any::Any;
use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Either;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use selfsame_core::headers::SELFSAME_PROTECTED;
use tokio::time::Instant;
use tower_service::Service;

use super::Apart;
use crate::body::{BoxError, RequestBody, ResponseBody};
use crate::delivery::Delivery;
use crate::outcome::{Outcome, Served};
use crate::patience;
use crate::run::Run;
use crate::telemetry::InFlight;
use crate::timing::{RanFor, Stopwatch};

/// How a run ended.
pub(crate) enum Ran<R, E> {
    Answered(Response<R>, RanFor),
    Errored(E),
    Panicked(Box<dyn Any + Send>),
    TimedOut,
}

/// Runs the work, which can see its own [`Run`]. It is begun here, so that what it is called with takes no
/// room while it runs.
pub(crate) fn run<S, B, R>(
    mut inner: S,
    mut request: Apart<RequestBody<B>>,
    run: &Run,
    deadline: Instant,
) -> impl Future<Output = Ran<R, S::Error>> + use<S, B, R>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
{
    let in_flight = InFlight::begin();
    let stopwatch = Stopwatch::start();
    request.parts.extensions.insert(run.clone());
    // The service is not used after a panic, so no one meets its broken state.
    let work = match catch_unwind(AssertUnwindSafe(|| inner.call(request.whole()))) {
        Ok(call) => Either::Left(AssertUnwindSafe(call).catch_unwind()),
        Err(payload) => Either::Right(ready(Err(payload))),
    };
    patience::before(deadline, work).map(move |ran| {
        drop(in_flight);
        match ran {
            Some(Ok(Ok(response))) => Ran::Answered(response, RanFor(stopwatch.elapsed())),
            Some(Ok(Err(error))) => Ran::Errored(error),
            Some(Err(payload)) => Ran::Panicked(payload),
            None => Ran::TimedOut,
        }
    })
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
    request: Apart<RequestBody<B>>,
) -> Delivery<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    match inner.call(request.whole()).await {
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
