//! [`Entry`]: what a problem means, and what its reader does about it.

use http::header::RETRY_AFTER;
use selfsame::{
    Dialect, KeyMode, OnStoreError, Problem, ProblemDetails, Profile, Recover, ServerErrors,
};

use super::document::{Line, plain};
use crate::config::{RouteSettings, TenantSource};

/// A problem as clients read of it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(super) slug: &'static str,
    problem: Problem,
    pub(super) title: &'static str,
    /// Whether the same request may be sent again. None where each answer says for itself.
    pub(super) retryable: Option<bool>,
    /// Whether it comes with `Retry-After`.
    pub(super) retry_after: bool,
    /// Whether this configuration can lead to it.
    pub(super) used: bool,
    pub(super) meaning: Line,
    pub(super) action: Line,
}

/// Every problem once. The settings are those of the defaults and of all routes.
pub(super) fn entries(settings: &[RouteSettings]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for problem in Problem::ALL {
        let entry = Entry::of(problem, settings);
        match entries.last_mut().filter(|last| last.slug == entry.slug) {
            Some(last) => {
                last.used |= entry.used;
                last.retryable = last.retryable.filter(|same| entry.retryable == Some(*same));
            }
            None => entries.push(entry),
        }
    }
    entries
}

impl Entry {
    /// The status it is answered with, where refusals have these manners.
    pub(super) fn status(&self, profile: Profile) -> u16 {
        Dialect::new(profile, "").status(self.problem).as_u16()
    }

    fn of(problem: Problem, settings: &[RouteSettings]) -> Self {
        // What is promised here is what is sent there.
        let response = Dialect::new(Profile::Ietf, "").render(&ProblemDetails::new(problem, ""));
        let (meaning, action) = explain(problem);
        Self {
            slug: problem.slug(),
            problem,
            title: problem.title(),
            retryable: Some(problem.is_retryable()),
            retry_after: response.headers().contains_key(RETRY_AFTER),
            used: settings.iter().any(|settings| can_come(problem, settings)),
            meaning: plain(meaning),
            action: plain(action),
        }
    }
}

/// Whether a request under these settings can meet the problem.
fn can_come(problem: Problem, settings: &RouteSettings) -> bool {
    let keyed = settings.key != KeyMode::Off;
    let resumes = settings.recover == Recover::Resume;
    match problem {
        Problem::MissingKey => settings.key == KeyMode::Required,
        Problem::MissingTenant => {
            keyed && !asks_others(settings) && settings.tenant != TenantSource::None
        }
        Problem::AuthUnavailable => keyed && asks_others(settings),
        Problem::OutcomeUnknown => {
            keyed && (!resumes || settings.server_errors == ServerErrors::Hold)
        }
        // Also where nothing is remembered for longer: a person may have it erased.
        Problem::KeyExpired => keyed,
        Problem::StoreUnavailable => keyed && settings.on_store_error == OnStoreError::Reject,
        // Requests without a key are sent on, too.
        Problem::Overloaded
        | Problem::TooManyRequests
        | Problem::UpstreamUnreachable
        | Problem::UpstreamFailed { held: true } => true,
        Problem::UpstreamFailed { held: false } => {
            keyed && (settings.recover != Recover::Hold || settings.probe.is_some())
        }
        Problem::InvalidKey
        | Problem::KeyReused
        | Problem::InProgress
        | Problem::ResponseNotKept
        // Also without limits of a tenant: a client address has one.
        | Problem::TooManyKeys
        | Problem::BodyTooLarge
        | Problem::BodyIncomplete
        | Problem::StreamingCall
        | Problem::RecordDamaged
        | Problem::UpstreamTimeout => keyed,
    }
}

/// Whether another service tells callers apart, and refuses them itself.
fn asks_others(settings: &RouteSettings) -> bool {
    settings.needs_permission || matches!(settings.tenant, TenantSource::ForwardAuth { .. })
}

