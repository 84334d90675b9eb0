//! What every refusal must look like, whatever its reason.

use serde_json::Value;

use super::Answer;

/// The contract's refusals: slug, status, whether a retry can help (where that is fixed), and
/// whether `Retry-After` is due.
const REFUSALS: [(&str, u16, Option<bool>, bool); 17] = [
    ("missing-key", 400, Some(false), false),
    ("invalid-key", 400, Some(false), false),
    ("missing-tenant", 401, Some(false), false),
    ("key-reused", 422, Some(false), false),
    ("in-progress", 409, Some(true), true),
    ("outcome-unknown", 409, Some(false), false),
    ("response-not-kept", 409, Some(false), false),
    ("key-expired", 410, Some(false), false),
    ("body-too-large", 413, Some(false), false),
    ("too-many-keys", 429, Some(true), true),
    ("body-incomplete", 400, Some(true), false),
    ("upstream-unreachable", 502, Some(true), false),
    ("upstream-failed", 502, None, false),
    ("store-unavailable", 503, Some(true), true),
    ("auth-unavailable", 503, Some(true), true),
    ("overloaded", 503, Some(true), true),
    ("upstream-timeout", 504, Some(true), false),
];

impl Answer {
    /// Checks that this is the refusal `slug`, in every particular, and gives its members.
    #[track_caller]
    pub(crate) fn refused(&self, slug: &str) -> Value {
        let text = self.text();
        let refusal = REFUSALS.iter().find(|refusal| refusal.0 == slug);
        let (_, status, retryable, retry_after) = *refusal.expect("a slug of the contract");
        assert_eq!(self.problem().as_deref(), Some(slug), "{} {text}", self.status);
        assert_eq!(self.status, status, "{text}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{text}");

        let body: Value = serde_json::from_str(&text).expect("a problem is JSON");
        let member = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(body["status"], status, "{text}");
        assert!(!member("title").is_empty() && !member("detail").is_empty(), "{text}");
        assert!(member("instance").starts_with("urn:uuid:"), "{text}");
        let link = format!("<{}>; rel=\"describedby\"", member("type"));
        assert_eq!(self.header("link"), Some(link.as_str()), "{text}");

        let says = body["retryable"].as_bool().expect("retryable is there");
        assert_eq!(says, retryable.unwrap_or(says), "{text}");
        assert_eq!(self.header("x-should-retry"), Some(if says { "true" } else { "false" }));
        let seconds = self.header("retry-after").map(str::parse::<u32>);
        assert_eq!(matches!(seconds, Some(Ok(1..))), retry_after, "{seconds:?}");
        assert_eq!(self.header("idempotent-replayed"), None);
        let challenge = self.header("www-authenticate").is_some_and(|text| !text.is_empty());
        assert_eq!(challenge, status == 401, "a 401 says which credential is taken");
        body
    }

    /// Checks that of rivals for one key one ran, and that the others were given its answer or told to
    /// come back. The answer of the one.
    #[track_caller]
    pub(crate) fn of_the_one_that_ran(rivals: Vec<Self>) -> Self {
        let (mut ran, others): (Vec<_>, Vec<_>) = rivals.into_iter().partition(|answer| {
            answer.status == 201 && answer.header("idempotent-replayed").is_none()
        });
        assert_eq!(ran.len(), 1, "{ran:?}");
        let ran = ran.remove(0);
        for other in others {
            match other.status {
                201 => other.replays(&ran),
                _ => drop(other.refused("in-progress")),
            }
        }
        ran
    }

    /// Checks that this answer is `first`, given again.
    #[track_caller]
    pub(crate) fn replays(&self, first: &Self) {
        assert_eq!(
            self.header("idempotent-replayed"),
            Some("true"),
            "{} {}",
            self.status,
            self.text()
        );
        assert_eq!(self.status, first.status);
        assert_eq!(self.body, first.body);
        assert_eq!(self.trailers, first.trailers);
    }
}
