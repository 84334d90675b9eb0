//! A service that counts its runs, and requests to send through the layer to it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use selfsame::stores::MemoryStore;
use selfsame::{Idempotency, IdempotencyService, Policy, RequestBody, ResponseBody, Run};
use selfsame_core::conformance::SettableClock;
use selfsame_core::{FullStore, Secret};
use tower::{Layer, Service, ServiceExt};

pub(crate) type Body = Full<Bytes>;

/// How often the work behind the layer was begun.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<AtomicUsize>);

impl Runs {
    pub(crate) fn begin(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A store under a clock that passes when the test says so, and idempotency on it.
pub(crate) struct Rig {
    pub(crate) clock: Arc<SettableClock>,
    pub(crate) store: Arc<dyn FullStore>,
    pub(crate) idempotency: Idempotency,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(SettableClock::new());
        Self::on(Arc::new(MemoryStore::with_clock(clock.clone())), clock)
    }

    pub(crate) fn on(store: Arc<dyn FullStore>, clock: Arc<SettableClock>) -> Self {
        let idempotency = Idempotency::new(store.clone(), Secret::from_bytes(b"test"), None);
        Self { clock, store, idempotency }
    }

    /// A service with this policy whose work is `work`.
    pub(crate) fn service<W, F, E>(
        &self,
        policy: Policy,
        work: W,
    ) -> IdempotencyService<impl Inner<E>>
    where
        W: Fn(Option<Run>) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static,
    {
        let service = tower::service_fn(move |mut request: Request<RequestBody<Body>>| {
            let run = request.extensions_mut().remove::<Run>();
            work(run)
        });
        self.idempotency.layer(policy).layer(service)
    }
}

/// The kind of service these tests put behind the layer.
pub(crate) trait Inner<E>:
    Service<Request<RequestBody<Body>>, Response = Response<Body>, Error = E, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S, E> Inner<E> for S where
    S: Service<Request<RequestBody<Body>>, Response = Response<Body>, Error = E, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// What a test reads of an answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) served: selfsame::Served,
    pub(crate) body: String,
}

pub(crate) fn post(key: &str) -> Request<Body> {
    Request::post("/charges")
        .header("idempotency-key", key)
        .body(Full::from(r#"{"amount":10}"#))
        .expect("a request")
}

pub(crate) fn answer(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}

pub(crate) async fn send<S, E>(service: &IdempotencyService<S>, request: Request<Body>) -> Seen
where
    S: Inner<E>,
    E: std::fmt::Debug + Send,
{
    see(service.clone().oneshot(request).await.expect("no error")).await
}

pub(crate) async fn see(response: Response<ResponseBody<Body>>) -> Seen {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    Seen {
        status: parts.status.as_u16(),
        replayed: parts.headers.contains_key("idempotent-replayed"),
        served: *parts.extensions.get().expect("every answer says what became of its request"),
        body: String::from_utf8(body.to_vec()).expect("text"),
    }
}
