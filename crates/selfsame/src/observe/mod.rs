//! `mode = "observe"`: requests pass as if nothing were here, and what would have become of them
//! is counted and recorded beside.
//!
//! The request's own task only overhears: it never waits for the store, and what it hears goes to
//! a watch on a task of its own. Observed records are apart from those that requests are answered
//! from, so nothing that was observed is ever replayed or refused.

mod tap;
mod trace;
mod watch;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body::Body;
use selfsame_core::Key;
use tokio::sync::{Semaphore, oneshot};
use tower_service::Service;

use crate::body::{RequestBody, ResponseBody};
use crate::dialect::Protocol;
use crate::engine::Engine;
use crate::outcome::{Outcome, Served};
use crate::policy::Policy;
use crate::reject;
use crate::steps::{self, Apart, Keyed, Parsed};
use crate::telemetry;
use crate::timing::{RanFor, Stopwatch};

pub(crate) use tap::TappedBody;
use tap::tap;
use watch::{Heard, Watch};

/// How many requests may be observed at once. One more passes unobserved, and is counted as that.
const AT_ONCE_MAX: usize = 1024;

/// Room for those who observe.
pub(crate) struct Observers {
    room: Arc<Semaphore>,
}

impl Default for Observers {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(AT_ONCE_MAX)) }
    }
}

/// Passes a request on as it came, and its answer back as it comes.
pub(crate) async fn pass<S, B, R>(
    mut inner: S,
    request: Request<B>,
    engine: Arc<Engine>,
    policy: Arc<Policy>,
) -> Result<Response<ResponseBody<R>>, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    B: Body<Data = Bytes>,
    R: Body<Data = Bytes>,
{
    let (request, witness) = match steps::parse(request, &policy) {
        Parsed::Keyed(Keyed { key, request }) => overhear(Some(key), request, engine, policy),
        Parsed::Sought(request) => overhear(None, request, engine, policy),
        Parsed::Unkeyed(request) => (request.map(RequestBody::streamed), None),
        Parsed::Refused(refusal, request) => {
            watch::count(&policy, None, reject::served(&refusal));
            (request.map(RequestBody::streamed), None)
        }
    };
    let Some(witness) = witness else {
        return steps::pass(inner, request).await;
    };
    let stopwatch = Stopwatch::start();
    let call = AssertUnwindSafe(async { inner.call(request).await }).catch_unwind();
    let mut response = match call.await {
        Ok(Ok(response)) => witness.hear(response),
        Ok(Err(error)) => {
            witness.hear_nothing();
            return Err(error);
        }
        Err(payload) => {
            witness.hear_nothing();
            resume_unwind(payload)
        }
    };
    response.extensions_mut().insert(RanFor(stopwatch.elapsed()));
    response.extensions_mut().insert(Served::Passed);
    Ok(response)
}

/// Begins to watch a request, if there is room. Without a key, its body may have one.
fn overhear<B: Body<Data = Bytes>>(
    key: Option<Key>,
    Apart { parts, body }: Apart<B>,
    engine: Arc<Engine>,
    policy: Arc<Policy>,
) -> (Request<RequestBody<B>>, Option<Witness>) {
    let Ok(room) = engine.observers.room.clone().try_acquire_owned() else {
        telemetry::unobserved(&policy.route, "too_many");
        return (Request::from_parts(*parts, RequestBody::streamed(body)), None);
    };
    let (body, request_body) = tap(body, policy.request_bytes_max);
    let (tell, answer) = oneshot::channel();
    let watch = Watch {
        engine: engine.clone(),
        policy: policy.clone(),
        key,
        request: Apart { parts: parts.clone(), body: request_body },
        answer,
    };
    engine.detach(async move {
        watch.run().await;
        drop(room);
    });
    let witness = Witness { tell, policy, protocol: Protocol::of(&parts.headers) };
    (Request::from_parts(*parts, RequestBody::tapped(body)), Some(witness))
}

/// Tells the watch what comes back. One that is dropped tells it that nobody waits any more.
struct Witness {
    tell: oneshot::Sender<Heard>,
    policy: Arc<Policy>,
    protocol: Protocol,
}

impl Witness {
    /// The service answers.
    fn hear<R: Body<Data = Bytes>>(self, mut response: Response<R>) -> Response<ResponseBody<R>> {
        let outcome = Outcome::told_by(&mut response, self.protocol, &self.policy.statuses);
        let (parts, body) = response.into_parts();
        let status = parts.status;
        let (body, heard) = match steps::is_stream(&parts, &self.policy) {
            true => (ResponseBody::streamed(body), None),
            false => {
                let (body, heard) = tap(body, self.policy.answer_bytes_max);
                (ResponseBody::tapped(body), Some(heard))
            }
        };
        let _watched_no_longer = self.tell.send(Heard::Answer { status, outcome, body: heard });
        Response::from_parts(parts, body)
    }

    /// The service fails.
    fn hear_nothing(self) {
        let _watched_no_longer = self.tell.send(Heard::Failure);
    }
}
