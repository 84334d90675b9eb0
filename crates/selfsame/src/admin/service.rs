//! [`AdminService`]: the admin API over HTTP, as a tower service.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, DATE, LINK, TRAILER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use selfsame_core::headers::{IDEMPOTENT_REPLAYED, SELFSAME_PREFIX, is_hop_by_hop};
use selfsame_core::{Answer, AnswerBody, Fence};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_service::Service;

use super::query::Query;
use super::requests::{
    self, CompleteRequest, EraseRequest, FreeRequest, TenantErased, TenantRequest,
};
use super::{
    Admin, Erased, Find, Note, RecordId, RecordView, Resolution, Resolved, TenantTag, Whose,
};
use crate::body::BoxError;
use crate::{Idempotency, StoreError};

/// Fewer characters of a record's id than this are not looked for.
const ID_PREFIX_MIN: usize = 6;
/// The most bytes of a request's body.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Said of a listing by key that was cut off.
const MORE: &str = "selfsame-more";

/// The admin API over HTTP. Put it below a path of its own, such as `/admin/idempotency`.
///
/// # It authenticates nobody
///
/// **Whoever reaches this service can list every tenant's keys, have work run again, forge answers and
/// erase records. Put it behind your own authentication, and never on a public listener.** For pages in
/// a browser also check `Origin`: the service knows nothing of cookies.
///
/// | request | does |
/// |---|---|
/// | `GET /keys` | lists held records; `?find=` a key or the beginning of an id; filters `state`, `tenant`, `tenant_name`, `route`, `since`; pages by `limit` and `Link: <…>; rel="next"` |
/// | `GET /keys/{id}` | shows a record |
/// | `POST /keys/{id}/free` | the work was not done: [`FreeRequest`] |
/// | `POST /keys/{id}/complete` | the work was done: [`CompleteRequest`] |
/// | `POST /keys/{id}/erase` | takes away what is kept: [`EraseRequest`], or no body |
/// | `POST /tenants/erase` | the same for some of a tenant's records: [`TenantRequest`] |
///
/// ```
/// # use std::sync::Arc;
/// # use axum::{Router, middleware};
/// # use selfsame::{Idempotency, stores::MemoryStore};
/// # async fn example(idempotency: Idempotency) {
/// # async fn only_operators(request: axum::extract::Request, next: middleware::Next) -> axum::response::Response { next.run(request).await }
/// let app: Router = Router::new()
///     .nest_service("/admin/idempotency", idempotency.admin_service())
///     .layer(middleware::from_fn(only_operators));
/// # }
/// ```
#[derive(Clone)]
pub struct AdminService {
    admin: Admin,
}

impl Idempotency {
    /// The admin API over HTTP. **It authenticates nobody: put it behind your own authentication.**
    pub fn admin_service(&self) -> AdminService {
        AdminService { admin: self.admin() }
    }
}

type Reply = Response<Full<Bytes>>;

impl<B> Service<Request<B>> for AdminService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Reply;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let admin = self.admin.clone();
        Box::pin(async move {
            Ok(match serve(&admin, request).await {
                Ok(reply) => reply,
                Err(Failure(status, text)) => {
                    let mut reply = text_reply(format!("{text}\n"));
                    *reply.status_mut() = status;
                    reply
                }
            })
        })
    }
}

async fn serve<B>(admin: &Admin, request: Request<B>) -> Result<Reply, Failure>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let path: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
    let (reads, acts) = (parts.method == Method::GET, parts.method == Method::POST);
    match *path {
        ["keys"] if reads => list(admin, parts.uri.query()).await,
        ["keys", id] if reads => show(admin, id).await,
        ["keys", id, "free"] if acts => {
            let FreeRequest { fence, by, reason } = read(body).await?;
            let note = requests::note(by.as_deref(), reason.as_deref());
            resolve(admin, id, fence, Resolution::free(), note).await
        }
        ["keys", id, "complete"] if acts => {
            let request: CompleteRequest = read(body).await?;
            let resolution = Resolution::complete(answer(&request)?);
            let note = requests::note(request.by.as_deref(), request.reason.as_deref());
            resolve(admin, id, request.fence, resolution, note).await
        }
        ["keys", id, "erase"] if acts => {
            let EraseRequest { by, reason } = read_or_default(body).await?;
            erase(admin, id, requests::note(by.as_deref(), reason.as_deref())).await
        }
        ["tenants", "erase"] if acts => erase_tenant(admin, read(body).await?).await,
        ["keys"] | ["keys", _] => Ok(not_allowed("GET")),
        ["keys", _, "free" | "complete" | "erase"] | ["tenants", "erase"] => {
            Ok(not_allowed("POST"))
        }
        _ => Err(Failure(StatusCode::NOT_FOUND, "there is nothing here".into())),
    }
}

async fn list(admin: &Admin, query: Option<&str>) -> Result<Reply, Failure> {
    let query = Query::parse(query).map_err(Failure::bad)?;
    let now = admin.now().await?;
    // One more than is shown tells whether there are more.
    let most = query.limit + 1;
    let mut found = match &query.find {
        None => {
            let (filter, after) = (query.filter.clone(), query.after);
            admin.find(&Find::Matching { filter, after }, most).await?
        }
        Some(text) => {
            let mut found = admin.find(&Find::Key(text.clone()), most).await?;
            if may_be_id(text) && found.len() < most {
                let prefix = Find::IdPrefix(text.to_ascii_lowercase());
                found.extend(admin.find(&prefix, most - found.len()).await?);
            }
            found.retain(|record| query.filter.lets_through(record, now));
            found
        }
    };
    let has_more = found.len() > query.limit;
    found.truncate(query.limit);
    let views: Vec<_> = found.iter().map(|record| RecordView::of(record, now)).collect();
    let mut reply = json(&views);
    if let Some(last) = found.last().filter(|_| has_more) {
        let (name, value) = match query.find {
            Some(_) => (HeaderName::from_static(MORE), "true".to_owned()),
            None => (LINK, format!("<{}>; rel=\"next\"", query.behind(&last.id))),
        };
        let value = HeaderValue::try_from(value).expect("a query is plain ASCII");
        reply.headers_mut().insert(name, value);
    }
    Ok(reply)
}

