//! [`Host`]: which host a route's requests are sent to.

use std::cmp::Reverse;
use std::fmt;
use std::net::Ipv6Addr;

use toml::de::DeValue;

use super::values::{Kind, Wrong, text};

/// The host that a route's requests are sent to, as a `Host` header or an HTTP/2 request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    name: Name,
    /// Where it is not written, any port fits.
    port: Option<u16>,
}

/// A host's name, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Exactly(String),
    /// Every name that ends in a dot and this one.
    Below(String),
}

pub(super) const HOST: Kind<Host> = Kind {
    expected: r#"a host like "api.example.com", "*.example.com" or "api.example.com:8443""#,
    read: |value: &DeValue<'_>| Host::parse(text(value)?).ok_or(Wrong::Form),
};

impl Host {
    fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (name, port) = split(text.as_bytes());
        let name = str::from_utf8(name).ok()?;
        let port = match port {
            Some(port) => Some(number(port).filter(|&port| port > 0)?),
            // A colon with nothing behind it.
            None if text.len() > name.len() => return None,
            None => None,
        };
        let name = match name.strip_prefix("*.") {
            Some(parent) if is_dns_name(parent) => Name::Below(parent.to_owned()),
            None if is_dns_name(name) || is_ipv6(name) => Name::Exactly(name.to_owned()),
            _ => return None,
        };
        Some(Self { name, port })
    }

    /// Whether a request to `authority` is sent to this host. Case makes no difference.
    pub(crate) fn fits(&self, authority: &[u8]) -> bool {
        let (name, port) = split(authority);
        // A dot at the end says that the name is whole: it is the same host.
        let name = name.strip_suffix(b".").unwrap_or(name);
        let fits_name = match &self.name {
            Name::Exactly(exact) => name.eq_ignore_ascii_case(exact.as_bytes()),
            Name::Below(parent) => {
                let split = name.len().checked_sub(parent.len() + 1).filter(|&below| below > 0);
                split.is_some_and(|at| {
                    name[at] == b'.' && name[at + 1..].eq_ignore_ascii_case(parent.as_bytes())
                })
            }
        };
        fits_name && self.port.is_none_or(|written| port.and_then(number) == Some(written))
    }

    /// Where several hosts fit, the one with the least rank goes first: a whole name before a part,
    /// a longer part before a shorter one, then a port before none.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        let (is_part, len) = match &self.name {
            Name::Exactly(name) => (false, name.len()),
            Name::Below(parent) => (true, parent.len()),
        };
        (is_part, Reverse(len), self.port.is_none())
    }

    /// Whether some request is sent to both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let names = match (&self.name, &other.name) {
            (Name::Exactly(left), Name::Exactly(right)) => left == right,
            (Name::Exactly(name), Name::Below(parent))
            | (Name::Below(parent), Name::Exactly(name)) => is_below(name, parent),
            (Name::Below(left), Name::Below(right)) => {
                left == right || is_below(left, right) || is_below(right, left)
            }
        };
        names && (self.port == other.port || self.port.is_none() || other.port.is_none())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Exactly(name) => f.write_str(name)?,
            Name::Below(parent) => write!(f, "*.{parent}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// A name, and the digits of a port, if there are some. A user's name before them is not ours.
fn split(authority: &[u8]) -> (&[u8], Option<&[u8]>) {
    let user_end = authority.iter().rposition(|&byte| byte == b'@').map_or(0, |at| at + 1);
    let host = &authority[user_end..];
    // The colons within an IPv6 address are not followed by digits alone: a bracket closes it.
    let digits = host.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    match host[..host.len() - digits].strip_suffix(b":") {
        Some(name) => (name, (digits > 0).then(|| &host[host.len() - digits..])),
        None => (host, None),
    }
}

fn number(digits: &[u8]) -> Option<u16> {
    str::from_utf8(digits).ok()?.parse().ok()
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

fn is_dns_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.bytes().all(is_allowed)
    };
    name.split('.').all(is_label)
}

fn is_ipv6(name: &str) -> bool {
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn a_host_is_a_name_and_perhaps_a_port() {
        for text in ["a", "api.example.com", "*.example.com", "127.0.0.1:80", "[::1]", "[::1]:81"] {
            assert_eq!(host(text).to_string(), text);
        }
        assert_eq!(host("API.Example.com:8443"), host("api.example.com:8443"));
        for text in [
            "", "*", "*.", "a.*.com", "**.a", ".a", "a.", "a..b", "a:", "a:0", "a:65536", "a:b",
            "::1", "[::1", "*.[::1]", "http://a", "a/b", "u@a", "a b", "ä.de",
        ] {
            assert_eq!(Host::parse(text), None, "{text}");
        }
    }

    #[test]
    fn requests_are_sent_to_the_host_they_name() {
        let table: [(&str, &[&str], &[&str]); 5] = [
            (
                "a.example",
                &["a.example", "A.Example:80", "u@a.example"],
                &["b.example", "", "x.a.example"],
            ),
            (
                "a.example:80",
                &["a.example:80", "a.example:080"],
                &["a.example", "a.example:81", "a.example:"],
            ),
            (
                "*.example",
                &["a.example", "B.A.EXAMPLE:1"],
                &["example", ".example", "aexample", "a.example.x"],
            ),
            ("[::1]", &["[::1]", "[::1]:8080"], &["::1", "[::2]"]),
            ("a", &["a", "a:"], &["a, a", "a b", "\u{e4}"]),
        ];
        for (text, fitting, others) in table {
            for authority in fitting {
                assert!(host(text).fits(authority.as_bytes()), "{text} {authority}");
            }
            for authority in others {
                assert!(!host(text).fits(authority.as_bytes()), "{text} {authority}");
            }
        }
    }

    #[test]
    fn the_closest_host_goes_first() {
        let order = ["x.a.b:1", "x.a.b", "*.x.a.b", "*.a.b:1", "*.a.b", "*.b"]
            .map(|text| host(text).rank());
        assert!(order.is_sorted());
    }

    #[test]
    fn hosts_meet_where_a_request_fits_both() {
        for (left, right) in [
            ("a.b", "a.b"),
            ("a.b", "a.b:1"),
            ("a.b", "*.b"),
            ("a.b:1", "*.b"),
            ("*.a.b", "*.b"),
            ("*.b", "*.b:1"),
        ] {
            assert!(
                host(left).meets(&host(right)) && host(right).meets(&host(left)),
                "{left} {right}"
            );
        }
        for (left, right) in [("a.b", "b"), ("b", "*.b"), ("a.b:1", "a.b:2"), ("*.b", "*.ab")] {
            assert!(
                !host(left).meets(&host(right)) && !host(right).meets(&host(left)),
                "{left} {right}"
            );
        }
    }
}
