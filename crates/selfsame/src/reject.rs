//! Every refusal and what the client reads of it, in one match.

use std::time::Duration;

use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use selfsame_core::{Difference, InvalidKey, Problem, ProblemDetails, RecordId};
use serde_json::json;

use crate::body::ResponseBody;
use crate::buffer_limit::BufferExcess;
use crate::dialect::Dialect;
use crate::outcome::Served;
use crate::quota::Excess;
use crate::tenant::MissingTenant;

/// Limit of the seconds that a client is told to wait: an operator may reopen the store before.
const RETRY_AFTER_SECONDS_MAX: u64 = 60 * 60;

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
    /// No more bytes may be held in memory for the client, or for all.
    NoRoom(BufferExcess),
    StreamingCall,
    /// With what differs, where that is told.
    Reused(Option<Box<Difference>>),
    Busy,
    Held,
    TooMany(Excess),
    /// The client began too many new keys of late; with the words of the limit.
    TooManyNewKeys {
        detail: &'static str,
    },
    Expired,
    NotKept {
        status: StatusCode,
        location: Option<String>,
    },
    StoreDown,
    /// The store takes as many bytes as it may.
    StoreFull,
    /// The store has lost records, or may have, and is asked again after that time.
    RecordsLost {
        retry_after: Option<Duration>,
    },
    Damaged,
    AnswerLost {
        held: bool,
    },
    TimedOut,
}

/// The response to a refusal.
pub(crate) fn answer<B>(refusal: &Refusal, dialect: &Dialect) -> Response<ResponseBody<B>> {
    about(None, refusal, dialect)
}

/// The response to a refusal of a request whose record is known.
pub(crate) fn about<B>(
    record: Option<&RecordId>,
    refusal: &Refusal,
    dialect: &Dialect,
) -> Response<ResponseBody<B>> {
    let (problem, served, detail) = explain(refusal);
    let mut details = ProblemDetails::new(problem, detail).about(record.copied());
    match refusal {
        Refusal::NotKept { status, location } => {
            details = details.with("original_status", status.as_u16());
            if let Some(location) = location {
                details = details.with("location", location.as_str());
            }
        }
        Refusal::Reused(Some(difference)) => {
            details = details.with("mismatch", members_of(difference));
        }
        _ => {}
    }
    let mut response =
        dialect.response(&details).map(|body| ResponseBody::whole(body, HeaderMap::new()));
    if let Refusal::MissingTenant(missing) = refusal
        && response.status() == StatusCode::UNAUTHORIZED
    {
        response.headers_mut().insert(WWW_AUTHENTICATE, missing.challenge.clone());
    }
    if let Refusal::RecordsLost { retry_after: Some(time) } = refusal {
        let seconds = time.as_secs().clamp(1, RETRY_AFTER_SECONDS_MAX);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
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
        Refusal::NoRoom(BufferExcess::Client(detail)) => {
            (Problem::TooManyRequests, Served::TooManyBytes, (*detail).into())
        }
        Refusal::NoRoom(BufferExcess::Whole(detail)) => {
            (Problem::Overloaded, Served::TooManyBytes, (*detail).into())
        }
        Refusal::StreamingCall => (
            Problem::StreamingCall,
            Served::BadBody,
            "a call with a key has one message, and this one has none, several, or part of one; send streams without a key".into(),
        ),
        Refusal::Reused(difference) => {
            (Problem::KeyReused, Served::KeyReused, reused_detail(difference.as_deref()))
        }
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
            "as many new keys as may live at once (max_live_keys) are in use; nothing was sent. Keys of earlier requests still get their answers".into(),
        ),
        Refusal::TooMany(Excess::Claims) => (
            Problem::TooManyKeys,
            Served::TooManyKeys,
            "as many requests with keys as may run at once (max_claims) are running; nothing was sent, try again when one has ended".into(),
        ),
        Refusal::TooMany(Excess::HeldKeys) => (
            Problem::TooManyKeys,
            Served::TooManyKeys,
            "as many keys as may be held (max_held_keys) wait for the operator to decide whether their work was done; nothing was sent. Keys of earlier requests still get their answers".into(),
        ),
        Refusal::TooManyNewKeys { detail } => {
            (Problem::TooManyKeys, Served::TooManyKeys, (*detail).into())
        }
        Refusal::Expired => (
            Problem::KeyExpired,
            Served::Expired,
            "this key was used before, and its answer is no longer kept".into(),
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
        Refusal::StoreFull => (
            Problem::StoreUnavailable,
            Served::StoreError,
            "the store has reached its limit (max_store_bytes) and takes no new keys; nothing was sent. Keys of earlier requests still get their answers".into(),
        ),
        Refusal::RecordsLost { .. } => (
            Problem::StoreUnavailable,
            Served::StoreError,
            "the store may have lost records, so a key that it does not know may have been used; nothing was sent. Keys that it knows still get their answers".into(),
        ),
        Refusal::Damaged => (
            Problem::RecordDamaged,
            Served::StoreError,
            "what is stored under this key fails its checksum or cannot be opened; it is neither given nor run again until the operator has looked at it".into(),
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

/// How many members are named, and how many characters of each name.
const NAMED_MAX: usize = 8;
const NAME_CHARACTERS_MAX: usize = 64;

/// The names that are shown, and how many there are besides.
fn named(difference: &Difference) -> (Vec<String>, usize) {
    let cut = |name: &String| match name.char_indices().nth(NAME_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.clone(),
    };
    let named: Vec<_> = difference.members.iter().take(NAMED_MAX).map(cut).collect();
    let more = difference.members.len() - named.len();
    (named, more)
}

fn members_of(difference: &Difference) -> serde_json::Value {
    let (members, more) = named(difference);
    json!({
        "parts": difference.parts,
        "members": members,
        "more_members": more,
        "missing_members": difference.missing,
    })
}

fn reused_detail(difference: Option<&Difference>) -> String {
    let mut detail = "this key was first used with another method, path, query or body; use a new key for a new operation".to_owned();
    let Some(difference) = difference else { return detail };
    let (members, more) = named(difference);
    let mut told: Vec<String> =
        difference.parts.iter().map(|part| format!("the {part} differs")).collect();
    if !members.is_empty() {
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        told.push(format!("in the body {}{more} differ", members.join(", ")));
    }
    match difference.missing {
        0 => {}
        1 => told.push("1 member of the body is missing".into()),
        many => told.push(format!("{many} members of the body are missing")),
    }
    detail.push_str(". Compared with the first request, ");
    detail.push_str(&told.join("; "));
    detail
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
