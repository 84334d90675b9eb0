//! The accept loop: connections in, requests to the routes, and a graceful end.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::Watcher;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::address_limit::Excess;
use crate::config::Limits;
use crate::door::{Body, Door, Entered};
use crate::framing::Watched;
use crate::http2::{Noted, StreamExecutor, Streams};
use crate::pace::{self, Awaited, Listener, Terms};
use crate::peer::Peer;
use crate::preface::Spoken;
use crate::request_head::UNCLEAR_END;
use crate::room::{Room, Seated, Seldom};
use crate::tls::{Secured, Tls};
use crate::unread::Patient;
use crate::workers::Workers;
use crate::{http2, telemetry, upgrade};

/// How long to pause when no connection can be accepted, for instance for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Least size limit of a connection's buffers over HTTP/1.1. A client that sends requests ahead fills
/// them, and hyper's own limit is 400 KiB.
const BUFFER_BYTES: usize = 64 * 1024;

/// Accepts connections for the workers until `stop`; from then on new ones are refused. One too many is
/// closed at once: left waiting, it would not learn that another gateway has room.
pub(crate) async fn accept(
    listener: TcpListener,
    workers: &Workers,
    room: &Room,
    stop: &CancellationToken,
) {
    let (full, address_full, failing) = (Seldom::default(), Seldom::default(), Seldom::default());
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let max = room.limits().connections_max;
        let taken = match accepted {
            Ok(_) if workers.connections() >= max => {
                telemetry::refused_connection("max_connections");
                if full.is_due() {
                    tracing::warn!(max, "too many clients are connected: others are turned away");
                }
                continue;
            }
            Ok((stream, address)) => {
                let peer = Peer { address, is_encrypted: false, holder: None };
                match room.connection(&peer) {
                    Ok(permit) => workers.take(stream, peer, permit).await,
                    Err(excess) => {
                        refuse(&excess, &address_full);
                        continue;
                    }
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = taken {
            pause_after(&error, Listener::Public.label(), &failing).await;
        }
    }
}

/// Counts a connection that is closed because its address has too many.
fn refuse(excess: &Excess, throttle: &Seldom) {
    let Excess { address, setting, max } = excess;
    telemetry::refused_connection(setting);
    if throttle.is_due() {
        tracing::warn!(
            %address, setting, max,
            "a client address has too many connections: others of it are closed; if it is a load \
             balancer's, name it in trusted_proxies"
        );
    }
}

/// Logs that a connection could not be accepted, and pauses where the next one would fail as well.
pub(crate) async fn pause_after(error: &io::Error, listener: &'static str, failing: &Seldom) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        return tracing::debug!(%error, listener, "a connection was gone before it was accepted");
    }
    if failing.is_due() {
        tracing::warn!(%error, listener, "connections cannot be accepted");
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
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
    let (limits, begun) = (door.room.limits(), Instant::now());
    let terms = Terms { listener: Listener::Public, limits, begun, stop, watcher };
    if let Some(tls) = tls {
        // Boxed, so that connections in the clear do not hold room for it.
        return Box::pin(encrypted(stream, door, tls, terms)).await;
    }
    let spoken = timeout(terms.limits.head_timeout, Spoken::on(stream));
    let ended = match terms.stop.run_until_cancelled(spoken).await {
        Some(Ok(Ok(Spoken::Http1(stream)))) => http1(stream, door, terms).await,
        // Boxed, so that connections of HTTP/1.1 do not hold room for it.
        Some(Ok(Ok(Spoken::Http2(stream)))) => Box::pin(http2(stream, door, terms)).await,
        Some(Err(_)) => return pace::cut(terms.listener, Awaited::Head.label()),
        _ => return tracing::debug!("a connection ended before it said anything"),
    };
    log_end(ended);
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
///
/// Not an `async fn`, which would have room for its arguments besides the connection.
fn http1<S>(
    stream: S,
    door: Door,
    terms: Terms,
) -> impl Future<Output = Option<hyper::Result<()>>> + Send + use<S>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = Watched::new(stream);
    let framing = stream.framing();
    let (pulse, tunnel_idle_timeout) = (framing.clone(), terms.limits.tunnel_idle_timeout);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let permit = door.permit.as_ref();
        upgrade::expect(&mut request, &door.tunnels, permit, &door.share, tunnel_idle_timeout);
        let measured = (!request.body().is_end_stream()).then(|| framing.clone());
        if let Some(framing) = &measured {
            framing.request_begins();
        }
        let entered = match framing.is_clear(request.headers()) {
            true => door.enter(request),
            false => Entered::refused(UNCLEAR_END, request.version()),
        };
        async move {
            let response = entered.await;
            if let Some(framing) = measured {
                framing.response_begins();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let builder = http1_builder(&terms.limits);
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    terms.over(connection, |connection| connection.graceful_shutdown(), pulse)
}

/// Serves HTTP/1.1 with heads of this size.
pub(crate) fn http1_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .max_header_size(limits.header_bytes_max)
        .max_buf_size(BUFFER_BYTES.max(limits.header_bytes_max * 2))
        // A timer for each head would be one for each request.
        .header_read_timeout(None)
        // Who sends a whole request and hangs up has asked for it: it is not dropped unclaimed.
        .half_close(true);
    if limits.headers_max != Limits::HEADERS_MAX {
        builder.max_headers(limits.headers_max);
    }
    builder
}

/// As [`http1`].
fn http2<S>(
    stream: S,
    door: Door,
    terms: Terms,
) -> impl Future<Output = Option<hyper::Result<()>>> + Send + use<S>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let streams = Arc::<Streams>::default();
    let (pulse, limits) = (streams.clone(), terms.limits.clone());
    let executor = StreamExecutor::new(streams.clone(), limits.write_timeout, &door);
    let stream = Noted::new(stream, streams.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let open = streams.open();
        http2::join_cookies(request.headers_mut());
        let fits = request.headers().len() <= limits.headers_max;
        let (parts, body) = request.into_parts();
        let (body, rate_check) = Patient::new(body, &limits);
        let entered = fits.then(|| door.enter(Request::from_parts(parts, body)));
        async move {
            let mut response = match entered {
                Some(entered) => entered.await,
                None => bare(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            };
            if rate_check.is_some_and(|check| check.end()) {
                response = Entered::too_slow().await;
            }
            Ok::<_, Infallible>(response.map(|body| open.answer(body)))
        }
    });
    let builder = http2::builder(&terms.limits, executor);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    terms.over(connection, |connection| connection.graceful_shutdown(), pulse)
}

/// An answer that says nothing but this.
fn bare(status: StatusCode) -> Response<Seated<Body>> {
    let mut response = Response::new(Seated { body: Either::Right(Full::default()), _seat: None });
    *response.status_mut() = status;
    response
}
