//! [`Problem`]: every refusal, as `application/problem+json` (RFC 9457).

use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::RecordId;

/// A refusal by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Problem {
    /// The route requires a key.
    MissingKey,
    /// The key cannot be read.
    InvalidKey,
    /// Nothing says whose key it is.
    MissingTenant,
    /// The key stands for another request.
    KeyReused,
    /// Somebody runs.
    InProgress,
    /// Whether the work was done is unknown.
    OutcomeUnknown,
    /// The work is done, its answer was too large to keep.
    ResponseNotKept,
    /// The key was used long ago.
    KeyExpired,
    /// Its tenant has as many keys, or runs, as it may.
    TooManyKeys,
    /// The request's body is too large to be protected.
    BodyTooLarge,
    /// The request's body ended before it was whole.
    BodyIncomplete,
    /// A gRPC call that streams cannot be protected.
    StreamingCall,
    /// Nothing was sent to the upstream.
    UpstreamUnreachable,
    /// Sent, but the answer was lost.
    UpstreamFailed {
        /// Whether the key waits for a person now.
        held: bool,
    },
    /// The store cannot be asked.
    StoreUnavailable,
    /// Who tells callers apart cannot be asked.
    AuthUnavailable,
    /// Too much is under way already.
    Overloaded,
    /// Too many requests of this client's address are under way.
    TooManyRequests,
    /// What is stored under this key cannot be trusted.
    RecordDamaged,
    /// The work goes on; its answer is there for a retry.
    UpstreamTimeout,
}

impl Problem {
    /// Where the rules are told, relative to the service's address.
    pub const CONTRACT_PAGE: &str = "/.well-known/idempotency";

    /// What `type` says: the problem's place on the contract page.
    pub fn type_uri(self, contract_page: &str) -> String {
        format!("{contract_page}#{}", self.slug())
    }

    /// Every problem there is, with all it may carry.
    pub const ALL: [Self; 21] = [
        Self::MissingKey,
        Self::InvalidKey,
        Self::MissingTenant,
        Self::KeyReused,
        Self::InProgress,
        Self::OutcomeUnknown,
        Self::ResponseNotKept,
        Self::KeyExpired,
        Self::TooManyKeys,
        Self::BodyTooLarge,
        Self::BodyIncomplete,
        Self::StreamingCall,
        Self::UpstreamUnreachable,
        Self::UpstreamFailed { held: false },
        Self::UpstreamFailed { held: true },
        Self::StoreUnavailable,
        Self::AuthUnavailable,
        Self::Overloaded,
        Self::TooManyRequests,
        Self::RecordDamaged,
        Self::UpstreamTimeout,
    ];

    /// The name in `type`, logs and docs.
    pub fn slug(self) -> &'static str {
        match self {
            Self::MissingKey => "missing-key",
            Self::InvalidKey => "invalid-key",
            Self::MissingTenant => "missing-tenant",
            Self::KeyReused => "key-reused",
            Self::InProgress => "in-progress",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::ResponseNotKept => "response-not-kept",
            Self::KeyExpired => "key-expired",
            Self::TooManyKeys => "too-many-keys",
            Self::BodyTooLarge => "body-too-large",
            Self::BodyIncomplete => "body-incomplete",
            Self::StreamingCall => "streaming-call",
            Self::UpstreamUnreachable => "upstream-unreachable",
            Self::UpstreamFailed { .. } => "upstream-failed",
            Self::StoreUnavailable => "store-unavailable",
            Self::AuthUnavailable => "auth-unavailable",
            Self::Overloaded => "overloaded",
            Self::TooManyRequests => "too-many-requests",
            Self::RecordDamaged => "record-damaged",
            Self::UpstreamTimeout => "upstream-timeout",
        }
    }

    /// The status it is answered with.
    pub fn status(self) -> StatusCode {
        match self {
            Self::MissingKey | Self::InvalidKey | Self::BodyIncomplete => StatusCode::BAD_REQUEST,
            Self::MissingTenant => StatusCode::UNAUTHORIZED,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::InProgress | Self::OutcomeUnknown | Self::ResponseNotKept => StatusCode::CONFLICT,
            Self::KeyExpired => StatusCode::GONE,
            Self::TooManyKeys | Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UpstreamUnreachable | Self::UpstreamFailed { .. } => StatusCode::BAD_GATEWAY,
            Self::StoreUnavailable | Self::AuthUnavailable | Self::Overloaded => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::RecordDamaged => StatusCode::INTERNAL_SERVER_ERROR,
            Self::StreamingCall => StatusCode::NOT_IMPLEMENTED,
            Self::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// One line for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::MissingKey => "This request needs an idempotency key",
            Self::InvalidKey => "The idempotency key cannot be read",
            Self::MissingTenant => "Nothing says whose idempotency key this is",
            Self::KeyReused => "This key was used for another request",
            Self::InProgress => "A request with this key is in progress",
            Self::OutcomeUnknown => "Whether this request was carried out is unknown",
            Self::ResponseNotKept => "This request was carried out; its answer was not kept",
            Self::KeyExpired => "This key was used and has expired",
            Self::TooManyKeys => "Too many keys are in use; nothing was sent",
            Self::BodyTooLarge => "The request body is too large",
            Self::BodyIncomplete => "The request body did not arrive whole; nothing was sent",
            Self::StreamingCall => "A streaming call cannot have a key; nothing was sent",
            Self::UpstreamUnreachable => "The service could not be reached; nothing was sent",
            Self::UpstreamFailed { .. } => "The request was sent, and its answer was lost",
            Self::StoreUnavailable => "Requests cannot be protected now; nothing was sent",
            Self::AuthUnavailable => "Whose request this is cannot be told now; nothing was sent",
            Self::Overloaded => "Too many requests are under way; nothing was sent",
            Self::TooManyRequests => "Too many requests from this address; nothing was sent",
            Self::RecordDamaged => "What is stored under this key is damaged; nothing was sent",
            Self::UpstreamTimeout => "The service takes longer than this answer can wait",
        }
    }

    /// Whether sending the same request again can help.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::BodyIncomplete
            | Self::InProgress
            | Self::TooManyKeys
            | Self::UpstreamUnreachable
            | Self::StoreUnavailable
            | Self::AuthUnavailable
            | Self::Overloaded
            | Self::TooManyRequests
            | Self::UpstreamTimeout => true,
            Self::UpstreamFailed { held } => !held,
            _ => false,
        }
    }
}

