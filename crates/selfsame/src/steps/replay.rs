//! Step 7: the recorded answer, given again; and which of an answer's headers that can be.

use http::header::{CONTENT_LENGTH, LOCATION, SET_COOKIE};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use selfsame_core::headers::{IDEMPOTENT_REPLAYED, is_hop_by_hop, is_of_the_moment};
use selfsame_core::{Answer, AnswerBody, Replay};

use crate::body::ResponseBody;
use crate::buffer_limit::{BufferAllowance, share};
use crate::dialect::Dialect;
use crate::expires;
use crate::outcome::Served;
use crate::policy::{Policy, ReplayStatus};
use crate::reject::{self, Refusal};

/// The answer, to a retry whose client has this allowance.
pub(crate) fn replay<B>(
    replay: Replay,
    allowance: Option<&BufferAllowance>,
    policy: &Policy,
    dialect: &Dialect,
) -> Response<ResponseBody<B>> {
    let Replay { mut answer, expires_at } = replay;
    // It may have been recorded before the route said so.
    for name in &policy.replay_never {
        answer.headers.remove(name);
        answer.trailers.remove(name);
    }
    let AnswerBody::Kept(body) = answer.body else {
        let location = answer.headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.map(str::to_owned);
        return reject::answer(&Refusal::NotKept { status: answer.status, location }, dialect);
    };
    dialect.fit_cors(&mut answer.headers);
    let body = share(allowance, body);
    let mut response = Response::new(ResponseBody::whole(body, answer.trailers));
    *response.status_mut() = match (policy.replay_status, answer.status) {
        (ReplayStatus::Ok, StatusCode::CREATED | StatusCode::ACCEPTED) => StatusCode::OK,
        (_, recorded) => recorded,
    };
    *response.headers_mut() = answer.headers;
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    expires::say(expires_at, response.headers_mut(), policy);
    if answer.status.is_server_error() {
        // It would be the same answer every time.
        dialect.advise(response.headers_mut(), false);
    }
    response.extensions_mut().insert(Served::Replayed);
    response
}

/// What is kept of a fresh answer.
pub(crate) fn answer_to_keep(
    parts: &Parts,
    body: AnswerBody,
    mut trailers: HeaderMap,
    policy: &Policy,
) -> Answer {
    let mut headers = HeaderMap::with_capacity(parts.headers.len());
    for (name, value) in &parts.headers {
        if is_kept(name, policy) {
            headers.append(name, value.clone());
        }
    }
    for name in &policy.replay_never {
        trailers.remove(name);
    }
    Answer { status: parts.status, headers, body, trailers }
}

/// Adds to an answer what a fresh one has beside that which is kept.
pub(super) fn of_the_moment(fresh: &HeaderMap, headers: &mut HeaderMap, policy: &Policy) {
    for (name, value) in fresh {
        if !is_kept(name, policy) && name != CONTENT_LENGTH {
            headers.append(name, value.clone());
        }
    }
}

fn is_kept(name: &HeaderName, policy: &Policy) -> bool {
    // The length follows from the body; a stored one could only disagree with it.
    if name == CONTENT_LENGTH || is_hop_by_hop(name) || policy.replay_never.contains(name) {
        return false;
    }
    if name == SET_COOKIE {
        return policy.replay_set_cookie;
    }
    policy.replay_also.contains(name) || !is_of_the_moment(name)
}
