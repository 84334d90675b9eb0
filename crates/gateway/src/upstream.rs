//! [`Upstream`]: the service behind the gateway, and the phases of a forward told apart.
//!
//! Never sent, sent without a whole answer, answered: only the first is safe to try again, so a
//! request of which one byte went out is never sent twice.

mod body;
mod connection_limit;
mod failures;
mod headers;
mod http2;
mod inquiry;
mod tls;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, TE, UPGRADE};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Uri};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::{BodyExt, Either, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use selfsame::{BoxError, Dialect, Problem, Profile, Run};
use selfsame_core::headers::SELFSAME_ATTEMPT;
use tower_service::Service;

use crate::address_limit::RunPermit;
use crate::checkpoints::Invitation;
use crate::config::{self, Config, Protocol};
use crate::forwarded;
use crate::peer::Peer;
use crate::request_head::HeadRules;
use crate::tls::files::Unfit;
use crate::upgrade::Wish;
use body::{Answered, Outgoing};
pub(crate) use connection_limit::ConnectionLimits;
use connection_limit::TooManyConnections;
use failures::{About, Failures};
use http2::Connections;
pub(crate) use inquiry::Inquiry;
pub(crate) use tls::{ClientTls, Connector};

/// How long an unused connection to the upstream is kept. Many servers close theirs after two to
/// five seconds, and what is sent just then is lost: its key would be held for a person. A new
/// connection costs next to nothing beside that.
const POOL_IDLE: Duration = Duration::from_millis(1500);

/// How long a silent connection may be dead before the system asks.
const PROBE_AFTER: Duration = Duration::from_secs(15);

/// What the upstream answers, or what stands in for it.
pub(crate) type UpstreamBody = Either<Answered, Full<Bytes>>;

/// The service behind the gateway.
#[derive(Clone)]
pub(crate) struct Upstream {
    link: Link,
    address: config::Upstream,
    outward: Outward,
    dialect: Dialect,
    /// What it is told of its runs, where it may save how far they have come.
    invitation: Option<Invitation>,
    head_rules: Arc<HeadRules>,
    /// The route that it serves, for the log.
    route: Arc<str>,
    /// Shared by all routes and threads: what fails for one fails for the others.
    failures: Arc<Failures>,
}

/// The services behind the gateway, one for each address: routes share their connections, and those
/// that another configuration keeps are not made anew.
#[derive(Clone, Default)]
pub(crate) struct Upstreams(Vec<Upstream>);

impl Upstreams {
    /// The one at `address`: of these, or of `known`, or a new one.
    pub(crate) fn at(
        &mut self,
        address: &config::Upstream,
        outward: &Outward,
        known: &Self,
    ) -> &Upstream {
        let is_it = |upstream: &Upstream| upstream.is_at(address, outward);
        let index = self.0.iter().position(is_it).unwrap_or_else(|| {
            let known = known.0.iter().find(|upstream| is_it(upstream)).cloned();
            self.0.push(known.unwrap_or_else(|| Upstream::new(address.clone(), outward.clone())));
            self.0.len() - 1
        });
        &self.0[index]
    }
}

/// What all connections to upstreams have in common.
#[derive(Clone)]
pub(crate) struct Outward {
    connect_timeout: Duration,
    /// By host and port, for all threads.
    failures: Arc<Mutex<HashMap<Authority, Arc<Failures>>>>,
    connections: Arc<ConnectionLimits>,
    /// There where an upstream is spoken to over TLS.
    tls: Option<Arc<ClientTls>>,
}

impl Outward {
    /// As `config` says; its files are read.
    ///
    /// # Errors
    /// A file that is of no use.
    pub(crate) fn open(
        config: &Config,
        connections: &Arc<ConnectionLimits>,
    ) -> Result<Self, Unfit> {
        let tls = config.has_encrypted_upstream().then(|| ClientTls::open(&config.upstream_tls));
        let tls = tls.transpose()?.map(Arc::new);
        let (connect_timeout, failures) = (config.connect_timeout, Arc::default());
        Ok(Self { connect_timeout, failures, connections: connections.clone(), tls })
    }

    /// The same, where each host must show a certificate for its own name.
    fn by_own_names(&self) -> Self {
        let tls = self.tls.as_ref().map(|tls| Arc::new(tls.by_own_names()));
        Self { tls, ..self.clone() }
    }

    /// The failures of the upstream at `address`.
    fn failures(&self, address: &config::Upstream) -> Arc<Failures> {
        self.failures.lock().entry(address.authority.clone()).or_default().clone()
    }

    fn connector(&self, tcp: HttpConnector, address: &config::Upstream) -> Connector {
        let limit = self.connections.of(&address.authority);
        Connector::new(tcp, address, self.tls.as_deref(), self.connect_timeout, limit)
    }

    /// Whether a connection to `address` would be the same with `other`.
    fn is_same_for(&self, address: &config::Upstream, other: &Self) -> bool {
        let (ours, others) = (self.tls.as_ref(), other.tls.as_ref());
        let is_same = ours.zip(others).is_some_and(|(ours, others)| Arc::ptr_eq(ours, others));
        self.connect_timeout == other.connect_timeout && (!address.is_encrypted || is_same)
    }
}

/// How it is spoken to.
#[derive(Clone)]
enum Link {
    Http1(Arc<Client<Connector, Outgoing>>),
    Http2(Arc<Connections>),
}

/// How a forward ended.
enum Forwarded {
    Answered(Response<Answered>),
    NeverSent(BoxError),
    AnswerLost(BoxError),
}

impl Upstream {
    fn new(address: config::Upstream, outward: Outward) -> Self {
        let link = match address.protocol {
            Protocol::Http1 => Link::Http1(Arc::new(http1(&address, &outward))),
            Protocol::Http2 => Link::Http2(Arc::new(Connections::new(&address, &outward))),
        };
        let dialect = Dialect::new(Profile::Ietf, Problem::CONTRACT_PAGE);
        let (head_rules, route, failures) = (Arc::default(), "".into(), outward.failures(&address));
        Self { link, address, outward, dialect, invitation: None, head_rules, route, failures }
    }

