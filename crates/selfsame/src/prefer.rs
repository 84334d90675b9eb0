//! `Prefer: wait=N` (RFC 7240): how long a client would rather wait than be refused.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Says which preference was followed.
pub(crate) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The first `wait` among the preferences. What cannot be read is no preference.
pub(crate) fn wait(headers: &HeaderMap) -> Option<Duration> {
    headers
        .get_all(PREFER)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .find_map(|preference| {
            // Parameters, of which `wait` has none, stand behind a semicolon.
            let preference = preference.split(';').next()?;
            let (name, value) = preference.split_once('=')?;
            let seconds = name.trim().eq_ignore_ascii_case("wait").then_some(value)?;
            seconds.trim().trim_matches('"').parse().ok()
        })
        .map(Duration::from_secs)
}

/// What a client is told whose preference was followed for `time`.
pub(crate) fn applied(time: Duration) -> HeaderValue {
    HeaderValue::try_from(format!("wait={}", time.as_secs())).expect("a number is a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preference(lines: &[&'static str]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(PREFER, HeaderValue::from_static(line));
        }
        wait(&headers).map(|time| time.as_secs())
    }

    #[test]
    fn a_wait_is_found_wherever_it_stands() {
        assert_eq!(preference(&["wait=10"]), Some(10));
        assert_eq!(preference(&["respond-async, Wait = \"5\"; x=y"]), Some(5));
        assert_eq!(preference(&["return=minimal", "wait=3, wait=9"]), Some(3));
        assert_eq!(preference(&["wait=0"]), Some(0));
    }

    #[test]
    fn what_cannot_be_read_is_no_preference() {
        for lines in
            [&[][..], &["wait"], &["wait=soon"], &["wait=-1"], &["await=10"], &["wait=1.5"]]
        {
            assert_eq!(preference(lines), None, "{lines:?}");
        }
    }
}
