//! The accept loop: connections in, requests to the routes, and a graceful end.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1::{self, UpgradeableConnection};
use hyper::server::conn::http2 as http2_server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::Watcher;
use selfsame::{BoxError, IdempotencyService, Problem, ProblemDetails, ResponseBody};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::config::Limits;
use crate::forward_auth::ForwardAuth;
use crate::framing::Watched;
use crate::http2::{Noted, Streams};
use crate::pace::{self, Awaited, Lateness, see_out};
use crate::peer::Peer;
use crate::preface::Spoken;
use crate::room::{Room, Seated, Seldom};
use crate::routes::{LiveRoutes, Protected};
use crate::tls::{Secured, Tls};
use crate::unread::Patient;
use crate::upstream::{Upstream, UpstreamBody};
use crate::workers::Workers;
use crate::{http2, target, upgrade};

/// How long to pause when no connection can be accepted, for instance for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(crate) type Body = Either<ResponseBody<UpstreamBody>, Full<Bytes>>;

/// Accepts connections for the workers until `stop`; from then on new ones are refused. One too many is
/// closed at once: left waiting, it would not learn that another gateway has room.
pub(crate) async fn accept(
    listener: TcpListener,
    workers: &Workers,
    room: &Room,
    stop: &CancellationToken,
) {
    let (full, failing) = (Seldom::default(), Seldom::default());
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let max = room.limits().connections_max;
        let taken = match accepted {
            Ok(_) if workers.connections() >= max => {
                metrics::counter!("selfsame_refused_connections_total").increment(1);
                if full.is_due() {
                    tracing::warn!(max, "too many clients are connected: others are turned away");
                }
                continue;
            }
            Ok((stream, peer)) => workers.take(stream, peer).await,
            Err(error) => Err(error),
        };
        if let Err(error) = taken {
            if failing.is_due() {
                tracing::warn!(%error, "connections cannot be accepted");
            }
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Who is at the door, and where its requests go.
pub(crate) struct Door {
    pub(crate) peer: Peer,
    pub(crate) routes: Arc<LiveRoutes>,
    pub(crate) room: Arc<Room>,
    /// Connections that have left HTTP.
    pub(crate) tunnels: TaskTracker,
}

impl Door {
    fn enter<B>(
        &self,
        mut request: Request<B>,
    ) -> impl Future<Output = Response<Seated<Body>>> + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        request.extensions_mut().insert(self.peer.clone());
        target::host_to_headers(&mut request);
        let (page, look_up, route) = {
            let routes = self.routes.look();
            let page = routes.contract_at(request.uri().path());
            (page, routes.look_up_at(&request), routes.find(&request))
        };
        let seat = if page.is_some() { None } else { self.room.seat() };
        async move {
            let response = match (page, &seat, look_up) {
                (Some(page), ..) => {
                    page.answer(request.method(), request.headers()).map(Either::Right)
                }
                (None, None, _) => shed(request, &route),
                (None, Some(_), Some(look_up)) => {
                    let (parts, _) = request.into_parts();
                    // Boxed, so that other requests do not hold room for it.
                    Box::pin(look_up.answer(parts)).await
                }
                (None, Some(_), None) => match route.auth {
                    None => {
                        let response = route.service.oneshot(request).await;
                        response.unwrap_or_else(|never| match never {}).map(Either::Left)
                    }
                    // Boxed, so that other requests do not hold room for it.
                    Some(auth) => Box::pin(ask_first(request, auth, route.service)).await,
                },
            };
            response.map(|body| Seated { body, _seat: seat })
        }
    }
}

/// The answer to a request of which another service tells whose it is.
async fn ask_first<B>(
    mut request: Request<B>,
    auth: Arc<ForwardAuth>,
    service: IdempotencyService<Upstream>,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    auth.clean(request.headers_mut());
    if service.may_have_key(request.method(), request.headers()) {
        let (mut parts, body) = request.into_parts();
        if let Err(refused) = auth.admit(&mut parts, &service).await {
            return refused;
        }
        request = Request::from_parts(parts, body);
    }
    let response = service.oneshot(request).await;
    response.unwrap_or_else(|never| match never {}).map(Either::Left)
}

/// The answer to one request too many.
fn shed<B>(request: Request<B>, route: &Protected) -> Response<Body> {
    let (parts, _unread) = request.into_parts();
    let detail = "too many requests are under way; this one was not looked at, try again";
    let details = ProblemDetails::new(Problem::Overloaded, detail);
    route.service.refuse(&parts, &details).map(Either::Left)
}

/// Serves one connection to its end.
pub(crate) async fn connection(
    stream: std::net::TcpStream,
    door: Door,
    tls: Option<Arc<Tls>>,
    stop: CancellationToken,
    watcher: Watcher,
) {
    let stream = match stream.set_nodelay(true).and_then(|()| TcpStream::from_std(stream)) {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "a connection was gone before it began"),
    };
    let terms =
        Terms { limits: door.room.limits(), begun: Instant::now(), stop, _watcher: watcher };
    if let Some(tls) = tls {
        // Boxed, so that connections in the clear do not hold room for it.
        return Box::pin(encrypted(stream, door, tls, terms)).await;
    }
    let spoken = timeout(terms.limits.head_timeout, Spoken::on(stream));
    let ended = match terms.stop.run_until_cancelled(spoken).await {
        Some(Ok(Ok(Spoken::Http1(stream)))) => http1(stream, door, terms).await,
        // Boxed, so that connections of HTTP/1.1 do not hold room for it.
        Some(Ok(Ok(Spoken::Http2(stream)))) => Box::pin(http2(stream, door, terms)).await,
        Some(Err(_)) => return pace::cut(Awaited::Head),
        _ => return tracing::debug!("a connection ended before it said anything"),
    };
    log_end(ended);
}

