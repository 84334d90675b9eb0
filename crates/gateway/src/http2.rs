//! HTTP/2 on the public listener: its limits, and what only its requests have.

mod frame_watch;
mod stream_executor;
mod streams;

use std::time::Duration;

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper_util::rt::TokioTimer;

use crate::config::Limits;

pub(crate) use stream_executor::StreamExecutor;
pub(crate) use streams::{Noted, Streams};

/// How much of one request's body may be here before somebody reads it.
const STREAM_WINDOW: u32 = 256 * 1024;
/// How much of all bodies of one connection.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// How often a connection is asked whether anybody is there.
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
pub(crate) fn builder(limits: &Limits, executor: StreamExecutor) -> http2::Builder<StreamExecutor> {
    // Counted once it is unpacked: a few kilobytes on the wire can stand for any size.
    let header_bytes_max = u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX);
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(header_bytes_max)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
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
