//! `[limits]`: how much clients may take, and how long they may take for it.

use std::time::Duration;

use toml::de::DeValue;

use super::file::Section;
use super::mistakes::Mistakes;
use super::values::{
    DURATION, Kind, MEMORY_SIZE, SIZE, SIZE_OR_OFF, Wrong, because, choice, integer,
};

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
    /// `max_buffered_bytes`: bytes of requests and responses in memory.
    pub max_buffered_bytes: usize,
    /// `max_buffered_bytes_per_address`: those of one address.
    pub max_buffered_bytes_per_address: usize,
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
            max_buffered_bytes: Self::BUFFERED_BYTES,
            max_buffered_bytes_per_address: Self::BUFFERED_BYTES_PER_ADDRESS,
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
    /// Default of `max_buffered_bytes`, unless one body or one address may be larger.
    const BUFFERED_BYTES: usize = 512 * 1024 * 1024;
    /// Default of `max_buffered_bytes_per_address`, unless one body may be larger or the whole is less.
    const BUFFERED_BYTES_PER_ADDRESS: usize = 64 * 1024 * 1024;

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

/// What `section` says, and the defaults where it says nothing. A body may have `body_bytes_max`.
pub(super) fn read(
    mut section: Section<'_>,
    body_bytes_max: usize,
    mistakes: &mut Mistakes,
) -> Limits {
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
    read_buffers(&mut section, body_bytes_max, &mut limits);
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

/// The bytes in memory. The largest body must fit, or its route would take none of that size.
fn read_buffers(section: &mut Section<'_>, body_bytes_max: usize, limits: &mut Limits) {
    const WHOLE: &str = "max_buffered_bytes";
    const PER_ADDRESS: &str = "max_buffered_bytes_per_address";
    let whole = section.get(WHOLE, &MEMORY_SIZE);
    let per_address = section.get(PER_ADDRESS, &MEMORY_SIZE);
    let least = Limits::BUFFERED_BYTES.max(body_bytes_max).max(per_address.unwrap_or_default());
    limits.max_buffered_bytes = whole.unwrap_or(least);
    let share = Limits::BUFFERED_BYTES_PER_ADDRESS.min(limits.max_buffered_bytes);
    limits.max_buffered_bytes_per_address = per_address.unwrap_or(share.max(body_bytes_max));
    for (name, bytes) in [(WHOLE, whole), (PER_ADDRESS, per_address)] {
        if bytes.is_some_and(|bytes| bytes < body_bytes_max) {
            let text =
                format!("must be at least the largest max_request_body, {body_bytes_max} bytes");
            section.clash(&[name], text);
        }
    }
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
            tunnel_idle_timeout = '16s'\nmax_new_keys_per_address = 17\n\
            max_buffered_bytes = '2GiB'\nmax_buffered_bytes_per_address = '18MiB'";
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
            max_buffered_bytes: 2 << 30,
            max_buffered_bytes_per_address: 18 << 20,
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
    fn bytes_in_memory_have_room_for_the_largest_body() {
        const MIB: usize = 1 << 20;
        let load = |text: &str| load(&format!("upstream = 'http://a'\n{text}"));
        let read = |text: &str| {
            let limits = load(text).expect("valid").limits;
            (limits.max_buffered_bytes / MIB, limits.max_buffered_bytes_per_address / MIB)
        };
        assert_eq!(read(""), (512, 64));
        assert_eq!(read("[limits]\nmax_buffered_bytes = '32MiB'"), (32, 32));
        assert_eq!(read("[limits]\nmax_buffered_bytes_per_address = '1GiB'"), (1024, 1024));
        let large = "[[route]]\nmatch = '/large'\nmax_request_body = '900MiB'";
        assert_eq!(read(large), (900, 900));
        assert_eq!(read(&format!("[limits]\nmax_buffered_bytes = '900MiB'\n{large}")), (900, 900));
        for name in ["max_buffered_bytes", "max_buffered_bytes_per_address"] {
            let said =
                load(&format!("[limits]\n{name} = '899MiB'\n{large}")).expect_err("a mistake");
            let expected = format!(
                "3:{}: limits.{name}: must be at least the largest max_request_body, 943718400 bytes",
                name.len() + 4
            );
            assert!(said.to_string().contains(&expected), "{said}");
        }
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
            ("max_buffered_bytes = 0", "must be more than zero"),
            ("max_buffered_bytes = 'off'", "expected a size like \"512MiB\""),
            ("max_buffered_bytes_per_address = '1025GiB'", "must be at most 1024GiB"),
            ("max_buffered_bytes_per_address = 1048575", "the largest max_request_body, 1048576"),
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