/// A refusal with what is particular to this request.
#[derive(Debug, Clone)]
pub struct ProblemDetails {
    /// Which refusal.
    pub problem: Problem,
    /// What was wrong and what to do, without anything of the request or an answer in it.
    pub detail: String,
    /// Members of its own.
    pub members: Map<String, Value>,
    /// The URN of this very answer, by which it is found in the log.
    pub instance: String,
    /// The record that it is about, for the log alone.
    pub record: Option<RecordId>,
}

impl ProblemDetails {
    /// A refusal with this detail.
    pub fn new(problem: Problem, detail: impl Into<String>) -> Self {
        let instance = uuid::Uuid::new_v4().urn().to_string();
        Self { problem, detail: detail.into(), members: Map::new(), instance, record: None }
    }

    /// Adds the record that the refusal is about.
    #[must_use]
    pub fn about(self, record: Option<RecordId>) -> Self {
        Self { record, ..self }
    }

    /// The same refusal with a member more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.into(), value.into());
        self
    }

    /// The JSON body.
    pub fn to_json(&self, contract_page: &str) -> Vec<u8> {
        let body = Body {
            kind: self.problem.type_uri(contract_page),
            title: self.problem.title(),
            status: self.problem.status().as_u16(),
            detail: &self.detail,
            instance: &self.instance,
            retryable: self.problem.is_retryable(),
            members: &self.members,
        };
        let mut json = serde_json::to_vec(&body).expect("plain values are JSON");
        // A terminal's prompt shall not stick to it.
        json.push(b'\n');
        json
    }
}

/// The members in the order people read them.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    instance: &'a str,
    retryable: bool,
    #[serde(flatten)]
    members: &'a Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its place in [`Problem::ALL`]. A new problem does not compile until it has one.
    fn place(problem: Problem) -> usize {
        match problem {
            Problem::MissingKey => 0,
            Problem::InvalidKey => 1,
            Problem::MissingTenant => 2,
            Problem::KeyReused => 3,
            Problem::InProgress => 4,
            Problem::OutcomeUnknown => 5,
            Problem::ResponseNotKept => 6,
            Problem::KeyExpired => 7,
            Problem::TooManyKeys => 8,
            Problem::BodyTooLarge => 9,
            Problem::BodyIncomplete => 10,
            Problem::StreamingCall => 11,
            Problem::UpstreamUnreachable => 12,
            Problem::UpstreamFailed { held: false } => 13,
            Problem::UpstreamFailed { held: true } => 14,
            Problem::StoreUnavailable => 15,
            Problem::AuthUnavailable => 16,
            Problem::Overloaded => 17,
            Problem::TooManyRequests => 18,
            Problem::RecordDamaged => 19,
            Problem::UpstreamTimeout => 20,
        }
    }

    #[test]
    fn all_problems_are_listed_once() {
        let places: Vec<usize> = Problem::ALL.into_iter().map(place).collect();
        assert_eq!(places, (0..Problem::ALL.len()).collect::<Vec<_>>());
    }
}