/// How long a connection is served.
struct Terms {
    limits: Limits,
    begun: Instant,
    stop: CancellationToken,
    /// Held until the end. It cannot watch a connection that may leave HTTP.
    _watcher: Watcher,
}

/// As [`connection`], with a client that first agrees on how to encrypt.
async fn encrypted(stream: TcpStream, mut door: Door, tls: Arc<Tls>, terms: Terms) {
    // Boxed, because it is large and over soon.
    let secured = Box::pin(tls.accept(stream, terms.limits.head_timeout));
    let secured = match terms.stop.run_until_cancelled(secured).await {
        Some(Ok(secured)) => secured,
        Some(Err(error)) => {
            metrics::counter!("selfsame_tls_failures_total").increment(1);
            return tracing::debug!(%error, peer = %door.peer.ip(), "a TLS handshake failed");
        }
        None => return,
    };
    let Secured { stream, is_http2, holder } = secured;
    door.peer.is_encrypted = true;
    door.peer.holder = holder;
    log_end(match is_http2 {
        true => http2(stream, door, terms).await,
        false => http1(stream, door, terms).await,
    });
}

fn log_end(ended: Option<hyper::Result<()>>) {
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// How it ended; nothing where its client took too long.
async fn http1<S>(stream: S, door: Door, terms: Terms) -> Option<hyper::Result<()>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = Watched::new(stream);
    let framing = stream.framing();
    let pulse = framing.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        upgrade::expect(&mut request, &door.tunnels);
        let is_clear = framing.is_clear(request.headers());
        let entered = is_clear.then(|| door.enter(request));
        async move {
            Ok::<_, Infallible>(match entered {
                Some(entered) => entered.await,
                None => unclear(),
            })
        }
    });
    let Terms { limits, begun, stop, _watcher } = terms;
    let mut builder = http1::Builder::new();
    builder
        .max_header_size(limits.header_bytes_max)
        // A timer for each head would be one for each request.
        .header_read_timeout(None)
        // Who sends a whole request and hangs up has asked for it: it is not dropped unclaimed.
        .half_close(true);
    if limits.headers_max != Limits::HEADERS_MAX {
        builder.max_headers(limits.headers_max);
    }
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let end = |connection: Pin<&mut _>| UpgradeableConnection::graceful_shutdown(connection);
    let lateness = Lateness::since(begun, limits);
    see_out(pin!(connection), end, pulse.pulse(), lateness, &stop).await
}

/// As [`http1`].
async fn http2<S>(stream: S, door: Door, terms: Terms) -> Option<hyper::Result<()>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Terms { limits, begun, stop, _watcher } = terms;
    let streams = Arc::<Streams>::default();
    let pulse = streams.clone();
    let stream = Noted::new(stream, streams.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let open = streams.open();
        http2::join_cookies(request.headers_mut());
        let fits = request.headers().len() <= limits.headers_max;
        let body = |body| Patient::new(body, limits.body_timeout);
        let entered = fits.then(|| door.enter(request.map(body)));
        async move {
            let response = match entered {
                Some(entered) => entered.await,
                None => bare(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            };
            Ok::<_, Infallible>(response.map(|body| open.answer(body)))
        }
    });
    let connection = http2::builder(&limits).serve_connection(TokioIo::new(stream), service);
    let end = |connection: Pin<&mut _>| http2_server::Connection::graceful_shutdown(connection);
    // Its preface is there, or follows the handshake: from now on it may be idle.
    let lateness = Lateness::since(begun, limits);
    see_out(pin!(connection), end, &*pulse, lateness, &stop).await
}

/// The answer to a request whose end cannot be told for sure: what follows it on this connection
/// could be taken for a request that nobody sent.
fn unclear() -> Response<Seated<Body>> {
    tracing::debug!("a request leaves it unclear where it ends");
    let mut response = bare(StatusCode::BAD_REQUEST);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// An answer that says nothing but this.
fn bare(status: StatusCode) -> Response<Seated<Body>> {
    let mut response = Response::new(Seated { body: Either::Right(Full::default()), _seat: None });
    *response.status_mut() = status;
    response
}
