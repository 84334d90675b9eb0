//! [`HeadRules`]: checks of a request's head, before anything else is done with it.
//!
//! Two readers of one request must not disagree about its host, its caller or its key: what they could
//! read in two ways is refused, and headers that only we may set are removed.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::Arc;

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, COOKIE, FORWARDED, HOST, MAX_FORWARDS, SET_COOKIE, TRAILER, VIA,
    WWW_AUTHENTICATE,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version};
use ipnet::IpNet;
use selfsame_core::headers::{IDEMPOTENCY_KEY, SELFSAME_PREFIX, is_hop_by_hop};

use crate::config::{Config, TenantSource};
use crate::peer::Peer;

/// Most names that `Connection` may list.
const NOMINATIONS_MAX: usize = 10;

/// Headers that `Connection` may not name, whatever the configuration.
const GUARDED: [HeaderName; 9] = [
    HOST,
    AUTHORIZATION,
    COOKIE,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    FORWARDED,
    VIA,
    IDEMPOTENCY_KEY,
];
/// Headers that trailers may not hold.
const OF_HEADS: [HeaderName; 12] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    COOKIE,
    HOST,
    MAX_FORWARDS,
    SET_COOKIE,
    TRAILER,
    WWW_AUTHENTICATE,
];
const GUARDED_PREFIXES: [&str; 2] = ["x-forwarded-", SELFSAME_PREFIX];

/// Checks the heads of requests by one configuration.
#[derive(Default)]
pub(crate) struct HeadRules {
    /// Headers that tell a key or a caller, and those of [`GUARDED`].
    guarded: HashSet<HeaderName>,
    /// Headers by which callers are named: set by us, or by trusted proxies.
    tenant_headers: Vec<TenantHeader>,
    trusted: Arc<[IpNet]>,
    allows_underscores: bool,
}

struct TenantHeader {
    name: HeaderName,
    is_set_by_proxies: bool,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// Label of the metric.
    pub(crate) reason: &'static str,
    /// What was wrong, for the client.
    pub(crate) detail: &'static str,
}

impl Refusal {
    const fn bad(reason: &'static str, detail: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, reason, detail }
    }
}

const TUNNEL: Refusal = Refusal {
    status: StatusCode::NOT_IMPLEMENTED,
    reason: "method",
    detail: "CONNECT and TRACE are not forwarded",
};
const NO_HOST: Refusal = Refusal::bad("host", "the request names no host; send one Host header");
const HOSTS: Refusal =
    Refusal::bad("host", "the request names more than one host; send one Host header");
const INVALID_HOST: Refusal =
    Refusal::bad("host", "the host is not valid; send a name or an address, and a port if need be");
const LENGTH: Refusal =
    Refusal::bad("length", "the Content-Length is not one whole number; send one");
const NOMINATIONS: Refusal =
    Refusal::bad("connection", "the Connection header lists more than ten names");
const NOMINATED: Refusal = Refusal::bad(
    "connection",
    "the Connection header lists a header that belongs to the whole request; remove it from there",
);

impl HeadRules {
    pub(crate) fn new(config: &Config) -> Self {
        let mut guarded = HashSet::from(GUARDED);
        let mut tenant_headers: Vec<TenantHeader> = Vec::new();
        let settings = config.routes.iter().map(|route| &route.settings);
        for settings in settings.chain([&config.defaults]) {
            guarded.extend(settings.key_headers.iter().cloned());
            let (name, is_set_by_proxies) = match &settings.tenant {
                TenantSource::Header(name) => (name, true),
                TenantSource::ForwardAuth { header } => (header, false),
                TenantSource::Credential(name) => {
                    guarded.insert(name.clone());
                    continue;
                }
                _ => continue,
            };
            guarded.insert(name.clone());
            match tenant_headers.iter_mut().find(|known| known.name == *name) {
                Some(known) => known.is_set_by_proxies |= is_set_by_proxies,
                None => tenant_headers.push(TenantHeader { name: name.clone(), is_set_by_proxies }),
            }
        }
        Self {
            guarded,
            tenant_headers,
            trusted: config.trusted_proxies.clone().into(),
            allows_underscores: config.underscores_in_headers,
        }
    }

