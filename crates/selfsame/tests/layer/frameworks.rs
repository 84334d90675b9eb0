//! The layer in an axum router, and around a plain hyper service, over real sockets.

use std::convert::Infallible;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use selfsame::stores::MemoryStore;
use selfsame::{Idempotency, OriginalUri, Policy, RequestBody, Run};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt};

use crate::support::Runs;

async fn idempotency() -> Idempotency {
    Idempotency::open(Arc::new(MemoryStore::new())).await.expect("a store in memory opens")
}

fn request(to: SocketAddr, body: &'static str) -> Request<Full<Bytes>> {
    Request::post(format!("http://{to}/charges"))
        .header("idempotency-key", "k")
        .body(Full::from(body))
        .expect("a request")
}

async fn send(to: SocketAddr, body: &'static str) -> (u16, bool, Bytes) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let response = client.request(request(to, body)).await.expect("an answer");
    let replayed = response.headers().contains_key("idempotent-replayed");
    let status = response.status().as_u16();
    (status, replayed, response.into_body().collect().await.expect("a body").to_bytes())
}

async fn check(address: SocketAddr, runs: &Runs) {
    let first = send(address, "ten").await;
    let retry = send(address, "ten").await;
    assert_eq!((first.0, first.1, &first.2[..]), (200, false, &b"charged ten, attempt 1"[..]));
    assert_eq!((retry.0, retry.1, retry.2), (200, true, first.2));
    assert_eq!(send(address, "twenty").await.0, 422);
    assert_eq!(runs.count(), 1);
}

/// An axum service, for as long as the set lives.
async fn serve(router: Router) -> (SocketAddr, JoinSet<std::io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    (address, JoinSet::from_iter([axum::serve(listener, router).into_future()]))
}

#[tokio::test]
async fn it_works_in_axum() {
    let runs = Runs::default();
    let counted = runs.clone();
    let charge = move |run: axum::Extension<Run>, body: String| {
        counted.begin();
        async move { format!("charged {body}, attempt {}", run.attempt()) }
    };
    let layer = idempotency().await.layer(Policy::new());
    let (address, _serving) =
        serve(Router::new().route("/charges", post(charge)).layer(layer)).await;
    check(address, &runs).await;
}

#[tokio::test]
async fn nested_routers_do_not_replay_each_other() {
    let idempotency = idempotency().await;
    let version = |name: &'static str| {
        let charge = move |body: String| async move { format!("{name} charged {body}") };
        let layer = idempotency.layer(Policy::new());
        Router::new().route("/charges", post(charge)).layer(layer)
    };
    // One within another, too.
    let inner = Router::new().nest("/v1", version("first")).nest("/v2", version("second"));
    let (address, _serving) = serve(Router::new().nest("/api", inner)).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let send = async |path: &str| {
        let mut request = request(address, "ten");
        *request.uri_mut() = format!("http://{address}{path}").parse().expect("a URI");
        let response = client.request(request).await.expect("an answer");
        let (status, body) = (response.status().as_u16(), response.into_body());
        (status, body.collect().await.expect("a body").to_bytes())
    };
    let first = send("/api/v1/charges").await;
    assert_eq!((first.0, &first.1[..]), (200, &b"first charged ten"[..]));
    assert_eq!(send("/api/v1/charges").await, first);
    assert_eq!(send("/api/v2/charges").await.0, 422, "the key stands for another request");
}

#[tokio::test]
async fn a_router_of_another_kind_can_tell_the_whole_path() {
    let service = tower::service_fn(|_: Request<RequestBody<Full<Bytes>>>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("charged")))
    });
    let service = idempotency().await.layer(Policy::new()).layer(service);
    let send = async |path: &'static str| {
        let mut request = request(SocketAddr::from(([127, 0, 0, 1], 1)), "ten");
        request.extensions_mut().insert(OriginalUri::new(http::Uri::from_static(path)));
        service.clone().oneshot(request).await.expect("no error").status().as_u16()
    };
    assert_eq!([send("/v1/charges").await, send("/v1/charges").await], [200, 200]);
    assert_eq!(send("/v2/charges").await, 422);
}

#[tokio::test]
async fn a_handler_that_panics_leaks_no_claim_and_the_service_serves_on() {
    let runs = Runs::default();
    let counted = runs.clone();
    let charge = move |run: axum::Extension<Run>| {
        let first = counted.begin() == 1;
        async move {
            assert!(!first, "the first run panics");
            format!("charged in attempt {}", run.attempt())
        }
    };
    let layer = idempotency().await.layer(Policy::new());
    let (address, _serving) =
        serve(Router::new().route("/charges", post(charge)).layer(layer)).await;

    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    assert!(client.request(request(address, "ten")).await.is_err(), "its connection is cut");
    let retry = send(address, "ten").await;
    assert_eq!((retry.0, &retry.2[..]), (200, &b"charged in attempt 2"[..]));
    assert!(send(address, "ten").await.1, "and the answer is kept");
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn it_works_around_a_plain_hyper_service() {
    let runs = Runs::default();
    let counted = runs.clone();
    let service = tower::service_fn(move |request: Request<RequestBody<Incoming>>| {
        counted.begin();
        async move {
            let attempt = request.extensions().get::<Run>().expect("keyed").attempt();
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let text = format!("charged {}, attempt {attempt}", String::from_utf8_lossy(&body));
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(text)))
        }
    });
    let service = TowerToHyperService::new(idempotency().await.layer(Policy::new()).layer(service));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            connections.spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    check(address, &runs).await;
}
