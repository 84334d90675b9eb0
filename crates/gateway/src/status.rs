//! `/.well-known/idempotency/status`: what became of a key, for the tenant that used it.
//!
//! Nothing is claimed, run or replayed, and nobody sees an answer's body here. A key of another tenant
//! looks like one that was never used.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Query;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use selfsame::{Problem, ProblemDetails, StoreError};
use selfsame_core::{FullStore, Record, RecordId, State, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::address_limit::RunPermit;
use crate::admin::date;
use crate::background;
use crate::contract::{ContractPage, not_allowed};
use crate::door::Body;
use crate::room::Seldom;
use crate::routes::Protected;
use crate::target;

/// Limit of the keys that are looked up at once. One more waits its turn, in its own time.
const AT_ONCE_MAX: usize = 64;
/// Time that a look-up may take.
const PATIENCE: Duration = Duration::from_secs(5);
const EXPECTED: &str = "say which request the key was sent with, by its method and path or those of \
                        its route: ?route=POST%20/v1/charges\n";

/// Where clients ask what became of a key.
pub(crate) struct StatusPage {
    store: Arc<dyn FullStore>,
    room: Semaphore,
    failing: Seldom,
}

/// A question about a key.
pub(crate) struct LookUp {
    page: Arc<StatusPage>,
    /// A request like the one it was used with, and the route that took it, if they were named.
    route: Option<(Request<()>, Protected)>,
}

impl StatusPage {
    pub(crate) fn new(store: Arc<dyn FullStore>) -> Self {
        Self { store, room: Semaphore::new(AT_ONCE_MAX), failing: Seldom::default() }
    }

    /// Where it is, below the service's address.
    pub(crate) fn path() -> String {
        format!("{}/status", ContractPage::PATH)
    }

    /// Tells whether a request for `path`, in its normal form, is one for this page.
    pub(crate) fn is_at(path: &str) -> bool {
        matches!(path.strip_prefix(ContractPage::PATH), Some("/status" | "/status/"))
    }

    /// The question in `request`; `find` tells which route takes a request.
    pub(crate) fn look_up<B>(
        self: Arc<Self>,
        request: &Request<B>,
        find: impl Fn(&Request<()>) -> Protected,
    ) -> LookUp {
        let route = named(request).map(|named| {
            let route = find(&named);
            (named, route)
        });
        LookUp { page: self, route }
    }

    async fn status(
        self: Arc<Self>,
        id: RecordId,
        permit: Option<RunPermit>,
    ) -> Result<Status, Problem> {
        let this = self.clone();
        // On a task of its own: a request that waits for its turn must not keep its place among the look-ups.
        let looked = background::spawn(timeout(PATIENCE, async move {
            // First, so that one address does not keep all others waiting.
            let _turn_of_address = match &permit {
                Some(permit) => Some(permit.question_turn().await),
                None => None,
            };
            let _turn = this.room.acquire().await.expect("it is never closed");
            let record = this.store.get(&id).await?;
            Ok::<_, StoreError>(match record {
                Some(record) => Status::of(&record, this.store.now().await?),
                None => Status::unknown(),
            })
        }));
        match looked.await {
            Ok(Ok(Ok(status))) => Ok(status),
            Ok(Ok(Err(error))) => Err(self.failed(&error)),
            Ok(Err(_)) | Err(_) => Err(Problem::StoreUnavailable),
        }
    }

    fn failed(&self, error: &StoreError) -> Problem {
        if self.failing.is_due() {
            tracing::warn!(%error, "a key could not be looked up");
        }
        match error.is_damaged() {
            true => Problem::RecordDamaged,
            false => Problem::StoreUnavailable,
        }
    }
}

impl LookUp {
    /// The answer, which no cache may keep.
    pub(crate) async fn answer(self: Box<Self>, parts: Parts) -> Response<Body> {
        let mut response = self.respond(parts).await;
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    async fn respond(self, mut parts: Parts) -> Response<Body> {
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return not_allowed().map(Either::Right);
        }
        let Some((named, Protected { service, auth })) = self.route else {
            let body = Full::from(EXPECTED);
            return answer(StatusCode::BAD_REQUEST, "text/plain", body);
        };
        let (mut named, ()) = named.into_parts();
        if let Some(auth) = auth {
            // What the request itself would have been asked about.
            auth.clean(&mut parts.headers);
            let host = named.headers.remove(HOST);
            parts.headers.extend(host.map(|host| (HOST, host)));
            parts.method = named.method.clone();
            parts.uri = named.uri;
            if let Err(refused) = auth.admit(&mut parts, &service).await {
                return refused;
            }
        }
        let id = match service.record_of(&parts, &named.method) {
            Ok(id) => id,
            Err(refusal) => return (*refusal).map(Either::Left),
        };
        let permit = parts.extensions.get().cloned();
        match self.page.status(id, permit).await {
            Ok(status) => {
                let body = serde_json::to_vec(&status).expect("plain values are JSON");
                answer(StatusCode::OK, "application/json", Full::from(body))
            }
            Err(problem) => {
                let detail = "the key cannot be looked up at the moment";
                service.refuse(&parts, &ProblemDetails::new(problem, detail)).map(Either::Left)
            }
        }
    }
}

fn answer(status: StatusCode, kind: &'static str, body: Full<Bytes>) -> Response<Body> {
    let mut response = Response::new(Either::Right(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A request like the one that `?route=` names: `POST /v1/charges`, or with a host before the path.
/// Without one, it is for the host that is asked.
fn named<B>(request: &Request<B>) -> Option<Request<()>> {
    #[derive(Deserialize)]
    struct Asked {
        route: String,
    }
    let Query(Asked { route }) = Query::try_from_uri(request.uri()).ok()?;
    let mut named = target::named(&route)?;
    if !named.headers().contains_key(HOST) {
        named.headers_mut().extend(request.headers().get(HOST).map(|host| (HOST, host.clone())));
    }
    Some(named)
}

/// What became of a key.
#[derive(Debug, PartialEq, Serialize)]
struct Status {
    state: &'static str,
    /// How many times the work was begun.
    attempts: u32,
    first_seen: Option<String>,
    /// None while it is held, which does not end by itself.
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_status: Option<u16>,
}

impl Status {
    fn unknown() -> Self {
        let (first_seen, expires_at) = (None, None);
        Self { state: "unknown", attempts: 0, first_seen, expires_at, original_status: None }
    }

    fn of(record: &Record, now: Timestamp) -> Self {
        let held = record.is_held(now);
        let state = match record.state {
            _ if held => "held",
            State::Claimed { .. } if record.is_leased(now) => "in_progress",
            // A claim that is dead and may be resumed is as good as failed: the next retry runs.
            State::Claimed { .. } | State::Failed | State::Held { .. } => "failed",
            State::Completed { .. } => "completed",
            State::Tombstone => "expired",
        };
        Self {
            state,
            attempts: record.attempt,
            first_seen: Some(date(record.created_at)),
            expires_at: (!held).then(|| date(record.expires_at)),
            original_status: match &record.state {
                State::Completed { answer, .. } => Some(answer.status.as_u16()),
                _ => None,
            },
        }
    }
}