    /// Checks a request from `peer`, and removes the headers that the peer may not set.
    pub(crate) fn apply<B>(&self, request: &mut Request<B>, peer: &Peer) -> Result<(), Refusal> {
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(TUNNEL);
        }
        check_host(request)?;
        self.check_nominations(request.headers())?;
        normalize_length(request.headers_mut())?;
        self.remove_headers_of_others(request.headers_mut(), peer);
        Ok(())
    }

    /// Tells whether the headers of `peer` are believed.
    pub(crate) fn trusts(&self, peer: &Peer) -> bool {
        peer.is_among(&self.trusted)
    }

    /// Removes the trailers that belong into a head, where they would have been checked.
    pub(crate) fn clean_trailers(&self, trailers: &mut HeaderMap) {
        clean_trailers(trailers, |name| self.is_guarded(name) || self.is_of_others(name, false));
    }

    fn check_nominations(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut count = 0;
        for name in nominations(headers) {
            count += 1;
            if count > NOMINATIONS_MAX {
                return Err(NOMINATIONS);
            }
            if HeaderName::from_bytes(name).is_ok_and(|name| self.is_guarded(&name)) {
                return Err(NOMINATED);
            }
        }
        Ok(())
    }

    fn is_guarded(&self, name: &HeaderName) -> bool {
        GUARDED_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
            || self.guarded.contains(name)
    }

    fn remove_headers_of_others(&self, headers: &mut HeaderMap, peer: &Peer) {
        let is_trusted = !self.tenant_headers.is_empty() && self.trusts(peer);
        let removed = headers.keys().filter(|name| self.is_of_others(name, is_trusted));
        let removed: Vec<HeaderName> = removed.cloned().collect();
        for name in &removed {
            headers.remove(name);
            tracing::debug!(%name, "a header was removed that the client may not set");
        }
        if !removed.is_empty() {
            let count = u64::try_from(removed.len()).unwrap_or(u64::MAX);
            metrics::counter!("selfsame_removed_headers_total").increment(count);
        }
    }

    /// Tells whether a header names a caller without the right to, or could be taken for another header
    /// by applications that read `-` and `_` alike.
    fn is_of_others(&self, name: &HeaderName, is_trusted: bool) -> bool {
        let mut twins = self.tenant_headers.iter().filter(|header| is_twin(&header.name, name));
        if let Some(first) = twins.next() {
            let may_be_set =
                |header: &TenantHeader| header.is_set_by_proxies && header.name == *name;
            return !(is_trusted && (may_be_set(first) || twins.any(may_be_set)));
        }
        if !name.as_str().contains('_') || self.guarded.contains(name) {
            return false;
        }
        let twin = HeaderName::try_from(name.as_str().replace('_', "-"));
        !self.allows_underscores || twin.is_ok_and(|twin| self.is_guarded(&twin))
    }
}

fn is_twin(one: &HeaderName, other: &HeaderName) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let (one, other) = (one.as_str().bytes().map(dashed), other.as_str().bytes().map(dashed));
    one.eq(other)
}

/// Removes the trailers that only a head may have (RFC 9110, 6.5.1), and those that `is_other` names.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap, is_other: impl Fn(&HeaderName) -> bool) {
    let removed: Vec<HeaderName> = trailers
        .keys()
        .filter(|name| {
            let text = name.as_str();
            OF_HEADS.contains(name)
                || is_hop_by_hop(name)
                || text.starts_with(SELFSAME_PREFIX)
                || is_other(name)
        })
        .cloned()
        .collect();
    for name in removed {
        trailers.remove(name);
    }
}

/// One length in its shortest form: the next reader may take `05` for something else.
fn normalize_length(headers: &mut HeaderMap) -> Result<(), Refusal> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let (Some(length), second) = (lengths.next(), lengths.next()) else { return Ok(()) };
    let is_number = second.is_none() && length.as_bytes().iter().all(u8::is_ascii_digit);
    let number: Option<u64> = length.to_str().ok().and_then(|text| text.parse().ok());
    let number = HeaderValue::from(number.filter(|_| is_number).ok_or(LENGTH)?);
    if number != length {
        headers.insert(CONTENT_LENGTH, number);
    }
    Ok(())
}

/// The names that `Connection` lists: those headers belong to one connection.
pub(crate) fn nominations(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(CONNECTION).iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
    names.map(<[u8]>::trim_ascii).filter(|name| !name.is_empty())
}

/// RFC 9112, 3.2 and RFC 9113, 8.3.1: one valid host. HTTP/1.0 may do without.
fn check_host<B>(request: &Request<B>) -> Result<(), Refusal> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    if more.is_some() {
        return Err(HOSTS);
    }
    if host.is_some_and(|host| !is_host(host.as_bytes())) {
        return Err(INVALID_HOST);
    }
    match (request.uri().authority(), host) {
        (Some(authority), _) if !is_host(authority.as_str().as_bytes()) => Err(INVALID_HOST),
        (Some(authority), Some(host)) if request.version() == Version::HTTP_2 => {
            is_same(authority, host).then_some(()).ok_or(HOSTS)
        }
        (None, None) if request.version() > Version::HTTP_10 => Err(NO_HOST),
        (Some(_), None) if request.version() == Version::HTTP_11 => Err(NO_HOST),
        _ => Ok(()),
    }
}

