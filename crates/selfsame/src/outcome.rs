//! [`Outcome`], how a run ended, and [`Served`], what became of a request.

use http::{HeaderMap, Response, StatusCode};
use selfsame_core::headers::IDEMPOTENCY_OUTCOME;

use crate::dialect::Protocol;
use crate::grpc;
use crate::statuses::Statuses;

/// How a run ended, which decides whether its answer is kept.
///
/// A handler that knows better than its status puts one into the response's extensions, or sends
/// the header `Idempotency-Outcome: final|transient|unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The answer is kept and given again.
    Final,
    /// The key is freed: a retry runs again.
    Transient,
    /// The caller was turned away. The key is freed, and a first attempt leaves no record at all.
    Denied,
    /// As the route's `server_errors` says.
    ServerError,
    /// Whether the work was done is not known; the first client gets the answer as it is.
    Unknown,
    /// The request was sent on and no whole answer came back: the response is only a stand-in.
    AnswerLost,
    /// The work provably never began.
    NeverRan,
}

impl Outcome {
    /// Default outcome of a status, where a route does not say otherwise.
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            401 | 403 => Self::Denied,
            408 | 425 | 429 | 503 => Self::Transient,
            502 | 504 => Self::Unknown,
            500.. => Self::ServerError,
            _ => Self::Final,
        }
    }

    /// The outcome by a handler's own word, which is taken out, or else by its status and the route's
    /// lists; nothing where that comes last, in the trailers.
    pub(crate) fn told_by<R>(
        response: &mut Response<R>,
        protocol: Protocol,
        statuses: &Statuses,
    ) -> Option<Self> {
        let said = Self::take_from(response.headers_mut());
        let said = response.extensions_mut().remove().or(said);
        said.or_else(|| match protocol {
            Protocol::Http => Some(statuses.outcome(response.status())),
            Protocol::Grpc => grpc::outcome(response.headers()).or_else(|| {
                // Whoever answers a call with another status than 200 is not its server.
                let is_foreign = response.status() != StatusCode::OK;
                is_foreign.then(|| statuses.outcome(response.status()))
            }),
        })
    }

    /// What a call's trailers say. Without a status its answer ended in the middle, however clean
    /// the end looks.
    pub(crate) fn told_by_trailers(trailers: &HeaderMap) -> Self {
        grpc::outcome(trailers).unwrap_or(Self::AnswerLost)
    }

    /// A handler's own word, taken out of the headers so that no client sees it. A word that is
    /// not one of ours says nothing.
    pub(crate) fn take_from(headers: &mut HeaderMap) -> Option<Self> {
        match headers.remove(IDEMPOTENCY_OUTCOME)?.as_bytes() {
            b"final" => Some(Self::Final),
            b"transient" => Some(Self::Transient),
            b"unknown" => Some(Self::Unknown),
            _ => None,
        }
    }
}

/// What became of a request. Every response carries one in its extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Served {
    /// It ran, for the first time.
    Executed,
    /// It ran after an earlier run that was not the last word.
    Resumed,
    /// It got the recorded answer.
    Replayed,
    /// It waited for another request's run, and got that one's answer.
    Waited,
    /// Another request with its key runs.
    InProgress,
    /// Its key stands for another request.
    KeyReused,
    /// It had no key and needed one.
    MissingKey,
    /// Its key could not be read.
    InvalidKey,
    /// Nothing said whose key it is.
    MissingTenant,
    /// Its body was too large, did not arrive, or was a stream of messages.
    BadBody,
    /// Its client, or all clients together, had too many bytes in memory.
    TooManyBytes,
    /// A person decides about its key.
    Held,
    /// Its tenant had too many keys or runs.
    TooManyKeys,
    /// Its key was used long ago.
    Expired,
    /// Its work is done and the answer was not kept.
    NotKept,
    /// It ran unprotected, because the store was down.
    Bypassed,
    /// It was refused, because the store was down.
    StoreError,
    /// Nothing could be sent on; its key is free.
    Unreachable,
    /// It passed: it had no key and needed none, or its route only observes.
    Passed,
}

impl Served {
    /// The last of them, by which they are counted.
    pub(crate) const LAST: Self = Self::Passed;

    /// What became of a request that runs, by which attempt it is.
    pub(crate) fn by_attempt(attempt: u32) -> Self {
        if attempt > 1 { Self::Resumed } else { Self::Executed }
    }

    /// The word in metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Resumed => "resumed",
            Self::Replayed => "replayed",
            Self::Waited => "waited",
            Self::InProgress => "in_progress",
            Self::KeyReused => "key_reused",
            Self::MissingKey => "missing_key",
            Self::InvalidKey => "invalid_key",
            Self::MissingTenant => "missing_tenant",
            Self::BadBody => "bad_body",
            Self::TooManyBytes => "too_many_bytes",
            Self::Held => "held",
            Self::TooManyKeys => "too_many_keys",
            Self::Expired => "expired",
            Self::NotKept => "not_kept",
            Self::Bypassed => "bypassed",
            Self::StoreError => "store_error",
            Self::Unreachable => "unreachable",
            Self::Passed => "passed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_sorted_as_the_contract_says() {
        let table = [
            (Outcome::Final, vec![200, 201, 202, 204, 301, 303, 400, 402, 404, 409, 410, 422]),
            (Outcome::Denied, vec![401, 403]),
            (Outcome::Transient, vec![408, 425, 429, 503]),
            (Outcome::Unknown, vec![502, 504]),
            (Outcome::ServerError, vec![500, 501, 505, 507, 599]),
        ];
        for (outcome, statuses) in table {
            for status in statuses {
                let found = Outcome::of(StatusCode::from_u16(status).expect("valid"));
                assert_eq!(found, outcome, "{status}");
            }
        }
    }
}
