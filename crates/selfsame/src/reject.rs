//! Every refusal and what the client reads of it, in one match.

use http::{HeaderMap, Response, StatusCode};
use selfsame_core::{InvalidKey, Problem, ProblemDetails};

use crate::body::ResponseBody;
use crate::dialect::Dialect;
use crate::outcome::Served;
use crate::quota::Excess;
use crate::tenant::MissingTenant;

/// Why a request is not run, or its answer not given.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// With where it may stand, as in "the header X".
    MissingKey {
        place: String,
    },
    InvalidKey(InvalidKey),
    TwoKeys,
    MissingTenant(MissingTenant),
    BodyTooLarge {
        bytes_max: usize,
    },
    BodyIncomplete,
    StreamingCall,
    Reused,
    Busy,
    Held,
    TooMany(Excess),
    Expired,
    NotKept {
        status: StatusCode,
        location: Option<String>,
    },
    StoreDown,
    Damaged,
    AnswerLost {
        held: bool,
    },
    TimedOut,
}

/// The response to a refusal.
pub(crate) fn answer<B>(refusal: &Refusal, dialect: &Dialect) -> Response<ResponseBody<B>> {
    let (problem, served, detail) = explain(refusal);
    let mut details = ProblemDetails::new(problem, detail);
    if let Refusal::NotKept { status, location } = refusal {
        details = details.with("original_status", status.as_u16());
        if let Some(location) = location {
            details = details.with("location", location.as_str());
        }
    }
    let mut response =
        dialect.response(&details).map(|body| ResponseBody::whole(body, HeaderMap::new()));
    response.extensions_mut().insert(served);
    response
}

/// What became of a request that is refused so.
pub(crate) fn served(refusal: &Refusal) -> Served {
    explain(refusal).1
}

fn explain(refusal: &Refusal) -> (Problem, Served, String) {
    match refusal {
        Refusal::MissingKey { place } => (
            Problem::MissingKey,
            Served::MissingKey,
            format!("send {place} with a value that is new for each operation and the same for each retry of it"),
        ),
        Refusal::InvalidKey(invalid) => (Problem::InvalidKey, Served::InvalidKey, invalid.to_string()),
        Refusal::TwoKeys => (
            Problem::InvalidKey,
            Served::InvalidKey,
            "the request carries more than one key; send one".into(),
        ),
        Refusal::MissingTenant(missing) => {
            (Problem::MissingTenant, Served::MissingTenant, missing.detail.clone())
        }
        Refusal::BodyTooLarge { bytes_max } => (
            Problem::BodyTooLarge,
            Served::BadBody,
            format!("a request with a key, or with a body that may hold one, may have a body of {bytes_max} bytes; nothing was sent"),
        ),
        Refusal::BodyIncomplete => (
            Problem::BodyIncomplete,
            Served::BadBody,
            "the body ended early or could not be read; send the whole request again".into(),
        ),
        Refusal::StreamingCall => (
            Problem::StreamingCall,
            Served::BadBody,
            "a call with a key has one message, and this one has none, several, or part of one; send streams without a key".into(),
        ),
        Refusal::Reused => (
            Problem::KeyReused,
            Served::KeyReused,
            "this key was first used with another method, path, query or body; use a new key for a new operation".into(),
        ),
        Refusal::Busy => (
            Problem::InProgress,
            Served::InProgress,
            "the first request with this key is still running; its answer will be here for a retry".into(),
        ),
        Refusal::Held => (
            Problem::OutcomeUnknown,
            Served::Held,
            "an earlier request with this key was interrupted, and whether it was carried out must be looked up; it is not run again until the operator decides. Do not send it with a new key".into(),
        ),
        Refusal::TooMany(Excess::LiveKeys) => (
            Problem::TooManyKeys,
            Served::TooManyKeys,
            "as many new keys as may live at once are in use; nothing was sent. Keys of earlier requests still get their answers".into(),
        ),
        Refusal::TooMany(Excess::Claims) => (
            Problem::TooManyKeys,
            Served::TooManyKeys,
            "as many requests with keys as may run at once are running; nothing was sent, try again when one has ended".into(),
        ),
        Refusal::Expired => (
            Problem::KeyExpired,
            Served::Expired,
            "the request with this key was carried out long ago, and its answer is no longer kept".into(),
        ),
        Refusal::NotKept { .. } => (
            Problem::ResponseNotKept,
            Served::NotKept,
            "the request was carried out; its answer was too large, or a stream, and went to the first caller only".into(),
        ),
        Refusal::StoreDown => (
            Problem::StoreUnavailable,
            Served::StoreError,
            "the store that remembers keys cannot be used at the moment; nothing was sent, try again".into(),
        ),
        Refusal::Damaged => (
            Problem::RecordDamaged,
            Served::StoreError,
            "what is stored under this key fails its checksum; it is neither given nor run again until the operator has looked at it".into(),
        ),
        Refusal::AnswerLost { held } => {
            (Problem::UpstreamFailed { held: *held }, Served::Executed, lost_detail(*held).into())
        }
        Refusal::TimedOut => (
            Problem::UpstreamTimeout,
            Served::Executed,
            "the work goes on, and its answer will be here for a retry with the same key".into(),
        ),
    }
}

fn lost_detail(held: bool) -> &'static str {
    match held {
        true => {
            "the request was sent and its answer was lost, so it may have been carried out; the \
             key is held until the operator decides. Do not send it with a new key"
        }
        false => {
            "the request was sent and its answer was lost; send it again with the same key and \
             it goes on from where it stopped"
        }
    }
}
