//! Ports for the servers that tests start.
//!
//! Port 0 gives one of those from which outgoing connections have theirs, too. Such a port may be taken
//! between the choice and the start of a server, or while the server is restarted. The ports here are below
//! that range.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;

/// First port of the range. It ends below 32768, where Linux begins with those of outgoing connections.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;
const TRIES: u32 = 1000;

/// A port of 127.0.0.1 on which nobody listens.
///
/// # Panics
///
/// If there is none.
pub fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    // Drawn at random: tests of several processes look for ports at the same time.
    let random = RandomState::new();
    let mut ports = (0..TRIES).map(|number| {
        let drawn = random.hash_one(number) % u64::from(COUNT);
        FIRST + u16::try_from(drawn).expect("below the count")
    });
    ports.find(is_free).expect("a free port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_not_those_of_outgoing_connections() {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        let range = range.expect("Linux tells its range");
        let lowest = range.split_whitespace().next().and_then(|port| port.parse::<u16>().ok());
        for _ in 0..100 {
            let port = free_port();
            assert!(Some(port) < lowest, "{port} is in {range}");
        }
    }
}
