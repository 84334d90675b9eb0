//! Who may read an answer of ours in a browser, which hides from a page what does not name the
//! page's [`Origin`].

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue};

const ANY: &str = "*";
/// What a page may read beside the body of a refusal.
const EXPOSED: &str = "Link, Preference-Applied, Retry-After, Stripe-Should-Retry, \
                       WWW-Authenticate, X-Should-Retry";

/// Where a browser's page comes from, such as `https://app.example.com`; or `*`, any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(HeaderValue);

/// The text is no origin as browsers write it, and would never be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an origin as browsers write it: a scheme, a host, and a port that is not the usual one"
)]
pub struct InvalidOrigin;

impl Origin {
    /// The origin as browsers write it: in lower case, with no path, not even `/`, and no port
    /// where it is the scheme's usual one.
    pub fn parse(text: &str) -> Result<Self, InvalidOrigin> {
        match text == ANY || is_as_browsers_write(text) {
            true => Ok(Self(HeaderValue::from_str(text).expect("nothing but ASCII was let in"))),
            false => Err(InvalidOrigin),
        }
    }
}

fn is_as_browsers_write(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let has_usual_port = match scheme {
        "http" => host.ends_with(":80"),
        "https" => host.ends_with(":443"),
        _ => false,
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-._".contains(c);
    let in_host = |c: char| plain(c) || ":[]".contains(c);
    let is_whole = !scheme.is_empty() && !host.is_empty();
    is_whole && !has_usual_port && scheme.chars().all(plain) && host.chars().all(in_host)
}

/// What `Access-Control-Allow-Origin` says to a page of `sender`, if it is one of `readers`.
fn allowed<'a>(readers: &'a [Origin], sender: Option<&HeaderValue>) -> Option<&'a HeaderValue> {
    let sender = sender?;
    let reader = readers.iter().find(|reader| reader.0 == ANY || reader.0 == sender);
    reader.map(|reader| &reader.0)
}

/// Lets a page of `sender` read a refusal, if it is one of `readers`.
pub(super) fn open(headers: &mut HeaderMap, readers: &[Origin], sender: Option<&HeaderValue>) {
    if readers.iter().any(|reader| reader.0 != ANY) {
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    let Some(allowed) = allowed(readers, sender) else { return };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed.clone());
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    // Browsers do not take it beside `*`.
    if allowed != ANY {
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
}

/// Makes the headers of a recorded answer fit a retry by `sender`: a page must not read what was
/// answered to a page of another origin, unless it is one of `readers`.
pub(super) fn fit(headers: &mut HeaderMap, readers: &[Origin], sender: Option<&HeaderValue>) {
    let Some(first) = headers.get(ACCESS_CONTROL_ALLOW_ORIGIN) else { return };
    if first == ANY || Some(first) == sender {
        return;
    }
    if let Some(allowed) = allowed(readers, sender) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed.clone());
        return;
    }
    let is_cors = |name: &&HeaderName| name.as_str().starts_with("access-control-");
    let cors: Vec<HeaderName> = headers.keys().filter(is_cors).cloned().collect();
    for name in cors {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins(texts: &[&str]) -> Vec<Origin> {
        texts.iter().map(|text| Origin::parse(text).expect("an origin")).collect()
    }

    fn opened(readers: &[&str], sender: Option<&'static str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        open(&mut headers, &origins(readers), sender.map(HeaderValue::from_static).as_ref());
        headers
    }

    #[test]
    fn an_origin_is_taken_as_browsers_write_it() {
        let written = [
            "https://app.example.com",
            "https://a_b.example:444",
            "http://localhost:8080",
            "http://[::1]:3000",
            "capacitor://localhost",
        ];
        for text in written.into_iter().chain([ANY]) {
            assert!(Origin::parse(text).is_ok(), "{text}");
        }
        let never_met = ["https://a/", "https://a:443", "http://[::1]:80", "https://A.example"];
        let no_origins = ["", "null", "a.example", "https://", "://a", "https://a b", "https://é"];
        let too_clever = ["https://*.a.example", "https://user@a.example", "**"];
        for text in [&never_met[..], &no_origins, &too_clever].concat() {
            assert_eq!(Origin::parse(text), Err(InvalidOrigin), "{text}");
        }
    }

    #[test]
    fn only_a_reader_is_let_in_and_caches_know() {
        let readers = ["https://a.example", "https://b.example"];
        let headers = opened(&readers, Some("https://b.example"));
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "https://b.example");
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_CREDENTIALS], "true");
        assert_eq!(headers[VARY], "Origin");
        for sender in [None, Some("https://c.example"), Some("null"), Some("*")] {
            let headers = opened(&readers, sender);
            assert_eq!((headers.len(), &headers[VARY]), (1, &HeaderValue::from_static("Origin")));
        }
    }

    #[test]
    fn anyone_may_read_but_not_with_credentials() {
        let headers = opened(&[ANY], Some("https://c.example"));
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert_eq!(headers.get(ACCESS_CONTROL_ALLOW_CREDENTIALS), None);
        assert_eq!(headers.get(VARY), None);
    }

    #[test]
    fn nothing_is_said_where_nobody_is_named_or_nobody_asks() {
        assert!(opened(&[], Some("https://a.example")).is_empty());
        assert!(opened(&[ANY], None).is_empty());
    }
}
