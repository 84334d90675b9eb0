//! The accept loop: connections in, requests to the routes, and a graceful end.

use std::convert::Infallible;
use std::net::SocketAddr;
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
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::background;
use crate::framing::Watched;
use crate::routes::Routes;
use crate::tenant::Peer;

/// How long a client may take to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to pause when no connection can be accepted, for instance for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`, then lets each connection end the request it is at.
pub(crate) async fn serve(listener: TcpListener, routes: Arc<Routes>, stop: CancellationToken) {
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => connection(stream, peer, routes.clone(), &graceful),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // New connections are refused while the old ones end.
    drop(listener);
    graceful.shutdown().await;
}

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    routes: Arc<Routes>,
    graceful: &GracefulShutdown,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone before it began");
        return;
    }
    let stream = Watched::new(stream);
    let framing = stream.framing();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let is_clear = framing.is_clear(request.headers());
        request.extensions_mut().insert(Peer(peer));
        let page = routes.contract_at(request.uri().path());
        let route = routes.find(&request);
        async move {
            if !is_clear {
                return Ok::<_, Infallible>(unclear().map(Either::Right));
            }
            if let Some(page) = page {
                return Ok(page.answer(request.method(), request.headers()).map(Either::Right));
            }
            let response = route.oneshot(request).await;
            Ok(response.unwrap_or_else(|never| match never {}).map(Either::Left))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        // Who sends a whole request and hangs up has asked for it: it is not dropped unclaimed.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    background::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended early");
        }
    });
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
