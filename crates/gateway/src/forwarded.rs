//! What the upstream is told of the client and of us: `Forwarded` (RFC 7239), its older brothers
//! `X-Forwarded-…`, and `Via`.
//!
//! Anyone can send these headers, and others that begin like them. What came from a trusted proxy is
//! passed on and added to; all else is removed.

use std::fmt::Write;
use std::net::IpAddr;

use http::header::{FORWARDED, HOST, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use selfsame_core::headers::lines;

use crate::peer::Peer;

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
pub(crate) const X_FORWARDED_PREFIX: &str = "x-forwarded-";
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Says who sent a request, over what, and to which host.
pub(crate) fn tell(headers: &mut HeaderMap, peer: &Peer, is_trusted: bool) {
    if !is_trusted {
        let of_proxies: Vec<HeaderName> =
            headers.keys().filter(|name| is_of_proxies(name)).cloned().collect();
        for name in of_proxies {
            headers.remove(name);
        }
    }
    let (ip, proto) = (peer.ip(), if peer.is_encrypted { "https" } else { "http" });
    let host = headers.get(HOST).cloned();
    add(headers, &FORWARDED, element(ip, proto, host.as_ref()));
    add(headers, &X_FORWARDED_FOR, ip.to_string());
    // Of these there is one: what a trusted proxy says is the client's own, ours would be the proxy's.
    headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(proto));
    if let Some(host) = host {
        headers.entry(X_FORWARDED_HOST).or_insert(host);
    }
}

/// Tells if only proxies set a header: it tells an API who the client is, and how it connected.
fn is_of_proxies(name: &HeaderName) -> bool {
    name.as_str().starts_with(X_FORWARDED_PREFIX) || *name == FORWARDED || *name == X_REAL_IP
}

/// Says that a message came through us, which was received over `version`.
pub(crate) fn sign(headers: &mut HeaderMap, version: Version) {
    let ours = match version {
        Version::HTTP_09 | Version::HTTP_10 => "1.0 selfsame",
        Version::HTTP_2 => "2.0 selfsame",
        _ => "1.1 selfsame",
    };
    headers.append(VIA, HeaderValue::from_static(ours));
}

/// Adds to the end of a header's list, on one line: some read no other than the first, or the last.
fn add(headers: &mut HeaderMap, name: &HeaderName, value: String) {
    let value = match lines(headers, name) {
        Some(known) => [&known, &b", "[..], value.as_bytes()].concat(),
        None => value.into_bytes(),
    };
    let value = HeaderValue::from_bytes(&value).expect("made of values and of what they may hold");
    headers.insert(name, value);
}

fn element(ip: IpAddr, proto: &str, host: Option<&HeaderValue>) -> String {
    let mut element = match ip {
        IpAddr::V4(ip) => format!("for={ip}"),
        IpAddr::V6(ip) => format!("for=\"[{ip}]\""),
    };
    // Quoted, for it may hold a colon; one that holds a quote is no host.
    let host = host.and_then(|host| host.to_str().ok()).filter(|host| !host.contains(['"', '\\']));
    if let Some(host) = host {
        write!(element, ";host=\"{host}\"").expect("a string takes all");
    }
    write!(element, ";proto={proto}").expect("a string takes all");
    element
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str, is_encrypted: bool) -> Peer {
        Peer { address: address.parse().expect("an address"), is_encrypted, holder: None }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        headers
    }

    const SENT: [(&str, &str); 8] = [
        ("host", "api.example:8443"),
        ("x-real-ip", "192.0.2.9"),
        ("x-forwarded-user", "root"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-for", "192.0.2.2"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example"),
        ("forwarded", "for=192.0.2.1;proto=https"),
    ];

    #[test]
    fn what_a_stranger_says_is_replaced() {
        let mut told = headers(&SENT);
        tell(&mut told, &peer("[::ffff:10.0.0.9]:5", true), false);
        let expected = [
            ("host", "api.example:8443"),
            ("forwarded", "for=10.0.0.9;host=\"api.example:8443\";proto=https"),
            ("x-forwarded-for", "10.0.0.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "api.example:8443"),
        ];
        assert_eq!(told, headers(&expected));
    }

    #[test]
    fn what_a_trusted_proxy_says_is_added_to() {
        let mut told = headers(&SENT);
        tell(&mut told, &peer("[2001:db8::1]:5", false), true);
        let by =
            "for=192.0.2.1;proto=https, for=\"[2001:db8::1]\";host=\"api.example:8443\";proto=http";
        assert_eq!(told["forwarded"], by);
        assert_eq!(told["x-forwarded-for"], "192.0.2.1, 192.0.2.2, 2001:db8::1");
        assert_eq!(told.get_all("x-forwarded-for").iter().count(), 1);
        for (name, value) in &SENT[1..3] {
            assert_eq!(told[*name], *value);
        }
        assert_eq!(
            (&told["x-forwarded-proto"], &told["x-forwarded-host"]),
            (&HeaderValue::from_static("https"), &HeaderValue::from_static("shop.example"),)
        );
    }

    #[test]
    fn a_host_that_is_none_is_left_out() {
        let mut told = headers(&[("host", "a\";for=evil")]);
        tell(&mut told, &peer("10.0.0.9:5", false), false);
        assert_eq!(told["forwarded"], "for=10.0.0.9;proto=http");
        let mut told = HeaderMap::new();
        tell(&mut told, &peer("10.0.0.9:5", false), false);
        assert_eq!(told["forwarded"], "for=10.0.0.9;proto=http");
        assert!(!told.contains_key("x-forwarded-host"));
    }

    #[test]
    fn each_hop_signs_behind_the_last() {
        let mut told = headers(&[("via", "1.0 other")]);
        sign(&mut told, Version::HTTP_2);
        let lines: Vec<_> = told.get_all(VIA).iter().collect();
        assert_eq!(lines, ["1.0 other", "2.0 selfsame"]);
    }
}
