//! Saving a checkpoint, and reading it again: `PUT` and `GET` of one address.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http_body_util::BodyExt;
use metrics::counter;
use selfsame_core::headers::SELFSAME_CLAIM;
use selfsame_core::{Checkpoint, Fenced, FullStore, Lease};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::claims::{Claims, Unaccepted};
use super::refusal::Refusal;

/// Where checkpoints are; the claim follows, or comes in a header.
pub(super) const PATH: &str = "/checkpoint";

/// How long an upstream may take to send a checkpoint.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of one that is too large is read all the same, so that its sender hears of it.
const REST_BYTES_MAX: usize = 1024 * 1024;
const NAME_BYTES_MAX: usize = 255;

/// What is needed to save and to show.
pub(super) struct Points {
    pub(super) claims: Arc<Claims>,
    pub(super) store: Arc<dyn FullStore>,
}

/// A checkpoint as upstreams write and read it. Its data stays as it was written: a number that is
/// parsed and written anew may be another one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    #[serde(borrow)]
    recovery_point: Cow<'a, str>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

pub(super) fn router(points: Points) -> Router {
    for result in ["saved", "lost", "refused", "invalid", "store_error"] {
        counted(result).increment(0);
    }
    Router::new()
        .route(PATH, get(show).put(save))
        .route(&format!("{PATH}/{{claim}}"), get(show).put(save))
        .fallback(|| async { Refusal::NoSuchPath })
        .with_state(Arc::new(points))
}

async fn save(
    State(points): State<Arc<Points>>,
    path: Option<Path<String>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match points.save(path, &headers, body).await {
        Ok(()) => {
            counted("saved").increment(1);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(refusal) => {
            counted(refusal.label()).increment(1);
            refusal.into_response()
        }
    }
}

async fn show(
    State(points): State<Arc<Points>>,
    path: Option<Path<String>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let lease = points.lease(path, &headers)?;
    let record = points.store.get(&lease.id).await.map_err(Refusal::Store)?;
    let record = record.filter(|record| record.is_claimed_by(&lease)).ok_or(Refusal::Lost)?;
    let Checkpoint { recovery_point, data, .. } = record.checkpoint.ok_or(Refusal::NothingSaved)?;
    let data = serde_json::from_slice(&data).map_err(|_| Refusal::NotJson)?;
    let written = Written { recovery_point: recovery_point.into(), data };
    Ok(axum::Json(written).into_response())
}

impl Points {
    async fn save(
        &self,
        path: Option<Path<String>>,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(), Refusal> {
        // Read first: who is refused while it still sends may never hear why.
        let body = read(body).await;
        let lease = self.lease(path, headers)?;
        let checkpoint = parse(&body?)?;
        let Checkpoint { recovery_point, .. } = &checkpoint;
        let record = lease.id.short();
        match self.store.checkpoint(&lease, &checkpoint).await {
            Ok(Fenced::Applied) => {
                tracing::debug!(record, recovery_point, "a checkpoint was saved");
                Ok(())
            }
            Ok(Fenced::Lost) => {
                counter!("selfsame_fenced_writes_total").increment(1);
                tracing::warn!(record, recovery_point, "a stale checkpoint was fenced off");
                Err(Refusal::Lost)
            }
            Err(error) => {
                tracing::warn!(%error, record, "a checkpoint could not be saved");
                Err(Refusal::Store(error))
            }
        }
    }

    /// The lease whose claim is shown, in the path or in a header.
    fn lease(&self, path: Option<Path<String>>, headers: &HeaderMap) -> Result<Lease, Refusal> {
        let shown = match &path {
            Some(Path(claim)) => Some(claim.as_str()),
            None => headers.get(SELFSAME_CLAIM).and_then(|claim| claim.to_str().ok()),
        };
        let claim = shown.ok_or(Unaccepted::Forged);
        let lease = claim.and_then(|claim| self.claims.read(claim));
        lease.map_err(|why| {
            tracing::debug!(reason = why.as_str(), "a claim was not accepted");
            Refusal::Unaccepted(why)
        })
    }
}

/// Whether a header can name the recovery point.
pub(super) fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn parse(body: &[u8]) -> Result<Checkpoint, Refusal> {
    let Written { recovery_point, data } = serde_json::from_slice(body)
        .map_err(|error| Refusal::Invalid(format!("this is no checkpoint: {error}")))?;
    if !is_name(&recovery_point) {
        return Err(Refusal::Invalid(format!(
            "recovery_point must be 1 to {NAME_BYTES_MAX} visible ASCII characters, without spaces"
        )));
    }
    let data = data.unwrap_or(RawValue::NULL).get();
    Ok(Checkpoint::new(recovery_point, Bytes::copy_from_slice(data.as_bytes())))
}

async fn read(body: Body) -> Result<Vec<u8>, Refusal> {
    let whole = timeout(BODY_TIMEOUT, read_whole(body)).await;
    whole.unwrap_or(Err(Refusal::Incomplete))
}

async fn read_whole(mut body: Body) -> Result<Vec<u8>, Refusal> {
    let (mut kept, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::Incomplete)?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > REST_BYTES_MAX {
            break;
        }
        if length <= Checkpoint::DATA_BYTES_MAX {
            kept.extend_from_slice(&data);
        }
    }
    if length > Checkpoint::DATA_BYTES_MAX {
        return Err(Refusal::TooLarge);
    }
    Ok(kept)
}

fn counted(result: &'static str) -> metrics::Counter {
    counter!("selfsame_checkpoints_total", "result" => result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(body: &str) -> Result<(String, String), String> {
        match parse(body.as_bytes()) {
            Ok(Checkpoint { recovery_point, data, .. }) => {
                Ok((recovery_point, String::from_utf8(data.to_vec()).expect("JSON is UTF-8")))
            }
            Err(Refusal::Invalid(why)) => Err(why),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_data_stays_as_it_was_written() {
        for data in ["{\"a\": 1.10, \"b\":12345678901234567890123}", "[ ]", "\"x\"", "null"] {
            let body = format!("{{\"data\": {data}, \"recovery_point\": \"\\u0061_b\"}}");
            assert_eq!(parsed(&body), Ok(("a_b".into(), data.into())));
        }
        assert_eq!(parsed(r#"{"recovery_point":"a"}"#), Ok(("a".into(), "null".into())));
    }

    #[test]
    fn what_is_no_checkpoint_is_told_why() {
        let long = format!(r#"{{"recovery_point":"{}"}}"#, "a".repeat(256));
        let table = [
            ("", "EOF"),
            ("[]", "expected"),
            ("{", "EOF"),
            ("{}", "missing field `recovery_point`"),
            (r#"{"recovery_point":"a","dta":{}}"#, "unknown field `dta`"),
            (r#"{"recovery_point":"a","recovery_point":"b"}"#, "duplicate field"),
            (r#"{"recovery_point":1}"#, "expected a string"),
            (r#"{"recovery_point":"a","data":{]}"#, "key must be a string"),
            (r#"{"recovery_point":""}"#, "1 to 255"),
            (r#"{"recovery_point":"a b"}"#, "1 to 255"),
            (r#"{"recovery_point":"é"}"#, "1 to 255"),
            (&long, "1 to 255"),
        ];
        for (body, expected) in table {
            let why = parsed(body).expect_err(body);
            assert!(why.contains(expected), "{body}: {why}");
        }
    }
}
