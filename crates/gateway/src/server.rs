//! The accept loop: connections in, requests to the routes, and a graceful end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::Watcher;
use selfsame::{BoxError, ResponseBody};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::framing::Watched;
use crate::peer::Peer;
use crate::preface::Spoken;
use crate::routes::LiveRoutes;
use crate::tls::{Secured, Tls};
use crate::unread::Patient;
use crate::upstream::UpstreamBody;
use crate::workers::Workers;
use crate::{http2, target, upgrade};

/// How long a client may take to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to pause when no connection can be accepted, for instance for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(crate) type Body = Either<ResponseBody<UpstreamBody>, Full<Bytes>>;

/// Accepts connections for the workers until `stop`; from then on new ones are refused.
pub(crate) async fn accept(listener: TcpListener, workers: &Workers, stop: &CancellationToken) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let taken = match accepted {
            Ok((stream, peer)) => workers.take(stream, peer).await,
            Err(error) => Err(error),
        };
        if let Err(error) = taken {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Who is at the door, and where its requests go.
pub(crate) struct Door {
    pub(crate) peer: Peer,
    pub(crate) routes: Arc<LiveRoutes>,
    /// Connections that have left HTTP.
    pub(crate) tunnels: TaskTracker,
}

impl Door {
    fn enter<B>(&self, mut request: Request<B>) -> impl Future<Output = Response<Body>> + use<B>
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
        async move {
            if let Some(page) = page {
                return page.answer(request.method(), request.headers()).map(Either::Right);
            }
            if let Some(look_up) = look_up {
                let (parts, _) = request.into_parts();
                // Boxed, so that other requests do not hold room for it.
                return Box::pin(look_up.answer(parts)).await;
            }
            let response = route.oneshot(request).await;
            response.unwrap_or_else(|never| match never {}).map(Either::Left)
        }
    }
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
    if let Some(tls) = tls {
        // Boxed, so that connections in the clear do not hold room for it.
        return Box::pin(encrypted(stream, door, tls, stop, watcher)).await;
    }
    let spoken = stop.run_until_cancelled(timeout(HEAD_TIMEOUT, Spoken::on(stream)));
    let ended = match spoken.await {
        Some(Ok(Ok(Spoken::Http1(stream)))) => http1(stream, door, stop, watcher).await,
        // Boxed, so that connections of HTTP/1.1 do not hold room for it.
        Some(Ok(Ok(Spoken::Http2(stream)))) => Box::pin(http2(stream, door, watcher)).await,
        _ => return tracing::debug!("a connection ended before it said anything"),
    };
    log_end(ended);
}

/// As [`connection`], with a client that first agrees on how to encrypt.
async fn encrypted(
    stream: TcpStream,
    mut door: Door,
    tls: Arc<Tls>,
    stop: CancellationToken,
    watcher: Watcher,
) {
    // Boxed, because it is large and over soon.
    let secured = match stop.run_until_cancelled(Box::pin(tls.accept(stream))).await {
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
        true => http2(stream, door, watcher).await,
        false => http1(stream, door, stop, watcher).await,
    });
}

fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// `_watcher` is held until the end. It cannot watch a connection that may leave HTTP.
async fn http1<S>(
    stream: S,
    door: Door,
    stop: CancellationToken,
    _watcher: Watcher,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = Watched::new(stream);
    let framing = stream.framing();
    let service = service_fn(move |mut request: Request<Incoming>| {
        upgrade::expect(&mut request, &door.tunnels);
        let is_clear = framing.is_clear(request.headers());
        let entered = is_clear.then(|| door.enter(request));
        async move {
            Ok::<_, Infallible>(match entered {
                Some(entered) => entered.await,
                None => unclear().map(Either::Right),
            })
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        // Who sends a whole request and hangs up has asked for it: it is not dropped unclaimed.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

async fn http2<S>(stream: S, door: Door, watcher: Watcher) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        http2::join_cookies(request.headers_mut());
        let entered = door.enter(request.map(Patient::new));
        async move { Ok::<_, Infallible>(entered.await) }
    });
    let connection = http2::builder().serve_connection(TokioIo::new(stream), service);
    watcher.watch(connection).await
}

/// The answer to a request whose end cannot be told for sure: what follows it on this connection
/// could be taken for a request that nobody sent.
fn unclear() -> Response<Full<Bytes>> {
    tracing::debug!("a request leaves it unclear where it ends");
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
