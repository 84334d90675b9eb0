//! [`Door`]: where a connection's requests go, and what is answered on the spot.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::{Either, Full};
use selfsame::{BoxError, IdempotencyService, Problem, ProblemDetails, ResponseBody};
use serde_json::json;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tower_service::Service;

use crate::address_limit::{ClientAddress, ConnectionPermit};
use crate::fair_share::{BusyTime, FairShare, ForegroundRequest};
use crate::forward_auth::ForwardAuth;
use crate::peer::Peer;
use crate::request_head::Refusal;
use crate::room::{Room, Seat, Seated};
use crate::routes::{LiveRoutes, Protected};
use crate::target;
use crate::upgrade::TunnelSeat;
use crate::upstream::{Upstream, UpstreamBody};

pub(crate) type Body = Either<ResponseBody<UpstreamBody>, Full<Bytes>>;

/// Who is at the door, and where its requests go.
pub(crate) struct Door {
    pub(crate) peer: Peer,
    /// None where the peer is a proxy that names its clients.
    pub(crate) permit: Option<Arc<ConnectionPermit>>,
    pub(crate) routes: Arc<LiveRoutes>,
    pub(crate) room: Arc<Room>,
    /// Connections that have left HTTP.
    pub(crate) tunnels: TaskTracker,
    pub(crate) share: Arc<FairShare>,
}

impl Door {
    /// Time that tasks of the peer's address have taken lately; none where the peer is a proxy.
    pub(crate) fn busy_time(&self) -> Option<&Arc<BusyTime>> {
        self.permit.as_ref().map(|permit| permit.busy_time())
    }

    pub(crate) fn enter<B>(&self, mut request: Request<B>) -> Entered
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        request.extensions_mut().insert(self.peer.clone());
        let found = {
            let routes = self.routes.look();
            routes.head_rules.apply(&mut request, &self.peer).map(|()| {
                target::host_to_headers(&mut request);
                let page = routes.contract_at(request.uri().path());
                let client = routes.head_rules.forwarded_client(request.headers(), &self.peer);
                (page, routes.look_up_at(&request), routes.find(&request), client)
            })
        };
        let (page, look_up, route, client) = match found {
            Ok(found) => found,
            Err(refusal) => return Entered::refused(refusal, request.version()),
        };
        if let Some(page) = page {
            let answer = page.answer(request.method(), request.headers()).map(Either::Right);
            return self.entered(Way::Around(Box::pin(async { answer })), None);
        }
        // A look-up may ask the service of `[forward_auth]`, which is not cancelled either.
        let may_run_on =
            look_up.is_some() || route.service.may_have_key(request.method(), request.headers());
        let seat = match self.admit(&mut request, client, may_run_on) {
            Ok(seat) => Some(seat),
            Err(problem) => {
                let refused = shed(request, &route, problem);
                return self.entered(Way::Around(Box::pin(async { refused })), None);
            }
        };
        let way = match (look_up, route) {
            (Some(look_up), _) => {
                let (parts, _) = request.into_parts();
                Way::Around(Box::pin(look_up.answer(parts)))
            }
            (None, Protected { service, auth: Some(auth) }) => {
                Way::Around(Box::pin(ask_first(request, auth, service)))
            }
            // An upstream is always ready, and until it is called a request would wait here, at its full
            // size.
            (None, Protected { mut service, auth: None }) => Way::Straight(service.call(request)),
        };
        self.entered(way, seat)
    }

    /// Makes requests of a busy address wait for a turn each: a client that sends many at once
    /// would have them all answered in one.
    fn entered(&self, way: Way, seat: Option<Seat>) -> Entered {
        let is_busy = self.busy_time().is_some_and(|busy| self.share.is_exceeded(busy));
        let foreground = (!is_busy).then(|| self.share.count_foreground());
        Entered { way, seat, must_yield: is_busy, foreground }
    }

    /// Counts a request against its client's address and the whole. If it `may_run_on` without its client,
    /// its run takes a permit along, its claim the allowance for new keys, and its body that for bytes in memory.
    fn admit<B>(
        &self,
        request: &mut Request<B>,
        forwarded_client: Option<ClientAddress>,
        may_run_on: bool,
    ) -> Result<Seat, Problem> {
        let counted = match (forwarded_client, &self.permit) {
            (None, Some(permit)) => permit.request(),
            (None, None) => self.room.addresses.request(self.peer.ip()),
            (Some(client), _) => self.room.addresses.request(client),
        };
        let counted = counted.map_err(|excess| self.room.refuse(&excess))?;
        let whole = self.room.request()?;
        let permit = match may_run_on {
            true => {
                if let Some(new_keys) = counted.new_keys() {
                    request.extensions_mut().insert(new_keys);
                }
                request.extensions_mut().insert(counted.buffers());
                let (permit, run) = counted.running();
                request.extensions_mut().insert(run);
                permit
            }
            false => counted.passing(),
        };
        Ok(Seat { _whole: whole, _address: permit })
    }
}

