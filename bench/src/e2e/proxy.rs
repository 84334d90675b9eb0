//! The least a proxy of hyper's can be: it forwards, and knows nothing.

use std::net::SocketAddr;

use anyhow::Result;
use http::Uri;
use http::uri::{PathAndQuery, Scheme};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_util::task::TaskTracker;

use super::any_port;

/// Serves for ever, and says first where.
pub(crate) fn serve(upstream: SocketAddr) -> Result<()> {
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(any_port()).await?;
        println!("{}", listener.local_addr()?);
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build::<_, Incoming>(connector);
        let connections = TaskTracker::new();
        let authority: http::uri::Authority = upstream.to_string().parse()?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (client, authority) = (client.clone(), authority.clone());
            let service = service_fn(move |mut request: Request<Incoming>| {
                let path = request.uri().path_and_query().cloned();
                *request.uri_mut() = Uri::builder()
                    .scheme(Scheme::HTTP)
                    .authority(authority.clone())
                    .path_and_query(path.unwrap_or(PathAndQuery::from_static("/")))
                    .build()
                    .expect("all its parts are there");
                client.request(request)
            });
            connections
                .spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    })
}
