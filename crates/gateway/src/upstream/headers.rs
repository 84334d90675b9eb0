//! Which headers go on, and which belong to one connection alone.

use http::header::{CONNECTION, EXPECT, HOST, TE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};
use selfsame_core::headers::{SELFSAME_PREFIX, is_hop_by_hop};

/// Drops what a message of one connection must not take to another, and what only we may say.
pub(super) fn drop_what_stays(headers: &mut HeaderMap) {
    let connection: Vec<HeaderValue> = headers.get_all(CONNECTION).iter().cloned().collect();
    let named = |name: &HeaderName| {
        let mut names = connection.iter().flat_map(|value| value.as_bytes().split(|&b| b == b','));
        names.any(|named| named.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
    };
    let stays = |name: &&HeaderName| {
        is_hop_by_hop(name)
            || name.as_str().starts_with(SELFSAME_PREFIX)
            // The body is sent at once: nobody is left to wait for `100 Continue`.
            || *name == EXPECT
            || named(name)
    };
    while let Some(name) = headers.keys().find(stays).cloned() {
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
