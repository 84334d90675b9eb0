//! A gateway process, an upstream with a ledger, and a client that can misbehave.

mod balancer;
mod browser;
mod client;
mod command;
mod disk;
mod frames;
mod gate;
mod gateway;
mod http2;
mod ledger;
mod machine;
mod message;
mod network;
mod packages;
mod problem;
mod random;
mod records;
mod relay;

pub(crate) use balancer::Balancer;
pub(crate) use browser::Browser;
pub(crate) use client::{Answer, Request, read_up_to};
pub(crate) use command::{Ended, run_to_end};
pub(crate) use disk::SmallDisk;
pub(crate) use frames::{
    CONTINUATION, DATA, Frame, GOAWAY, HEADERS, PREFACE, RST_STREAM, RawUpstream, goaway, headers,
    packed, reset,
};
pub(crate) use gate::Gate;
pub(crate) use gateway::{Gateway, Setup, binary};
pub(crate) use http2::{Http2, connect_from, read};
pub(crate) use ledger::{Effect, Ledger, Then, reply};
pub(crate) use machine::Machine;
pub(crate) use packages::{with_node_packages, with_python_packages};
pub(crate) use random::Random;
pub(crate) use records::{assert_whole, copied};
pub(crate) use relay::Relay;

use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Whether there is time for more rounds: `./check --long`.
pub(crate) fn is_long() -> bool {
    std::env::var_os("SELFSAME_LONG").is_some()
}

/// Waits until `condition` gives something; fails the test, naming `what`, if it never does.
pub(crate) fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    let found = within_patience(condition);
    found.unwrap_or_else(|| panic!("{what} did not happen within {PATIENCE:?}"))
}

/// Waits until `condition` gives something, but not for ever.
pub(crate) fn within_patience<T>(condition: impl FnMut() -> Option<T>) -> Option<T> {
    within(PATIENCE, condition)
}

/// The same, for so long.
#[expect(clippy::disallowed_methods, reason = "the gateway is another process: its time is real")]
pub(crate) fn within<T>(patience: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if begun.elapsed() >= patience {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
