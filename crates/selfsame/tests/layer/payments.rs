//! A gRPC service whose work the test says, and a client for it: what tonic's build step would make
//! of a .proto file. The end-to-end tests use it too.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming, client, server};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

const CHARGE: &str = "/payments.Payments/Charge";
const CHARGE_ALL: &str = "/payments.Payments/ChargeAll";
const LIST: &str = "/payments.Payments/List";

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Charge {
    #[prost(uint64, tag = "1")]
    pub(crate) amount: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Receipt {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

pub(crate) type Answer = Result<Response<Receipt>, Status>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The service: `Charge`, which is one message and one answer; `ChargeAll`, which takes a stream of
/// them, and works at the last; and `List`, which gives as many receipts as the amount says.
#[derive(Clone)]
pub(crate) struct Payments {
    work: Arc<dyn Fn(Request<Charge>) -> Answering + Send + Sync>,
}

impl Payments {
    pub(crate) fn new<F>(work: impl Fn(Request<Charge>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Self { work: Arc::new(move |request| Box::pin(work(request))) }
    }

    async fn charge_all(self, request: Request<Streaming<Charge>>) -> Answer {
        let mut charges = request.into_inner();
        let mut last = Charge::default();
        while let Some(charge) = charges.message().await? {
            last = charge;
        }
        (self.work)(Request::new(last)).await
    }

    async fn list(
        self,
        request: Request<Charge>,
    ) -> Result<Response<impl futures_util::Stream<Item = Result<Receipt, Status>>>, Status> {
        let count = request.get_ref().amount;
        let receipt = (self.work)(request).await?.into_inner();
        let receipts = (0..count).map(move |_| Ok(receipt.clone()));
        Ok(Response::new(futures_util::stream::iter(receipts)))
    }
}

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
        let service = self.clone();
        Box::pin(async move {
            let mut grpc = server::Grpc::new(ProstCodec::<Receipt, Charge>::default());
            Ok(match request.uri().path() {
                CHARGE => {
                    let charge = service_fn(move |request| (service.work)(request));
                    grpc.unary(charge, request).await
                }
                CHARGE_ALL => {
                    let charge = service_fn(move |charges| service.clone().charge_all(charges));
                    grpc.client_streaming(charge, request).await
                }
                LIST => {
                    let list = service_fn(move |request| service.clone().list(request));
                    grpc.server_streaming(list, request).await
                }
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// A client on one connection. Without a key, none is sent.
#[derive(Clone)]
pub(crate) struct Caller {
    grpc: client::Grpc<Channel>,
}

impl Caller {
    pub(crate) async fn connect(to: SocketAddr) -> Self {
        let channel = Channel::from_shared(format!("http://{to}")).expect("an address");
        Self { grpc: client::Grpc::new(channel.connect().await.expect("a connection")) }
    }

    pub(crate) async fn charge(&self, key: &str, amount: u64) -> Answer {
        self.send(keyed(key, Charge { amount })).await
    }

    /// As [`charge`](Self::charge), with metadata of the test's own.
    pub(crate) async fn send(&self, request: Request<Charge>) -> Answer {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.expect("a connection");
        grpc.unary(request, http::uri::PathAndQuery::from_static(CHARGE), ProstCodec::default())
            .await
    }

    pub(crate) async fn charge_all(&self, key: &str, amounts: &[u64]) -> Answer {
        let charges: Vec<_> = amounts.iter().map(|&amount| Charge { amount }).collect();
        let request = keyed(key, futures_util::stream::iter(charges));
        let path = http::uri::PathAndQuery::from_static(CHARGE_ALL);
        let mut grpc = self.grpc.clone();
        grpc.ready().await.expect("a connection");
        grpc.client_streaming(request, path, ProstCodec::default()).await
    }

    pub(crate) async fn list(&self, key: &str, count: u64) -> Result<Vec<Receipt>, Status> {
        let request = keyed(key, Charge { amount: count });
        let path = http::uri::PathAndQuery::from_static(LIST);
        let mut grpc = self.grpc.clone();
        grpc.ready().await.expect("a connection");
        let listed = grpc.server_streaming(request, path, ProstCodec::default()).await?;
        let mut receipts = Vec::new();
        let mut listed = listed.into_inner();
        while let Some(receipt) = listed.message().await? {
            receipts.push(receipt);
        }
        Ok(receipts)
    }
}

/// A request with this key.
pub(crate) fn keyed<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !key.is_empty() {
        request.metadata_mut().insert("idempotency-key", key.parse().expect("ASCII"));
    }
    request
}

/// What a client reads of a first answer: its text.
pub(crate) fn text(answer: &Answer) -> &str {
    let answer = answer.as_ref().expect("an answer");
    assert!(!answer.metadata().contains_key("idempotent-replayed"), "{answer:?}");
    &answer.get_ref().text
}

/// What a client reads of an answer that it is given again: its text.
pub(crate) fn replayed(answer: &Answer) -> &str {
    let answer = answer.as_ref().expect("an answer");
    assert_eq!(answer.metadata().get("idempotent-replayed").expect("replayed"), "true");
    &answer.get_ref().text
}

/// The code of an answer that is an error.
pub(crate) fn code(answer: Answer) -> tonic::Code {
    answer.expect_err("an error").code()
}
