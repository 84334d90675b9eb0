//! [`InternalListener`]: connections of operators and upstreams, HTTP/1.1 only, with the same bounds on
//! size and time as those of clients, and a limit on their number.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::background;
use crate::config::Limits;
use crate::framing::Watched;
use crate::pace::{Listener, Terms};
use crate::room::{Room, Seldom};
use crate::server::{self, http1_builder};
use crate::tls::Tls;

/// Lower bound on each timeout. Settings for clients may be shorter than an operator can bear.
const TIMEOUT_MIN: Duration = Duration::from_secs(2);

/// A listener beside the public one.
pub(crate) struct InternalListener {
    pub(crate) listener: TcpListener,
    pub(crate) kind: Listener,
    /// Encryption; none: in the clear.
    pub(crate) tls: Option<Arc<Tls>>,
    /// Connections at once; one more is closed.
    pub(crate) connections_max: usize,
    /// Has the limits that are in force.
    pub(crate) room: Arc<Room>,
}

impl InternalListener {
    /// Serves for as long as it is polled.
    pub(crate) async fn serve(self, router: Router) {
        let places = Arc::new(Semaphore::new(self.connections_max));
        let (graceful, stop) = (GracefulShutdown::new(), CancellationToken::new());
        let (full, failing) = (Seldom::default(), Seldom::default());
        let listener = self.kind.label();
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    server::pause_after(&error, listener, &failing).await;
                    continue;
                }
            };
            let Ok(place) = places.clone().try_acquire_owned() else {
                let name = "selfsame_internal_connections_refused_total";
                metrics::counter!(name, "listener" => listener).increment(1);
                if full.is_due() {
                    let max = self.connections_max;
                    tracing::warn!(listener, max, "too many connections: others are turned away");
                }
                continue;
            };
            let limits = Arc::new(bounds(&self.room.limits()));
            let (begun, watcher) = (Instant::now(), graceful.watcher());
            let (kind, stop) = (self.kind, stop.clone());
            let terms = Terms { listener: kind, limits, begun, stop, watcher };
            let served = accepted(stream, self.tls.clone(), router.clone(), terms);
            background::spawn(async move {
                if let Err(error) = served.await {
                    tracing::debug!(%error, listener, "a connection ended early");
                }
                drop(place);
            });
        }
    }
}

/// The limits of an internal connection.
fn bounds(public: &Limits) -> Limits {
    Limits {
        head_timeout: public.head_timeout.max(TIMEOUT_MIN),
        body_timeout: public.body_timeout.max(TIMEOUT_MIN),
        write_timeout: public.write_timeout.max(TIMEOUT_MIN),
        idle_timeout: public.idle_timeout.max(TIMEOUT_MIN),
        // Erasing a tenant takes as long as the store needs.
        answer_timeout: public.answer_timeout.max(Limits::default().answer_timeout),
        ..*public
    }
}

async fn accepted(
    stream: TcpStream,
    tls: Option<Arc<Tls>>,
    router: Router,
    terms: Terms,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return http1(stream, router, terms).await };
    // Boxed, because it is large and over soon.
    let secured = Box::pin(tls.accept(stream, terms.limits.head_timeout)).await;
    let secured = secured.inspect_err(|_| {
        metrics::counter!("selfsame_tls_failures_total").increment(1);
    })?;
    http1(secured.stream, router, terms).await
}

async fn http1<S>(stream: S, router: Router, terms: Terms) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = Watched::new(stream);
    let (framing, pulse) = (stream.framing(), stream.framing());
    let service = service_fn(move |request: Request<Incoming>| {
        let is_clear = framing.is_clear(request.headers());
        let router = router.clone();
        async move {
            match is_clear {
                true => router.oneshot(request).await,
                false => Ok::<_, Infallible>(unclear()),
            }
        }
    });
    let connection = http1_builder(&terms.limits).serve_connection(TokioIo::new(stream), service);
    let ended = terms.over(connection, |connection| connection.graceful_shutdown(), pulse).await;
    ended.unwrap_or(Ok(())).map_err(io::Error::other)
}

/// The response to a request whose end is unclear.
fn unclear() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
