//! The laws of `selfsame-core` over a durable store with Redis before it, and what that promises beyond them.
#![cfg(all(feature = "redis", feature = "postgres", feature = "embedded"))]

mod away;
mod cluster;
mod erasing;
#[path = "../shared/in_a_folder.rs"]
mod in_a_folder;
mod leases;
#[path = "../postgres/support.rs"]
#[expect(dead_code, reason = "the tests of that store alone need all of it")]
mod postgres;
mod replays;
mod rivals;
#[path = "../shared/leases.rs"]
#[expect(dead_code, reason = "stores of one kind need one test of each")]
mod shared_leases;
#[path = "../shared/rivals.rs"]
mod shared_rivals;
#[path = "../shared/waits.rs"]
mod shared_waits;
mod support;
mod wakes;

use in_a_folder::EmbeddedBench;
use postgres::PostgresBench;
use support::{Tiered, away, flushed, there};

selfsame_core::conformance_laws! {
    durable mod over_postgres: || Tiered::new(PostgresBench::new(), there)
}
selfsame_core::conformance_laws! {
    durable mod over_a_folder: || Tiered::new(EmbeddedBench::new(), there)
}
selfsame_core::conformance_laws! {
    durable mod while_redis_is_away: || Tiered::new(EmbeddedBench::new(), away)
}
selfsame_core::conformance_laws! {
    durable mod while_redis_forgets: || Tiered::new(EmbeddedBench::new(), flushed)
}
