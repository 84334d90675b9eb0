//! HTTP/2 on the public listener: its limits, and what only its requests have.

use std::time::Duration;

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// How many requests one connection may have under way: a client's whole pool of HTTP/1.1
/// connections, and not all that the process can bear.
const STREAMS_MAX: u32 = 250;
/// How large a request's head may be once it is unpacked: a few kilobytes on the wire can stand for
/// any size. Cookies and tokens fit; a larger one is answered 431.
const HEAD_BYTES_MAX: u32 = 32 * 1024;
/// How often a connection is asked whether anybody is there. It may be idle for as long as it
/// answers.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long it may take to say so.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How many requests a client may take back before we have looked at them. Such requests do not
/// count as under way, so that without this limit opening and resetting would be work without end.
const TAKEN_BACK_MAX: usize = 20;
/// How many of a client's requests we may have to reset for their mistakes before its connection
/// is closed: mistakes are as cheap as resets, and do not count as under way either.
const MISTAKES_MAX: usize = 256;

/// How connections are served.
pub(crate) fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_pending_accept_reset_streams(TAKEN_BACK_MAX)
        .max_local_error_reset_streams(MISTAKES_MAX);
    builder
}

/// RFC 9113, 8.2.3: a client may send each cookie on a line of its own, to compress it better.
/// Everything else knows them as one.
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1 {
        let joined = HeaderValue::from_bytes(&lines.join(&b"; "[..]));
        headers.insert(COOKIE, joined.expect("joined by characters that a value may hold"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_become_one_line() {
        let mut headers = HeaderMap::new();
        join_cookies(&mut headers);
        assert!(headers.is_empty());
        for line in ["a=1", "b=2; c=3"] {
            headers.append(COOKIE, HeaderValue::from_static(line));
            join_cookies(&mut headers);
        }
        let lines: Vec<_> = headers.get_all(COOKIE).iter().collect();
        assert_eq!(lines, ["a=1; b=2; c=3"]);
    }
}
