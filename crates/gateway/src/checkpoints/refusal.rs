//! [`Refusal`]: why a checkpoint is not saved or shown, and what the upstream is to do.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use selfsame_core::{Checkpoint, StoreError};
use serde::Serialize;

use super::claims::Unaccepted;

/// How many seconds an upstream is asked to wait before it tries again.
const RETRY_AFTER_SECONDS: &str = "1";

/// Why a checkpoint is not saved or shown.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The claim was never ours, or was given up long ago.
    Unaccepted(Unaccepted),
    /// Another attempt has taken over, or the run has ended.
    Lost,
    /// It is no checkpoint; what is wrong with it.
    Invalid(String),
    TooLarge,
    /// The body did not come, or not whole.
    Incomplete,
    NothingSaved,
    /// What was saved there is not from an upstream.
    NotJson,
    Store(StoreError),
    NoSuchPath,
}

impl Refusal {
    /// The word for it in metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Unaccepted(_) => "refused",
            Self::Lost => "lost",
            Self::Store(_) => "store_error",
            _ => "invalid",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Unaccepted(_) => StatusCode::FORBIDDEN,
            Self::Lost => StatusCode::CONFLICT,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Incomplete => StatusCode::REQUEST_TIMEOUT,
            Self::NothingSaved | Self::NoSuchPath => StatusCode::NOT_FOUND,
            Self::NotJson => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Store(error) if error.is_damaged() => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Unaccepted(Unaccepted::Forged) => {
                "this claim was not written by this installation; use the address in \
                 Selfsame-Checkpoint-Url, whole, or send Selfsame-Claim as it came"
                    .into()
            }
            Self::Unaccepted(Unaccepted::Expired) => {
                "this claim has expired: its run was given up; stop, and do nothing more".into()
            }
            Self::Lost => "this run is over, or another attempt has taken over; nothing was \
                           changed; stop, and do nothing more"
                .into(),
            Self::Invalid(why) => format!(
                "{why}; send {{\"recovery_point\": \"ride_created\", \"data\": {{…}}}} as JSON"
            ),
            Self::TooLarge => format!(
                "a checkpoint may have {} bytes; save what the next phase needs, and the rest \
                 in your own database",
                Checkpoint::DATA_BYTES_MAX
            ),
            Self::Incomplete => "the checkpoint did not arrive whole; send it again".into(),
            Self::NothingSaved => "nothing was saved under this key yet".into(),
            Self::NotJson => "what is saved under this key did not come through this \
                              listener, and cannot be shown as JSON"
                .into(),
            Self::Store(error) if error.is_damaged() => {
                "what is stored under this key is damaged; answer 503, and tell an operator".into()
            }
            Self::Store(_) => "the store cannot be reached; send the same again, and answer 503 \
                               if that does not help"
                .into(),
            Self::NoSuchPath => {
                "there is nothing here; PUT or GET the address in Selfsame-Checkpoint-Url".into()
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.status();
        let retryable =
            matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::SERVICE_UNAVAILABLE);
        let body = Body {
            kind: "about:blank",
            title: status.canonical_reason(),
            status: status.as_u16(),
            detail: self.detail(),
            retryable,
        };
        let mut body = serde_json::to_vec(&body).expect("plain values are JSON");
        // A terminal's prompt shall not stick to it.
        body.push(b'\n');
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, kind, body).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let seconds = HeaderValue::from_static(RETRY_AFTER_SECONDS);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// The members of a problem (RFC 9457) in the order people read them.
#[derive(Serialize)]
struct Body {
    #[serde(rename = "type")]
    kind: &'static str,
    title: Option<&'static str>,
    status: u16,
    detail: String,
    retryable: bool,
}
