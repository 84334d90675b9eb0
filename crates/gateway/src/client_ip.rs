//! The address of the client behind trusted proxies, from `X-Forwarded-For` and `Forwarded`.
//!
//! Each proxy adds the address of its own peer at the end of the list, so the list is read from there: the
//! first address that is no trusted proxy's is the client's. Everything before it may be invented.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;

use crate::address_limit::ClientAddress;
use crate::forwarded::X_FORWARDED_FOR;

/// Most proxies in a row that are looked at.
const HOPS_MAX: usize = 32;

/// The client of a request that came from the trusted proxy at `peer`; that address itself if the headers
/// name no client.
///
/// Many proxies set one of the two headers and pass the other as the client sent it. If they name different
/// clients, one of them is invented, and neither is believed. Such requests do not count for the proxy
/// either: its own, which ask if we serve, would be refused for theirs.
pub(crate) fn behind_proxies(
    headers: &HeaderMap,
    peer: IpAddr,
    trusted: &[IpNet],
) -> ClientAddress {
    let is_trusted = |ip: &IpAddr| trusted.iter().any(|network| network.contains(ip));
    let of = |name: &HeaderName, parse: fn(&str) -> Option<IpAddr>| {
        let lines = headers.get_all(name).iter().rev();
        let elements = lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','));
        for element in elements.take(HOPS_MAX) {
            let hop = std::str::from_utf8(element).ok().and_then(|text| parse(text.trim()));
            let Some(hop) = hop else { break };
            let client = hop.to_canonical();
            if !is_trusted(&client) {
                return Some(client);
            }
        }
        None
    };
    match (of(&X_FORWARDED_FOR, parse_node), of(&FORWARDED, parse_element)) {
        (Some(one), Some(other)) if one != other => ClientAddress::Unclear,
        (Some(client), _) | (None, Some(client)) => client.into(),
        (None, None) => peer.into(),
    }
}

/// The address in `for=…` of an element of `Forwarded` (RFC 7239).
fn parse_element(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, node) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    parse_node(node.trim().trim_matches('"'))
}

/// An address, with or without a port.
fn parse_node(node: &str) -> Option<IpAddr> {
    let bare = node.strip_prefix('[').and_then(|node| node.strip_suffix(']')).unwrap_or(node);
    bare.parse().ok().or_else(|| node.parse().ok().map(|address: SocketAddr| address.ip()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// The client that these lines of `X-Forwarded-For` and `Forwarded` name behind `10.0.0.1`.
    fn client(for_lines: &[&'static str], forwarded: &[&'static str]) -> String {
        let trusted = ["10.0.0.0/8".parse().expect("a network"), "fd00::/8".parse().expect("one")];
        let mut headers = HeaderMap::new();
        for line in for_lines {
            headers.append(X_FORWARDED_FOR, HeaderValue::from_static(line));
        }
        for line in forwarded {
            headers.append(FORWARDED, HeaderValue::from_static(line));
        }
        behind_proxies(&headers, "10.0.0.1".parse().expect("an address"), &trusted).to_string()
    }

    #[test]
    fn the_last_address_that_is_no_proxy_s_is_the_client_s() {
        let table: [(&[&str], &str); 12] = [
            (&["192.0.2.1"], "192.0.2.1"),
            (&["198.51.100.9, 192.0.2.1"], "192.0.2.1"),
            (&["198.51.100.9", "192.0.2.1"], "192.0.2.1"),
            (&["198.51.100.9, 192.0.2.1, 10.0.0.7"], "192.0.2.1"),
            (&["192.0.2.1,fd00::1 , 10.0.0.7"], "192.0.2.1"),
            (&["10.0.0.9, 192.0.2.1"], "192.0.2.1"),
            (&["192.0.2.1:4711"], "192.0.2.1"),
            (&["2001:db8::7"], "2001:db8::/64"),
            (&["[2001:db8::7]:4711"], "2001:db8::/64"),
            (&["::ffff:192.0.2.1"], "192.0.2.1"),
            // Nobody else is named, or the last one cannot be read.
            (&["10.0.0.7"], "10.0.0.1"),
            (&["192.0.2.1, unknown"], "10.0.0.1"),
        ];
        for (lines, expected) in table {
            assert_eq!(client(lines, &[]), expected, "{lines:?}");
        }
        assert_eq!(client(&[], &[]), "10.0.0.1");
    }

    #[test]
    fn the_standard_header_names_clients_too() {
        let table = [
            ("for=192.0.2.1", "192.0.2.1"),
            ("for=198.51.100.9;proto=https, proto=http;For=\"192.0.2.1:4711\"", "192.0.2.1"),
            ("for=\"[2001:db8::7]\";host=\"a\", for=10.0.0.7", "2001:db8::/64"),
            ("for=\"[2001:db8::7]:80\"", "2001:db8::/64"),
            ("for=_hidden", "10.0.0.1"),
            ("proto=https", "10.0.0.1"),
        ];
        for (line, expected) in table {
            assert_eq!(client(&[], &[line]), expected, "{line}");
        }
    }

    #[test]
    fn headers_that_disagree_are_not_believed() {
        assert_eq!(client(&["192.0.2.1"], &["for=192.0.2.1"]), "192.0.2.1");
        let unclear = ClientAddress::Unclear.to_string();
        assert_eq!(client(&["192.0.2.1"], &["for=192.0.2.2"]), unclear);
        assert_eq!(client(&["192.0.2.1"], &["for=10.0.0.7"]), "192.0.2.1");
        assert_eq!(client(&["10.0.0.7"], &["for=192.0.2.2"]), "192.0.2.2");
    }
}
