//! `[limits]`: how much clients may take, and how long they may take for it.

use std::time::Duration;

use toml::de::DeValue;

use super::file::Section;
use super::mistakes::Mistakes;
use super::values::{DURATION, Kind, SIZE, SIZE_OR_OFF, Wrong, because, choice, integer};

/// How much clients may take, and how long they may take for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `max_connections`: how many clients may be connected.
    pub connections_max: usize,
    /// `max_requests`: how many requests may be under way.
    pub requests_max: usize,
    /// `max_connections_per_address`: the share of one client address in `max_connections`.
    pub max_connections_per_address: usize,
    /// `max_requests_per_address`: the share of one client address in `max_requests`.
    pub max_requests_per_address: usize,
    /// `max_abandoned_requests`: the share in `max_requests` of runs whose clients are gone.
    pub max_abandoned_requests: usize,
    /// `max_new_keys_per_address`: new keys per second of one address; no limit where it is off.
    pub max_new_keys_per_address: Option<u32>,
    /// `max_upstream_connections`: the limit of connections to one upstream.
    pub max_upstream_connections: usize,
    /// `max_streams`: how many of them over one connection of HTTP/2.
    pub streams_max: u32,
    /// `max_headers`: how many header lines a request may have.
    pub headers_max: usize,
    /// `max_header_bytes`: how large its head may be.
    pub header_bytes_max: usize,
    /// `head_timeout`: how long a head may take, and a TLS handshake.
    pub head_timeout: Duration,
    /// `body_timeout`: how long a body may stand still.
    pub body_timeout: Duration,
    /// `min_body_rate`: the least rate of a body, in bytes per second; none where it is off.
    pub min_body_rate: Option<usize>,
    /// `answer_timeout`: how long a request that only passes may go unanswered.
    pub answer_timeout: Duration,
    /// `write_timeout`: how long nobody may take an answer.
    pub write_timeout: Duration,
    /// `idle_timeout`: how long a connection is kept without a request.
    pub idle_timeout: Duration,
    /// `tunnel_idle_timeout`: how long a connection that has left HTTP may be silent.
    pub tunnel_idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (connections_max, requests_max) = (20_000, 10_000);
        Self {
            connections_max,
            requests_max,
            max_connections_per_address: Limits::connections_share(connections_max),
            max_requests_per_address: Limits::requests_share(requests_max),
            max_abandoned_requests: Limits::requests_share(requests_max),
            max_new_keys_per_address: Some(1000),
            max_upstream_connections: Self::UPSTREAM_CONNECTIONS,
            streams_max: 250,
            headers_max: Self::HEADERS_MAX,
            header_bytes_max: 32 * 1024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            min_body_rate: Some(1024),
            answer_timeout: Duration::from_secs(15 * 60),
            write_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            tunnel_idle_timeout: Duration::from_secs(10 * 60),
        }
    }
}

impl Limits {
    /// What `max_headers` is unless it is said.
    pub const HEADERS_MAX: usize = 100;
    /// Default of `max_upstream_connections`, unless `max_requests` is more.
    const UPSTREAM_CONNECTIONS: usize = 10_000;

    /// Default share of one address in `max_connections`.
    pub(crate) fn connections_share(all: usize) -> usize {
        (all / 2).max(1)
    }

    /// Default share in `max_requests`: of one address, and of all abandoned runs.
    pub(crate) fn requests_share(all: usize) -> usize {
        (all / 4).max(1)
    }
}

const MANY: Kind<usize> = Kind {
    expected: "a whole number from 1 to 1000000, without quotes",
    read: |value| count(value, 1_000_000),
};

const MANY_OR_OFF: Kind<Option<u32>> = Kind {
    expected: r#"a whole number from 1 to 1000000, without quotes, or "off""#,
    read: |value| match value {
        DeValue::Integer(_) => {
            (MANY.read)(value).map(|count| Some(u32::try_from(count).expect("at most a million")))
        }
        _ => choice(value, &[("off", None)]),
    },
};