    /// Whether it is the one that [`Upstream::new`] would make.
    fn is_at(&self, address: &config::Upstream, outward: &Outward) -> bool {
        self.address == *address && self.outward.is_same_for(address, outward)
    }

    /// A copy for one route, by its name: its error format, checkpoint headers and rules for heads.
    pub(crate) fn for_route(
        &self,
        route: &str,
        dialect: Dialect,
        invitation: Option<Invitation>,
        head_rules: Arc<HeadRules>,
    ) -> Self {
        Self { route: route.into(), dialect, invitation, head_rules, ..self.clone() }
    }

    async fn forward<B>(&self, request: Request<B>) -> Forwarded
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        let wish = match self.link {
            Link::Http1(_) => Wish::of(&mut parts),
            Link::Http2(_) => None,
        };
        if let Err(error) = self.rewrite(&mut parts) {
            return Forwarded::NeverSent(error.into());
        }
        if let Some(wish) = &wish {
            wish.tell(&mut parts.headers);
        }
        let body = body.map_err(Into::into).boxed_unsync();
        let outgoing = Outgoing { body, head_rules: self.head_rules.clone() };
        let request = Request::from_parts(parts, outgoing);
        let client = match &self.link {
            Link::Http1(client) => client,
            Link::Http2(connections) => return connections.forward(request).await,
        };
        // The client's own retry re-sends only what was never begun.
        match client.request(request).await {
            Ok(mut response) => {
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    let Some(wish) = wish else {
                        return Forwarded::AnswerLost("it changed the protocol unasked".into());
                    };
                    wish.fulfil(&mut response);
                }
                Forwarded::Answered(response.map(|body| Answered::new(body, None)))
            }
            Err(error) if error.is_connect() || tls::was_turned_away(&error) => {
                Forwarded::NeverSent(error.into())
            }
            Err(error) => Forwarded::AnswerLost(error.into()),
        }
    }

    fn rewrite(&self, parts: &mut Parts) -> Result<(), http::Error> {
        let te = headers::te_trailers(&parts.headers);
        headers::drop_what_stays(&mut parts.headers);
        if let Some(peer) = parts.extensions.get::<Peer>() {
            forwarded::tell(&mut parts.headers, peer, self.head_rules.trusts(peer));
        }
        forwarded::sign(&mut parts.headers, parts.version);
        let mut authority = self.address.authority.clone();
        match self.link {
            Link::Http1(_) => parts.version = Version::HTTP_11,
            Link::Http2(_) => {
                parts.version = Version::HTTP_2;
                authority = headers::take_host(&mut parts.headers).unwrap_or(authority);
                parts.headers.extend(te.map(|te| (TE, te)));
            }
        }
        let path = parts.uri.path_and_query().cloned();
        parts.uri = Uri::builder()
            .scheme(self.address.scheme())
            .authority(authority)
            .path_and_query(path.unwrap_or(PathAndQuery::from_static("/")))
            .build()?;
        if let Some(run) = parts.extensions.remove::<Run>() {
            parts.headers.insert(SELFSAME_ATTEMPT, HeaderValue::from(run.attempt()));
            if let Some(invitation) = &self.invitation {
                invitation.write(&run, &mut parts.headers);
            }
        }
        Ok(())
    }
}

fn http1(address: &config::Upstream, outward: &Outward) -> Client<Connector, Outgoing> {
    let mut connector = HttpConnector::new();
    // Of one that left HTTP, nothing else may ever tell that its other end is gone.
    connector.set_keepalive(Some(PROBE_AFTER));
    let connector = outward.connector(connector, address);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .build(connector)
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

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let upstream = self.clone();
        let permit = request.extensions_mut().remove::<RunPermit>();
        Box::pin(async move {
            let dialect = upstream.dialect.to_sender_of(request.headers());
            let run = request.extensions().get::<Run>();
            let about = About {
                record: run.map(|run| run.lease().id),
                method: request.method().clone(),
                uri: request.uri().clone(),
            };
            let mut response = match upstream.forward(request).await {
                Forwarded::Answered(mut response) => {
                    upstream.is_back();
                    response.body_mut().permit.clone_from(&permit);
                    answered(response)
                }
                Forwarded::NeverSent(error) => match TooManyConnections::cause_of(&*error) {
                    Some(reached) => upstream.overloaded(reached, &dialect),
                    None => upstream.unreachable(&*error, about, &dialect),
                },
                Forwarded::AnswerLost(error) => upstream.answer_lost(&*error, about, &dialect),
            };
            if let Some(permit) = permit {
                // The layer keeps it until the run is recorded.
                response.extensions_mut().insert(permit);
            }
            Ok(response)
        })
    }
}

fn answered(mut response: Response<Answered>) -> Response<UpstreamBody> {
    let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let protocol = response.headers_mut().remove(UPGRADE).filter(|_| is_switching);
    headers::drop_what_stays(response.headers_mut());
    // A part of the answer: it is kept with it, and the same whenever it is given again.
    let version = response.version();
    forwarded::sign(response.headers_mut(), version);
    if let Some(protocol) = protocol {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(UPGRADE, protocol);
    }
    *response.version_mut() = Version::HTTP_11;
    response.map(Either::Left)
}