fn is_same(authority: &Authority, host: &HeaderValue) -> bool {
    authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes())
}

/// Tells whether this is a name or an address, with or without a port, and nothing else. Some characters
/// that URIs allow are left out: no host has them, and not everybody reads them alike.
fn is_host(text: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(text) else { return false };
    let (is_valid, rest) = match text.strip_prefix('[').map(|text| text.split_once(']')) {
        Some(Some((address, rest))) => (address.parse::<Ipv6Addr>().is_ok(), rest),
        Some(None) => (false, ""),
        None => {
            let (name, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
            (is_name(name), rest)
        }
    };
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit())
            && (port.is_empty() || port.parse::<u16>().is_ok())
    };
    is_valid && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

fn is_name(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~');
    let mut labels = name.strip_suffix('.').unwrap_or(name).split('.');
    labels.all(|label| !label.is_empty() && label.bytes().all(is_known))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn rules(text: &str) -> HeadRules {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = format!("upstream = \"http://127.0.0.1:9\"\n{text}");
        fs::write(file.path(), text).expect("written");
        HeadRules::new(&Config::load(Some(file.path()), &Default::default()).expect("valid"))
    }

    fn request(
        method: &str,
        target: &str,
        version: Version,
        headers: &[(&str, &str)],
    ) -> Request<()> {
        let mut request = Request::builder().method(method).uri(target).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request")
    }

    fn stranger() -> Peer {
        let address = "192.0.2.1:5".parse().expect("an address");
        Peer { address, is_encrypted: false, holder: None }
    }

    fn outcome(version: Version, target: &str, headers: &[(&str, &str)]) -> Result<(), Refusal> {
        let mut request = request("POST", target, version, headers);
        rules("").apply(&mut request, &stranger())
    }

    #[test]
    fn a_request_names_one_valid_host() {
        const H1: Version = Version::HTTP_11;
        const H2: Version = Version::HTTP_2;
        let valid = [
            "a",
            "api.example.com",
            "API.example.com.",
            "a_b:80",
            "a:",
            "[::1]:8443",
            "[::1]",
            "10.0.0.1",
        ];
        for host in valid {
            assert_eq!(outcome(H1, "/", &[("host", host)]), Ok(()), "{host}");
        }
        let invalid = [
            "", ".", "a..b", ".a", "a,b", "a, b", "a b", "me@a", "a/b", "a:b", "a:80:80",
            "a:65536", "a?b", "a#b", "[::1", "::1", "[a]", "[::1]80", "%61", "a\\b", "a;b", "a:+1",
        ];
        for host in invalid {
            assert_eq!(outcome(H1, "/", &[("host", host)]), Err(INVALID_HOST), "{host}");
            assert_eq!(outcome(H2, "/", &[("host", host)]), Err(INVALID_HOST), "{host}");
        }
        let two = [("host", "a"), ("host", "a")];
        type Case<'a> = (Version, &'a str, &'a [(&'a str, &'a str)], Result<(), Refusal>);
        let table: [Case<'_>; 12] = [
            (H1, "/", &[], Err(NO_HOST)),
            (Version::HTTP_10, "/", &[], Ok(())),
            (Version::HTTP_10, "/", &two, Err(HOSTS)),
            (H1, "/", &two, Err(HOSTS)),
            (H1, "http://b/", &[], Err(NO_HOST)),
            (H1, "http://b/", &[("host", "a")], Ok(())),
            (H1, "http://me:secret@b/", &[("host", "b")], Err(INVALID_HOST)),
            (H2, "/", &[], Err(NO_HOST)),
            (H2, "https://a/", &[], Ok(())),
            (H2, "https://a/", &[("host", "A")], Ok(())),
            (H2, "https://a/", &[("host", "b")], Err(HOSTS)),
            (H2, "https://me@a/", &[], Err(INVALID_HOST)),
        ];
        for (version, target, headers, expected) in table {
            assert_eq!(
                outcome(version, target, headers),
                expected,
                "{version:?} {target} {headers:?}"
            );
        }
    }

    #[test]
    fn a_length_is_one_number_in_its_shortest_form() {
        for (lengths, expected) in [
            (&["5"][..], Ok("5")),
            (&["0005"], Ok("5")),
            (&["0"], Ok("0")),
            (&["5", "5"], Err(LENGTH)),
            (&["5", "05"], Err(LENGTH)),
            (&["+5"], Err(LENGTH)),
            (&[""], Err(LENGTH)),
            (&["5, 5"], Err(LENGTH)),
            (&["99999999999999999999"], Err(LENGTH)),
        ] {
            let mut headers = vec![("host", "a")];
            headers.extend(lengths.iter().map(|length| ("content-length", *length)));
            let mut request = request("POST", "/", Version::HTTP_2, &headers);
            let outcome = rules("").apply(&mut request, &stranger());
            let length =
                outcome.map(|()| request.headers()[CONTENT_LENGTH].to_str().expect("ASCII"));
            assert_eq!(length, expected, "{lengths:?}");
        }
    }

    #[test]
    fn trailers_hold_nothing_of_a_head() {
        let rules = rules("[idempotency]\ntenant = \"credential:X-Api-Key\"");
        let names = [
            "x-sum",
            "grpc-status",
            "content-length",
            "transfer-encoding",
            "connection",
            "selfsame-claim",
            "x-api-key",
            "x_api_key",
            "idempotency-key",
            "authorization",
            "x-forwarded-for",
            "host",
            "trailer",
        ];
        let mut trailers = HeaderMap::new();
        for name in names {
            trailers.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        rules.clean_trailers(&mut trailers);
        let left: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-sum", "grpc-status"]);
    }

    #[test]
    fn connect_and_trace_are_refused() {
        for (method, target) in [("CONNECT", "a:443"), ("TRACE", "/")] {
            let mut request = request(method, target, Version::HTTP_11, &[("host", "a")]);
            assert_eq!(rules("").apply(&mut request, &stranger()), Err(TUNNEL), "{method}");
        }
    }

    #[test]
    fn connection_lists_few_headers_and_none_of_the_whole_request() {
        let rules =
            rules("[idempotency]\ntenant = \"credential:X-Api-Key\"\nkey_headers = [\"X-Key\"]");
        let outcome = |line: &str| {
            let headers = [("host", "a"), ("connection", line)];
            rules.apply(&mut request("GET", "/", Version::HTTP_11, &headers), &stranger())
        };
        for line in ["close", "keep-alive, X-Own", "Upgrade, HTTP2-Settings", ",,", "not a name"] {
            assert_eq!(outcome(line), Ok(()), "{line}");
        }
        let names = [
            "host",
            "Cookie",
            "authorization",
            "X-Forwarded-For",
            "Forwarded",
            "Selfsame-Attempt",
            "content-length",
            "Idempotency-Key",
            "X-Key",
            "x-api-key",
        ];
        for name in names {
            assert_eq!(outcome(&format!("close, {name}")), Err(NOMINATED), "{name}");
        }
        assert_eq!(outcome(&["a"; 10].join(",")), Ok(()));
        assert_eq!(outcome(&["a"; 11].join(",")), Err(NOMINATIONS));
    }

    /// The names of the headers that go on, without `host`.
    fn left(rules: &HeadRules, peer: &Peer, names: &[&str]) -> Vec<String> {
        let mut headers = vec![("host", "a")];
        headers.extend(names.iter().map(|name| (*name, "value")));
        let mut request = request("GET", "/", Version::HTTP_11, &headers);
        rules.apply(&mut request, peer).expect("it is taken");
        request.headers().keys().filter(|name| *name != HOST).map(ToString::to_string).collect()
    }

    #[test]
    fn headers_that_name_a_caller_come_from_proxies_alone() {
        let rules = rules(
            "trusted_proxies = [\"10.0.0.0/8\"]\nunderscores_in_headers = true\n\
             [idempotency]\ntenant = \"header:X-Tenant\"\n[forward_auth]\nurl = \"http://127.0.0.1:8/\"\n\
             tenant_header = \"X-User\"\n[[route]]\nmatch = \"/a\"\ntenant = \"forward-auth\"",
        );
        let proxy = Peer { address: "10.0.0.1:5".parse().expect("an address"), ..stranger() };
        let names = ["x-tenant", "x-user", "x_tenant", "x_user", "x_forwarded_for", "x_other"];
        assert_eq!(left(&rules, &stranger(), &names), ["x_other"]);
        assert_eq!(left(&rules, &proxy, &names), ["x-tenant", "x_other"]);
    }

    #[test]
    fn names_with_underscores_are_removed_unless_they_are_allowed() {
        let names = ["x_other", "idempotency_key", "x-other"];
        assert_eq!(left(&rules(""), &stranger(), &names), ["x-other"]);
        let allowing = rules("underscores_in_headers = true");
        assert_eq!(left(&allowing, &stranger(), &names), ["x_other", "x-other"]);
    }
}
