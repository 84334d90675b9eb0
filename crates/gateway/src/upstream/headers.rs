//! Which headers go on, and which belong to one connection alone.

use http::header::{EXPECT, HOST, TE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};
use selfsame_core::headers::{SELFSAME_PREFIX, is_hop_by_hop};

use crate::request_head::nominations;

/// Drops what a message of one connection must not take to another, and what only we may say.
pub(super) fn drop_what_stays(headers: &mut HeaderMap) {
    let stays = |name: &&HeaderName| {
        is_hop_by_hop(name)
            || name.as_str().starts_with(SELFSAME_PREFIX)
            // The body is sent at once: nobody is left to wait for `100 Continue`.
            || *name == EXPECT
    };
    let nominated = nominations(headers).filter_map(|name| HeaderName::from_bytes(name).ok());
    let names: Vec<_> = nominated.chain(headers.keys().filter(stays).cloned()).collect();
    for name in names {
        headers.remove(name);
    }
}

/// The one word of `TE` that HTTP/2 knows, where the client says it. gRPC servers look for it.
pub(super) fn te_trailers(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut codings = headers
        .get_all(TE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii);
    codings
        .any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
        .then(|| HeaderValue::from_static("trailers"))
}

/// The client's `Host`, as HTTP/2 has it: beside the headers, not among them.
pub(super) fn take_host(headers: &mut HeaderMap) -> Option<Authority> {
    Authority::try_from(headers.remove(HOST)?.as_bytes()).ok()
}