/// What there is to know beyond the title, and what to do.
fn explain(problem: Problem) -> (&'static str, &'static str) {
    match problem {
        Problem::MissingKey => {
            ("It carries none, so nothing was done.", "Make a key, and send the request with it.")
        }
        Problem::InvalidKey => (
            "It is empty, too long, not in the format above, too old, or came more than once. Nothing \
             was done.",
            "Fix the client: this key will be refused again.",
        ),
        Problem::MissingTenant => (
            "Its answer could reach somebody else, so nothing was done.",
            "Send your credential along, with the same key.",
        ),
        Problem::KeyReused => (
            "The method, path, query, content type or body was different the first time. That \
             request and its answer stand as they are; this one was not carried out.",
            "For a retry, send exactly what was sent first. For a new operation, make a new key.",
        ),
        Problem::InProgress => (
            "Its answer will be kept for you.",
            "Wait for as long as `Retry-After` says, then send the same request with the same \
             key. Or send it with `Prefer: wait=N`, and wait for the answer.",
        ),
        Problem::OutcomeUnknown => (
            "An earlier attempt was cut short when it may already have been done. It is not made \
             again until the people behind this service have looked.",
            "Keep the key, and do not make a new one: the work may be done. Look for its result, \
             or ask. Once it is decided, the same request with the same key gets its answer.",
        ),
        Problem::ResponseNotKept => (
            "It was too large, or a stream, and went to the first caller only. The members \
             `original_status` and `location` of the refusal say what it was.",
            "Count the work as done, and read its result where `location` says.",
        ),
        Problem::KeyExpired => (
            "Its answer is no longer kept, and nothing was done again.",
            "Look up what the first request did. For a new operation, make a new key.",
        ),
        Problem::TooManyKeys => (
            "You have as many keys in use, or as many requests running, as you may, or began new \
             keys too fast. What was sent before is not affected, and its retries are answered.",
            "Wait for as long as `Retry-After` says, then send the same request with the same key.",
        ),
        Problem::BodyTooLarge => (
            "A request with a key has a limit of its own, which is told above. Nothing was done.",
            "Send less at a time.",
        ),
        Problem::BodyIncomplete => (
            "It ended early or could not be read.",
            "Send the whole request again, with the same key.",
        ),
        Problem::StreamingCall => (
            "A gRPC call with a key has one message, and this one had none or several. Nothing was \
             done.",
            "Send streams without a key.",
        ),
        Problem::UpstreamUnreachable => {
            ("The key is free.", "Pause, and send the same request with the same key.")
        }
        Problem::UpstreamFailed { .. } => (
            "It may have been carried out.",
            "If `X-Should-Retry` is `true`, send the same request with the same key. If not, a \
             person has to look first, as with [outcome-unknown]. Never make a new key.",
        ),
        Problem::StoreUnavailable => (
            "Keys cannot be looked up at the moment.",
            "Wait for as long as `Retry-After` says, then send the same request with the same key.",
        ),
        Problem::AuthUnavailable => (
            "The service that knows callers by their credentials does not answer.",
            "Wait for as long as `Retry-After` says, then send the same request with the same key.",
        ),
        Problem::Overloaded => (
            "Nothing was done for this one, and its key is as it was.",
            "Wait for as long as `Retry-After` says, then send the same request with the same key.",
        ),
        Problem::TooManyRequests => (
            "Your address has as many requests under way as it may, those that you no longer wait for \
             included, or their bodies and responses take as much memory as they may. Nothing was done for \
             this one, and its key is as it was.",
            "Read the responses that you are sent. Wait for as long as `Retry-After` says, then send the same \
             request with the same key. Send fewer at a time.",
        ),
        Problem::RecordDamaged => (
            "It is neither given out nor done again until the people behind this service have \
             looked.",
            "Report it to them. Never make a new key.",
        ),
        Problem::UpstreamTimeout => (
            "The work goes on, and its answer will be kept for you.",
            "Send the same request with the same key, until the answer is there.",
        ),
    }
}