const SOME: Kind<usize> = Kind {
    expected: "a whole number from 1 to 1000, without quotes",
    read: |value| count(value, 1000),
};

const STREAMS: Kind<u32> = Kind {
    expected: SOME.expected,
    read: |value| (SOME.read)(value).map(|count| u32::try_from(count).expect("at most 1000")),
};

const HEAD_BYTES: Kind<usize> = Kind {
    expected: SIZE.expected,
    read: |value| match (SIZE.read)(value)? {
        ..1024 => Err(because("must be at least 1KiB")),
        bytes if bytes > 256 * 1024 => Err(because("must be at most 256KiB")),
        bytes => Ok(bytes),
    },
};

const RATE: Kind<Option<usize>> = Kind {
    expected: r#"a size a second like "1KiB" or 512 (bytes), or "off""#,
    read: |value| match (SIZE_OR_OFF.read)(value)? {
        Some(bytes) if bytes > 1024 * 1024 => Err(because("must be at most 1MiB")),
        rate => Ok(rate),
    },
};

fn count(value: &DeValue<'_>, max: u64) -> Result<usize, Wrong> {
    match integer(value)? {
        count if (1..=max).contains(&count) => Ok(usize::try_from(count).expect("not that many")),
        _ => Err(Wrong::Form),
    }
}

