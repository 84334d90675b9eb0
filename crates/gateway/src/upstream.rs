//! [`Upstream`]: the service behind the gateway, and the phases of a forward told apart.
//!
//! Never sent, sent without a whole answer, answered: only the first is safe to try again, so a
//! request of which one byte went out is never sent twice.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HOST};
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use selfsame::{BoxError, Dialect, Outcome, Problem, ProblemDetails, Profile, Run};
use selfsame_core::headers::{SELFSAME_ATTEMPT, SELFSAME_PREFIX, is_hop_by_hop};
use tower_service::Service;

use crate::config;

/// How long an unused connection to the upstream is kept.
const POOL_IDLE: Duration = Duration::from_secs(60);

/// What the upstream answers, or what stands in for it.
pub(crate) type UpstreamBody = Either<Incoming, Full<Bytes>>;

/// The service behind the gateway.
#[derive(Clone)]
pub(crate) struct Upstream {
    client: Client<HttpConnector, UnsyncBoxBody<Bytes, BoxError>>,
    address: config::Upstream,
    dialect: Dialect,
}

/// How a forward ended.
enum Forwarded {
    Answered(Response<Incoming>),
    NeverSent(BoxError),
    AnswerLost(BoxError),
}

impl Upstream {
    pub(crate) fn new(address: config::Upstream, connect_timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_timeout));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .build(connector);
        let dialect = Dialect::new(Profile::Ietf, Problem::CONTRACT_PAGE);
        Self { client, address, dialect }
    }

    /// The same for a route that words its refusals so.
    pub(crate) fn with_dialect(&self, dialect: Dialect) -> Self {
        Self { dialect, ..self.clone() }
    }

    async fn forward<B>(&self, request: Request<B>) -> Forwarded
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let request = match self.rewrite(request) {
            Ok(request) => request,
            Err(error) => return Forwarded::NeverSent(error.into()),
        };
        // The client's own retry re-sends only what was never begun.
        match self.client.request(request).await {
            Ok(response) => Forwarded::Answered(response),
            Err(error) if error.is_connect() => Forwarded::NeverSent(error.into()),
            Err(error) => Forwarded::AnswerLost(error.into()),
        }
    }

    fn rewrite<B>(
        &self,
        request: Request<B>,
    ) -> Result<Request<UnsyncBoxBody<Bytes, BoxError>>, http::Error>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        // Where the target names a host, that one counts (RFC 9112), and not what `Host` says.
        if let Some(authority) = parts.uri.authority() {
            let host = authority.as_str().rsplit('@').next().unwrap_or_default();
            parts.headers.insert(HOST, HeaderValue::from_str(host)?);
        }
        let path = parts.uri.path_and_query().cloned();
        parts.uri = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.address.authority.clone())
            .path_and_query(path.unwrap_or(PathAndQuery::from_static("/")))
            .build()?;
        parts.version = Version::HTTP_11;
        drop_hop_by_hop(&mut parts.headers);
        drop_ours(&mut parts.headers);
        // The body is sent at once: nobody is left to wait for `100 Continue`.
        parts.headers.remove(EXPECT);
        if let Some(run) = parts.extensions.remove::<Run>() {
            parts.headers.insert(SELFSAME_ATTEMPT, HeaderValue::from(run.attempt()));
        }
        Ok(Request::from_parts(parts, body.map_err(Into::into).boxed_unsync()))
    }
}

impl<B> Service<Request<B>> for Upstream
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<UpstreamBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let upstream = self.clone();
        Box::pin(async move {
            let dialect = upstream.dialect.to_sender_of(request.headers());
            Ok(match upstream.forward(request).await {
                Forwarded::Answered(response) => answered(response),
                Forwarded::NeverSent(error) => unreachable(&*error, &dialect),
                Forwarded::AnswerLost(error) => answer_lost(&*error, &dialect),
            })
        })
    }
}

fn answered(mut response: Response<Incoming>) -> Response<UpstreamBody> {
    drop_hop_by_hop(response.headers_mut());
    drop_ours(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    response.map(Either::Left)
}

fn unreachable(error: &dyn std::error::Error, dialect: &Dialect) -> Response<UpstreamBody> {
    tracing::warn!(error = chain(error), "the upstream cannot be reached");
    let detail = "no connection to the service could be made, so nothing was sent; try again";
    let details = ProblemDetails::new(Problem::UpstreamUnreachable, detail);
    stand_in(dialect.response(&details), Outcome::NeverRan)
}

fn answer_lost(error: &dyn std::error::Error, dialect: &Dialect) -> Response<UpstreamBody> {
    tracing::warn!(error = chain(error), "the upstream's answer was lost");
    let detail = "the request was sent and its answer was lost, so it may have been carried out; \
                  without a key it cannot safely be sent again";
    let details = ProblemDetails::new(Problem::UpstreamFailed { held: true }, detail);
    stand_in(dialect.response(&details), Outcome::AnswerLost)
}

fn stand_in(mut response: Response<Bytes>, outcome: Outcome) -> Response<UpstreamBody> {
    response.extensions_mut().insert(outcome);
    response.map(|body| Either::Right(Full::new(body)))
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    drop_where(headers, |name| is_hop_by_hop(name) || named.contains(name));
}

fn drop_ours(headers: &mut HeaderMap) {
    drop_where(headers, |name| name.as_str().starts_with(SELFSAME_PREFIX));
}

fn drop_where(headers: &mut HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// An error with its causes: the outer one alone often says only "client error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
