//! The header names Selfsame speaks, and which headers stay out of a replay.

use http::HeaderName;

/// The key, as a client sends it.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an answer was given before.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// When the key of an answer expires, as an HTTP date.
pub const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// A handler's own word on whether its answer is kept: `final`, `transient` or `unknown`.
pub const IDEMPOTENCY_OUTCOME: HeaderName = HeaderName::from_static("idempotency-outcome");
/// Tells SDKs that retry every 409 whether this one is worth it.
pub const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The same to Stripe's SDKs, which look for no other.
pub const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");
/// Which run this is, told to the upstream.
pub const SELFSAME_ATTEMPT: HeaderName = HeaderName::from_static("selfsame-attempt");
/// `false` where a request ran unprotected because the store was down.
pub const SELFSAME_PROTECTED: HeaderName = HeaderName::from_static("selfsame-protected");
/// What headers of ours begin with; a client's own headers of such names are dropped.
pub const SELFSAME_PREFIX: &str = "selfsame-";

/// Whether a header belongs to one connection and never goes further. `Trailer` does go further:
/// it announces what comes after the body, and without it no trailer can be sent.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Whether a header is about one moment or one caller, so that giving it again would lie.
pub fn is_of_the_moment(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(
        name,
        "date"
            | "set-cookie"
            | "retry-after"
            | "www-authenticate"
            | "traceparent"
            | "tracestate"
            | "server-timing"
            | "x-request-id"
            | "x-trace-id"
            | "x-amzn-trace-id"
    ) || ["ratelimit", "x-ratelimit-", "x-rate-limit-", "x-b3-", SELFSAME_PREFIX]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}
