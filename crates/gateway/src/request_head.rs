//! [`HeadRules`]: checks of a request's head, before anything else is done with it.
//!
//! Two readers of one request must not disagree about its host, its caller or its key: what they could
//! read in two ways is refused, and headers that only we may set are removed.

#[cfg(test)]
mod tests;

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

use crate::address_limit::ClientAddress;
use crate::client_ip;
use crate::config::{Config, TenantSource};
use crate::forwarded::{X_FORWARDED_PREFIX, X_REAL_IP};
use crate::peer::Peer;
use crate::request_path;

/// Most names that `Connection` may list.
const NOMINATIONS_MAX: usize = 10;

/// Headers that `Connection` may not name, whatever the configuration.
const GUARDED: [HeaderName; 10] = [
    HOST,
    AUTHORIZATION,
    COOKIE,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    FORWARDED,
    VIA,
    X_REAL_IP,
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
const GUARDED_PREFIXES: [&str; 2] = [X_FORWARDED_PREFIX, SELFSAME_PREFIX];

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
    /// Explanation for the client.
    pub(crate) detail: &'static str,
}

impl Refusal {
    pub(crate) const fn bad(reason: &'static str, detail: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, reason, detail }
    }
}

const TUNNEL: Refusal = Refusal {
    status: StatusCode::NOT_IMPLEMENTED,
    reason: "method",
    detail: "CONNECT and TRACE are not forwarded",
};
const LOWER_CASE: Refusal = Refusal::bad(
    "method",
    "the method is not in upper case; some servers would read it as another method",
);
const SPACE_AROUND: Refusal =
    Refusal::bad("header", "a header's value begins or ends with a space; remove it");
/// A refusal because whatever follows on the connection could be taken for a request that nobody sent.
pub(crate) const UNCLEAR_END: Refusal = Refusal::bad(
    "framing",
    "it is unclear where the request ends; send one Content-Length or chunks, and lines that end with CR LF",
);
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
        if request.method().as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
            return Err(LOWER_CASE);
        }
        if request.version() == Version::HTTP_2 && request.headers().values().any(has_space_around)
        {
            return Err(SPACE_AROUND);
        }
        check_host(request)?;
        request_path::check(request)?;
        self.check_nominations(request.headers())?;
        normalize_length(request.headers_mut())?;
        self.remove_headers_of_others(request.headers_mut(), peer);
        Ok(())
    }

    /// The address of a request's client, if `peer` is a trusted proxy that may name it.
    pub(crate) fn forwarded_client(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Option<ClientAddress> {
        let is_trusted = self.trusts(peer);
        is_trusted.then(|| client_ip::behind_proxies(headers, peer.ip(), &self.trusted))
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

/// RFC 9113, 8.2.1. Over HTTP/1 such spaces are no part of a value: the upstream would read another one than
/// was compared here.
fn has_space_around(value: &HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_space(value.as_bytes().first()) || is_space(value.as_bytes().last())
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