/// What `section` says, and the defaults where it says nothing.
pub(super) fn read(mut section: Section<'_>, mistakes: &mut Mistakes) -> Limits {
    let mut limits = Limits::default();
    section.set("max_connections", &MANY, &mut limits.connections_max);
    section.set("max_requests", &MANY, &mut limits.requests_max);
    limits.max_connections_per_address = Limits::connections_share(limits.connections_max);
    section.set("max_connections_per_address", &MANY, &mut limits.max_connections_per_address);
    limits.max_requests_per_address = Limits::requests_share(limits.requests_max);
    section.set("max_requests_per_address", &MANY, &mut limits.max_requests_per_address);
    limits.max_abandoned_requests = Limits::requests_share(limits.requests_max);
    section.set("max_abandoned_requests", &MANY, &mut limits.max_abandoned_requests);
    section.set("max_new_keys_per_address", &MANY_OR_OFF, &mut limits.max_new_keys_per_address);
    limits.max_upstream_connections = Limits::UPSTREAM_CONNECTIONS.max(limits.requests_max);
    section.set("max_upstream_connections", &MANY, &mut limits.max_upstream_connections);
    section.set("max_streams", &STREAMS, &mut limits.streams_max);
    section.set("max_headers", &SOME, &mut limits.headers_max);
    section.set("max_header_bytes", &HEAD_BYTES, &mut limits.header_bytes_max);
    section.set("head_timeout", &DURATION, &mut limits.head_timeout);
    section.set("body_timeout", &DURATION, &mut limits.body_timeout);
    section.set("min_body_rate", &RATE, &mut limits.min_body_rate);
    section.set("answer_timeout", &DURATION, &mut limits.answer_timeout);
    section.set("write_timeout", &DURATION, &mut limits.write_timeout);
    section.set("idle_timeout", &DURATION, &mut limits.idle_timeout);
    section.set("tunnel_idle_timeout", &DURATION, &mut limits.tunnel_idle_timeout);
    section.finish(mistakes);
    limits
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;
    use super::*;

    #[test]
    fn each_limit_is_taken_from_the_file() {
        let text = "max_connections = 1\nmax_requests = 2\nmax_streams = 3\nmax_headers = 4\n\
            max_header_bytes = '5KiB'\nhead_timeout = '6s'\nbody_timeout = '7s'\n\
            answer_timeout = '8s'\nwrite_timeout = '9s'\nidle_timeout = '10s'\n\
            max_connections_per_address = 11\nmax_requests_per_address = 12\n\
            max_abandoned_requests = 13\nmax_upstream_connections = 14\nmin_body_rate = '15KiB'\n\
            tunnel_idle_timeout = '16s'\nmax_new_keys_per_address = 17";
        let config = load(&format!("upstream = 'http://a'\n[limits]\n{text}")).expect("valid");
        let expected = Limits {
            connections_max: 1,
            requests_max: 2,
            streams_max: 3,
            headers_max: 4,
            header_bytes_max: 5 * 1024,
            head_timeout: Duration::from_secs(6),
            body_timeout: Duration::from_secs(7),
            answer_timeout: Duration::from_secs(8),
            write_timeout: Duration::from_secs(9),
            idle_timeout: Duration::from_secs(10),
            max_connections_per_address: 11,
            max_requests_per_address: 12,
            max_abandoned_requests: 13,
            max_new_keys_per_address: Some(17),
            max_upstream_connections: 14,
            min_body_rate: Some(15 * 1024),
            tunnel_idle_timeout: Duration::from_secs(16),
        };
        assert_eq!(config.limits, expected);
    }

    #[test]
    fn shares_follow_the_whole() {
        let shares = |text: &str| {
            let config = load(&format!("upstream = 'http://a'\n[limits]\n{text}"));
            let limits = config.expect("valid").limits;
            (
                limits.max_connections_per_address,
                limits.max_requests_per_address,
                limits.max_abandoned_requests,
                limits.max_upstream_connections,
            )
        };
        assert_eq!(shares(""), (10_000, 2500, 2500, 10_000));
        let large = "max_connections = 100000\nmax_requests = 40000";
        assert_eq!(shares(large), (50_000, 10_000, 10_000, 40_000));
        assert_eq!(shares("max_connections = 1\nmax_requests = 3"), (1, 1, 1, 10_000));
        let own = "max_requests = 40\nmax_requests_per_address = 40";
        assert_eq!(shares(own), (10_000, 40, 10, 10_000));
        let defaults = load("upstream = 'http://a'").expect("valid").limits;
        assert_eq!(defaults, Limits::default());
        let off = "min_body_rate = 'off'\nmax_new_keys_per_address = 'off'";
        let off = load(&format!("upstream = 'http://a'\n[limits]\n{off}")).expect("valid").limits;
        assert_eq!((off.min_body_rate, off.max_new_keys_per_address), (None, None));
    }

    #[test]
    fn a_wrong_limit_says_what_is_wrong() {
        let table = [
            ("max_requests = 0", "from 1 to 1000000, without quotes, found the integer 0"),
            ("max_connections = '5'", "from 1 to 1000000, without quotes, found \"5\""),
            ("max_streams = 1001", "from 1 to 1000, without quotes, found the integer 1001"),
            ("max_headers = -1", "from 1 to 1000, without quotes, found the integer -1"),
            ("max_header_bytes = 1000", "must be at least 1KiB"),
            ("max_header_bytes = '1MiB'", "must be at most 256KiB"),
            ("max_requests_per_address = 0", "from 1 to 1000000"),
            ("max_abandoned_requests = '1'", "from 1 to 1000000"),
            ("max_upstream_connections = -1", "from 1 to 1000000"),
            ("max_new_keys_per_address = 0", "from 1 to 1000000, without quotes, or \"off\""),
            ("max_new_keys_per_address = 1000001", "from 1 to 1000000"),
            ("max_new_keys_per_address = 'none'", "or \"off\", found \"none\""),
            ("min_body_rate = '2MiB'", "must be at most 1MiB"),
            ("min_body_rate = 0", "must be more than zero"),
            ("head_timeout = '0s'", "must be longer than zero"),
            ("idle_time = '1s'", "unknown name \"idle_time\"; did you mean \"idle_timeout\"?"),
        ];
        for (line, expected) in table {
            let said = load(&format!("upstream = 'http://a'\n[limits]\n{line}"));
            let said = said.expect_err("a mistake").to_string();
            assert!(said.contains(expected), "{said}");
        }
    }
}