/// A request that was let in. What is large of it is boxed: thousands may wait for their answers.
pub(crate) struct Entered {
    way: Way,
    seat: Option<Seat>,
    /// Set where other addresses are served first.
    must_yield: bool,
    /// Set where this address is served first, until its answer begins.
    foreground: Option<ForegroundRequest>,
}

impl Entered {
    /// A request that is refused for its head.
    pub(crate) fn refused(refusal: Refusal, version: Version) -> Self {
        Self::answered(refuse_head(refusal, version))
    }

    /// A request whose body came too slowly.
    pub(crate) fn too_slow() -> Self {
        let detail = "the request's body came more slowly than this service waits for";
        Self::answered(unnamed_problem(StatusCode::REQUEST_TIMEOUT, detail))
    }

    fn answered(response: Response<Body>) -> Self {
        let way = Way::Around(Box::pin(async { response }));
        Self { way, seat: None, must_yield: false, foreground: None }
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum Way {
    /// To its route.
    Straight(Boxed<Result<Response<ResponseBody<UpstreamBody>>, Infallible>>),
    /// Elsewhere, which is rare.
    Around(Boxed<Response<Body>>),
}

impl Future for Entered {
    type Output = Response<Seated<Body>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::take(&mut self.must_yield) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut response = match &mut self.way {
            Way::Straight(answer) => straight(ready!(answer.as_mut().poll(cx))),
            Way::Around(answer) => ready!(answer.as_mut().poll(cx)),
        };
        self.foreground = None;
        let mut seat = self.seat.take();
        if let Some(tunnel) = response.extensions_mut().remove::<TunnelSeat>()
            && let Some(seat) = seat.take()
        {
            tunnel.set(seat);
        }
        Poll::Ready(response.map(|body| Seated { body, _seat: seat }))
    }
}

fn straight(answered: Result<Response<ResponseBody<UpstreamBody>>, Infallible>) -> Response<Body> {
    answered.unwrap_or_else(|never| match never {}).map(Either::Left)
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
    straight(service.oneshot(request).await)
}

/// The response to a request whose head is refused. What follows it on a connection of HTTP/1 is not read.
fn refuse_head(refusal: Refusal, version: Version) -> Response<Body> {
    let Refusal { status, reason, detail } = refusal;
    metrics::counter!("selfsame_refused_heads_total", "reason" => reason).increment(1);
    tracing::debug!(%status, reason, detail, "a request was refused for its head");
    let mut response = unnamed_problem(status, detail);
    if version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A problem that the contract has no name for.
fn unnamed_problem(status: StatusCode, detail: &str) -> Response<Body> {
    let title = status.canonical_reason();
    let problem = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    let mut response = Response::new(Either::Right(Full::from(problem.to_string())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// The answer to one request too many.
fn shed<B>(request: Request<B>, route: &Protected, problem: Problem) -> Response<Body> {
    let (parts, _unread) = request.into_parts();
    let detail = match problem {
        Problem::TooManyRequests => {
            "too many requests of this address are under way; this one was not looked at, try again"
        }
        _ => "too many requests are under way; this one was not looked at, try again",
    };
    let details = ProblemDetails::new(problem, detail);
    route.service.refuse(&parts, &details).map(Either::Left)
}
