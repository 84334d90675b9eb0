//! [`Question`]: what the service is shown of a request.

use http::header::{FORWARDED, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use selfsame::Secret;

use crate::config;
use crate::forwarded;
use crate::peer::Peer;

const PURPOSE: &str = "forward-auth/1";

const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const X_ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const X_ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");

/// What a trusted proxy says of a request's way.
const WAY: [HeaderName; 4] = [
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-host"),
    FORWARDED,
];

/// What the service is shown of a request.
pub(super) struct Question {
    headers: HeaderMap,
}

impl Question {
    pub(super) fn about(parts: &Parts, settings: &config::ForwardAuth, trusted: &[IpNet]) -> Self {
        let mut headers = HeaderMap::new();
        let mut show = |name: &HeaderName| {
            for value in parts.headers.get_all(name) {
                headers.append(name, value.clone());
            }
        };
        settings.headers.iter().for_each(&mut show);
        if let Some(peer) = parts.extensions.get::<Peer>() {
            WAY.iter().for_each(&mut show);
            show(&HOST);
            forwarded::tell(&mut headers, peer, peer.is_among(trusted));
            // Its own is another.
            headers.remove(HOST);
        }
        let method = HeaderValue::from_str(parts.method.as_str()).expect("a method is ASCII");
        let uri = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri = HeaderValue::from_str(uri).expect("a path was read from a request");
        headers.insert(X_FORWARDED_METHOD, method.clone());
        headers.insert(X_FORWARDED_URI, uri.clone());
        headers.insert(X_ORIGINAL_METHOD, method);
        headers.insert(X_ORIGINAL_URI, uri);
        Self { headers }
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The same for questions that are the same, and for no others.
    pub(super) fn id(&self, secret: &Secret) -> [u8; 32] {
        let fields = self.headers.iter();
        let fields = fields.flat_map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()]);
        secret.tag(PURPOSE, &fields.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;
    use http::uri::PathAndQuery;

    use super::*;
    use crate::config::{Protocol, Upstream};

    fn settings() -> config::ForwardAuth {
        let authority = "auth".parse().expect("a host");
        config::ForwardAuth {
            service: Upstream { protocol: Protocol::Http1, is_encrypted: false, authority },
            path: PathAndQuery::from_static("/"),
            timeout: Duration::from_secs(1),
            headers: ["authorization", "cookie", "x-session"].map(HeaderName::from_static).into(),
            tenant_header: HeaderName::from_static("x-tenant"),
            cache: Duration::from_secs(1),
        }
    }

    fn question(uri: &str, address: &str, headers: &[(&str, &str)]) -> Question {
        let request = Request::post(uri).header("host", "api.example");
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (mut parts, ()) = request.body(()).expect("a request").into_parts();
        let address = address.parse().expect("an address");
        parts.extensions.insert(Peer { address, is_encrypted: true, holder: None });
        let trusted = ["10.0.0.0/8".parse().expect("a network")];
        Question::about(&parts, &settings(), &trusted)
    }

    const SHOWN: [(&str, &str); 4] =
        [("authorization", "a"), ("x-session", "s"), ("x-tenant", "forged"), ("x-other", "o")];

    #[test]
    fn the_service_sees_credentials_and_the_way_of_a_request_and_nothing_else() {
        let Question { headers } = question("/v1?a=1", "192.0.2.7:5", &SHOWN);
        let mut told: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().expect("text")))
            .collect();
        told.sort_unstable();
        let expected = [
            ("authorization", "a"),
            ("forwarded", "for=192.0.2.7;host=\"api.example\";proto=https"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-host", "api.example"),
            ("x-forwarded-method", "POST"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-uri", "/v1?a=1"),
            ("x-original-method", "POST"),
            ("x-original-uri", "/v1?a=1"),
            ("x-session", "s"),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn questions_are_the_same_if_all_that_is_shown_is() {
        let secret = Secret::random();
        let id = |uri, address, headers| question(uri, address, headers).id(&secret);
        let usual = id("/v1", "192.0.2.7:5", &SHOWN);
        assert_eq!(usual, id("/v1", "192.0.2.7:6", &[SHOWN[0], SHOWN[1], ("x-other", "p")]));
        let others = [
            id("/v2", "192.0.2.7:5", &SHOWN),
            id("/v1", "192.0.2.8:5", &SHOWN),
            id("/v1", "192.0.2.7:5", &SHOWN[..1]),
            id("/v1", "192.0.2.7:5", &[("authorization", "as"), ("x-session", "")]),
            id("/v1", "192.0.2.7:5", &[SHOWN[0], SHOWN[0], SHOWN[1]]),
            question("/v1", "192.0.2.7:5", &SHOWN).id(&Secret::random()),
        ];
        assert!(!others.contains(&usual));
    }
}