async fn show(admin: &Admin, id: &str) -> Result<Reply, Failure> {
    let record = admin.get(&record_id(id)?).await?.ok_or_else(Failure::missing)?;
    Ok(json(&RecordView::of(&record, admin.now().await?)))
}

async fn resolve(
    admin: &Admin,
    id: &str,
    fence: u64,
    resolution: Resolution,
    note: Option<Note>,
) -> Result<Reply, Failure> {
    let id = record_id(id)?;
    let resolution = match note {
        Some(note) => resolution.noted(note),
        None => resolution,
    };
    match admin.resolve(&id, Fence::from_number(fence), &resolution).await? {
        Resolved::Done => Ok(done()),
        Resolved::NotHeld => {
            Err(Failure(StatusCode::CONFLICT, "the key is not held, or has moved on".into()))
        }
        Resolved::Missing => Err(Failure::missing()),
    }
}

async fn erase(admin: &Admin, id: &str, note: Option<Note>) -> Result<Reply, Failure> {
    match admin.erase(&record_id(id)?, note.as_ref()).await? {
        Erased::Done => Ok(done()),
        Erased::Running => {
            let text = "the key is running: wait until it has ended, and erase it then";
            Err(Failure(StatusCode::CONFLICT, text.into()))
        }
        Erased::Missing => Err(Failure::missing()),
    }
}

async fn erase_tenant(admin: &Admin, request: TenantRequest) -> Result<Reply, Failure> {
    let whose = match (request.tag, request.name) {
        (Some(tag), None) => Whose::Tag(
            TenantTag::parse(&tag)
                .ok_or_else(|| Failure::bad("a tenant's tag is 32 hex digits"))?,
        ),
        (None, Some(name)) => Whose::Name(name),
        _ => return Err(Failure::bad("say whose records, by \"tag\" or by \"name\"")),
    };
    let after = match request.after {
        Some(after) => Some(
            RecordId::parse(&after).ok_or_else(|| Failure::bad("\"after\" is no record's id"))?,
        ),
        None => None,
    };
    let note = requests::note(request.by.as_deref(), request.reason.as_deref());
    let done = admin.erase_tenant(whose, after, note.as_ref()).await?;
    let next = done.next.map(|next| next.to_string());
    Ok(json(&TenantErased { erased: done.erased, running: done.running, next }))
}

fn answer(request: &CompleteRequest) -> Result<Answer, Failure> {
    let status = StatusCode::from_u16(request.status)
        .ok()
        .filter(|status| !status.is_informational())
        .ok_or_else(|| Failure::bad("the status is not one a request can end with"))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), _) if !may_be_recorded(&name) => {
                let text =
                    format!("the header {name} is not part of an answer that is given again");
                return Err(Failure::bad(text));
            }
            (Ok(name), Ok(value)) => headers.append(name, value),
            _ => return Err(Failure::bad(format!("the header {name:?} cannot be sent"))),
        };
    }
    let body = AnswerBody::Kept(Bytes::from(request.body.clone()));
    Ok(Answer { status, headers, body, trailers: HeaderMap::new() })
}

/// Tells whether a recorded answer may have this header: it belongs to no connection, does not tell the
/// length of the body, and is not one that is written anew with every answer.
fn may_be_recorded(name: &HeaderName) -> bool {
    let is_written_anew = [CONTENT_LENGTH, TRAILER, DATE, IDEMPOTENT_REPLAYED].contains(name);
    !is_hop_by_hop(name) && !is_written_anew && !name.as_str().starts_with(SELFSAME_PREFIX)
}

fn may_be_id(text: &str) -> bool {
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex && (ID_PREFIX_MIN..=2 * RecordId::LEN).contains(&text.len())
}

fn record_id(text: &str) -> Result<RecordId, Failure> {
    RecordId::parse(text).ok_or_else(|| Failure::bad("a record id is 64 hex digits"))
}

async fn body_of<B>(body: B) -> Result<Bytes, Failure>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) => Err(Failure::bad(format!("the body cannot be read: {error}"))),
    }
}

async fn read<B, T: DeserializeOwned>(body: B) -> Result<T, Failure>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let bytes = body_of(body).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Failure::bad(format!("the body is not what is expected: {error}")))
}

async fn read_or_default<B, T: DeserializeOwned + Default>(body: B) -> Result<T, Failure>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let bytes = body_of(body).await?;
    match bytes.is_empty() {
        true => Ok(T::default()),
        false => read(Full::new(bytes)).await,
    }
}

fn json(value: &impl Serialize) -> Reply {
    let bytes = serde_json::to_vec(value).expect("what is shown is plain data");
    let mut reply = Response::new(Full::from(bytes));
    let kind = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

fn text_reply(text: String) -> Reply {
    let mut reply = Response::new(Full::from(text));
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

fn done() -> Reply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}

fn not_allowed(allowed: &'static str) -> Reply {
    let mut reply = text_reply(format!("use {allowed}\n"));
    *reply.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    reply
}

/// Description of the error.
struct Failure(StatusCode, String);

impl Failure {
    fn bad(text: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, text.into())
    }

    fn missing() -> Self {
        Self(StatusCode::NOT_FOUND, "there is no such record".into())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}
