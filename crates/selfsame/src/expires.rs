//! `Idempotency-Expires`: until when an answer can be had, as an HTTP date.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};
use selfsame_core::Timestamp;
use selfsame_core::headers::IDEMPOTENCY_EXPIRES;

use crate::policy::Policy;

/// The last second an HTTP date can name: its years have four digits.
const LAST_SECOND: u64 = 253_402_300_799;

/// Says so in the headers of an answer, where the route does.
pub(crate) fn say(expires_at: Timestamp, headers: &mut HeaderMap, policy: &Policy) {
    if policy.expires_header {
        headers.insert(IDEMPOTENCY_EXPIRES, date(expires_at));
    }
}

/// Rounded down: nothing is promised for longer than it is kept.
fn date(moment: Timestamp) -> HeaderValue {
    thread_local! {
        // Most answers of a moment expire in the same second.
        static LAST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
    }
    let seconds = (moment.as_millis() / 1000).min(LAST_SECOND);
    LAST.with_borrow_mut(|last| match last {
        Some((at, date)) if *at == seconds => date.clone(),
        _ => last.insert((seconds, written(seconds))).1.clone(),
    })
}

fn written(seconds: u64) -> HeaderValue {
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
    HeaderValue::try_from(date).expect("a date is a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_the_second_it_falls_into() {
        let table = [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (1_767_225_599_999, "Wed, 31 Dec 2025 23:59:59 GMT"),
            (1_767_225_600_000, "Thu, 01 Jan 2026 00:00:00 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ];
        for (millis, expected) in table {
            assert_eq!(date(Timestamp::from_millis(millis)), expected);
        }
    }
}
