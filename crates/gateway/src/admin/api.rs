//! `/api/v1/keys`: looking keys up, and deciding about held ones.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use selfsame_core::{Answer, AnswerBody, Fence, Find, RecordId, Resolution, Resolved, StoreError};
use serde::{Deserialize, Serialize};

use super::{Admin, RecordView};

/// The most records one look-up shows.
const FOUND_MAX: usize = 100;
/// Fewer characters of a record's id than this are not looked for.
const ID_PREFIX_MIN: usize = 6;

#[derive(Deserialize)]
pub(super) struct Look {
    find: Option<String>,
}

/// A decision about a key as it was seen.
#[derive(Serialize, Deserialize)]
pub(crate) struct FreeRequest {
    /// The fence that was seen: a key that has moved on is left alone.
    pub(crate) fence: u64,
}

/// A decision about a key as it was seen, with the answer that retries get.
#[derive(Serialize, Deserialize)]
pub(crate) struct CompleteRequest {
    pub(crate) fence: u64,
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) headers: Vec<(String, String)>,
    #[serde(default)]
    pub(crate) body: String,
}

/// Records by key or by the beginning of their id; without either, those that are held.
pub(super) async fn find(
    State(admin): State<Arc<Admin>>,
    Query(look): Query<Look>,
) -> Result<Json<Vec<RecordView>>, Failure> {
    let mut found = match &look.find {
        None => admin.store.find(&Find::Held, FOUND_MAX).await?,
        Some(key) => admin.store.find(&Find::Key(key.clone()), FOUND_MAX).await?,
    };
    if let Some(prefix) = look.find.filter(|text| may_be_id(text)) {
        let by_id = admin.store.find(&Find::IdPrefix(prefix), FOUND_MAX).await?;
        found.extend(by_id);
    }
    let now = admin.store.now().await?;
    Ok(Json(found.iter().map(|record| RecordView::of(record, now)).collect()))
}

/// The work was not done: the next retry runs.
pub(super) async fn free(
    State(admin): State<Arc<Admin>>,
    Path(id): Path<String>,
    Json(request): Json<FreeRequest>,
) -> Result<StatusCode, Failure> {
    resolve(&admin, &id, request.fence, Resolution::Free).await
}

/// The work was done: retries get this answer.
pub(super) async fn complete(
    State(admin): State<Arc<Admin>>,
    Path(id): Path<String>,
    Json(request): Json<CompleteRequest>,
) -> Result<StatusCode, Failure> {
    let answer = answer(&request)?;
    resolve(&admin, &id, request.fence, Resolution::Complete(answer)).await
}

async fn resolve(
    admin: &Admin,
    id: &str,
    fence: u64,
    resolution: Resolution,
) -> Result<StatusCode, Failure> {
    let id = RecordId::parse(id).ok_or_else(|| Failure::bad("a record id is 64 hex digits"))?;
    match admin.store.resolve(&id, Fence::from_number(fence), &resolution).await? {
        Resolved::Done => {
            tracing::info!(record = id.short(), "a held key was resolved by an operator");
            Ok(StatusCode::NO_CONTENT)
        }
        Resolved::NotHeld => {
            Err(Failure(StatusCode::CONFLICT, "the key is not held, or has moved on".into()))
        }
        Resolved::Missing => Err(Failure(StatusCode::NOT_FOUND, "there is no such record".into())),
    }
}

fn answer(request: &CompleteRequest) -> Result<Answer, Failure> {
    let status = StatusCode::from_u16(request.status)
        .ok()
        .filter(|status| !status.is_informational())
        .ok_or_else(|| Failure::bad("the status is not one a request can end with"))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => headers.append(name, value),
            _ => return Err(Failure::bad(format!("the header {name:?} cannot be sent"))),
        };
    }
    let body = AnswerBody::Kept(Bytes::from(request.body.clone()));
    Ok(Answer { status, headers, body, trailers: HeaderMap::new() })
}

fn may_be_id(text: &str) -> bool {
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex && (ID_PREFIX_MIN..=2 * RecordId::LEN).contains(&text.len())
}

/// What went wrong, in words.
pub(super) struct Failure(pub(super) StatusCode, pub(super) String);

impl Failure {
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, text.into())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, format!("{}\n", self.1)).into_response()
    }
}
