//! The header names Selfsame speaks, and which headers count, go further or are given again.

use std::borrow::Cow;

use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

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
/// The last phase an earlier run has finished, told to the upstream.
pub const SELFSAME_RECOVERY_POINT: HeaderName = HeaderName::from_static("selfsame-recovery-point");
/// A key for what the upstream calls elsewhere, the same for each attempt.
pub const SELFSAME_DERIVED_KEY: HeaderName = HeaderName::from_static("selfsame-derived-key");
/// The claim of a run, as its upstream shows it to save a checkpoint.
pub const SELFSAME_CLAIM: HeaderName = HeaderName::from_static("selfsame-claim");
/// Where the upstream saves a checkpoint of this run.
pub const SELFSAME_CHECKPOINT_URL: HeaderName = HeaderName::from_static("selfsame-checkpoint-url");
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

/// Whether a header may differ between retries of one request, so that it is never part of what a
/// request is.
pub fn differs_between_retries(name: &HeaderName) -> bool {
    matches!(name.as_str(), "authorization" | "date" | "user-agent" | "traceparent")
}

/// All of a header's lines, joined by `", "`: two requests that differ only in the second are two
/// requests.
pub fn lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
    let mut lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let mut joined = Cow::Borrowed(lines.next()?);
    for line in lines {
        joined.to_mut().extend_from_slice(b", ");
        joined.to_mut().extend_from_slice(line);
    }
    Some(joined)
}

/// The host and port a request was sent to, as sent: from its target, where that names them (HTTP/2,
/// requests to a proxy), else from `Host`.
pub fn authority<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<Cow<'a, [u8]>> {
    match uri.authority() {
        Some(authority) => Some(Cow::Borrowed(authority.as_str().as_bytes())),
        None => lines(headers, &HOST),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_header_counts() {
        let mut headers = HeaderMap::new();
        assert_eq!(lines(&headers, &HOST), None);
        headers.append(HOST, HeaderValue::from_static("a"));
        assert_eq!(lines(&headers, &HOST).as_deref(), Some(&b"a"[..]));
        headers.append(HOST, HeaderValue::from_static("b"));
        assert_eq!(lines(&headers, &HOST).as_deref(), Some(&b"a, b"[..]));
    }

    #[test]
    fn the_target_names_the_authority_before_the_host_header_does() {
        let mut headers = HeaderMap::new();
        assert_eq!(authority(&Uri::from_static("/a"), &headers), None);
        headers.append(HOST, HeaderValue::from_static("B.example:81"));
        let of = |uri| authority(&Uri::from_static(uri), &headers).expect("one").into_owned();
        assert_eq!(of("/a"), b"B.example:81");
        assert_eq!(of("http://a.example/a"), b"a.example");
    }
}
