//! A gRPC payments service in tonic that charges once per key, and a client for it.
//!
//! ```text
//! cargo run -p selfsame --example tonic
//! cargo run -p selfsame --example tonic -- order-1 20
//! ```
//!
//! Send the second line twice: the service charges once, and the client is told that the second
//! answer is the first one. The same key with another amount is refused.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use selfsame::stores::{EmbeddedOptions, EmbeddedStore};
use selfsame::{Idempotency, KeyMode, Policy, Run};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status, client, server};
use tonic_prost::ProstCodec;
use tower::Service;

const ADDRESS: &str = "127.0.0.1:50051";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => serve(ADDRESS).await,
        [address] => serve(address).await,
        [key, amount] => call(ADDRESS, key, amount.parse()?).await,
        [key, amount, address, ..] => call(address, key, amount.parse()?).await,
    }
}

async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let store = EmbeddedStore::open("selfsame-data", EmbeddedOptions::default())?;
    let idempotency = Idempotency::open(Arc::new(store)).await?;
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Server::builder()
        .layer(idempotency.layer(Policy::new().key(KeyMode::Required)))
        .add_service(Payments)
        .serve_with_incoming(TcpIncoming::from(listener))
        .await?;
    Ok(())
}

/// The key is metadata, as every header is.
async fn call(address: &str, key: &str, amount: u64) -> Result<(), Box<dyn Error>> {
    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut grpc = client::Grpc::new(channel);
    grpc.ready().await?;
    let mut request = Request::new(ChargeRequest { amount });
    request.metadata_mut().insert("idempotency-key", key.parse()?);
    let path = http::uri::PathAndQuery::from_static(CHARGE);
    let answer: Result<Response<ChargeReply>, Status> =
        grpc.unary(request, path, ProstCodec::default()).await;
    match answer {
        Ok(reply) => {
            let replayed = reply.metadata().contains_key("idempotent-replayed");
            println!("{}, replayed: {replayed}", reply.get_ref().text);
        }
        Err(status) => println!("{:?}: {}", status.code(), status.message()),
    }
    Ok(())
}

async fn charge(request: Request<ChargeRequest>) -> Result<Response<ChargeReply>, Status> {
    let attempt = request.extensions().get::<Run>().map_or(1, Run::attempt);
    let amount = request.into_inner().amount;
    if amount == 0 {
        return Err(Status::invalid_argument("nothing to charge"));
    }
    println!("attempt {attempt}: charging {amount}");
    Ok(Response::new(ChargeReply { text: format!("charged {amount}") }))
}

// From here on, what tonic's build step makes of a .proto file, in short.

const CHARGE: &str = "/payments.Payments/Charge";

#[derive(Clone, PartialEq, prost::Message)]
struct ChargeRequest {
    #[prost(uint64, tag = "1")]
    amount: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ChargeReply {
    #[prost(string, tag = "1")]
    text: String,
}

#[derive(Clone)]
struct Payments;

impl NamedService for Payments {
    const NAME: &'static str = "payments.Payments";
}

impl Service<http::Request<Body>> for Payments {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = server::Grpc::new(ProstCodec::default());
            Ok(match request.uri().path() {
                CHARGE => grpc.unary(tower::service_fn(charge), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}
