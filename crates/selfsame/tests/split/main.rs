//! The laws of `selfsame-core` over claims in Redis with answers in PostgreSQL, and what is lost and kept beyond them.
#![cfg(all(feature = "redis", feature = "postgres"))]

mod away;
mod leases;
mod losses;
mod people;
#[path = "../postgres/support.rs"]
#[expect(dead_code, reason = "the tests of that store alone need all of it")]
mod postgres;
#[path = "../redis/support.rs"]
#[expect(dead_code, reason = "the tests of that store alone need all of it")]
mod redis;
mod rivals;
#[path = "../shared/crashes.rs"]
mod shared_crashes;
#[path = "../shared/leases.rs"]
#[expect(dead_code, reason = "stores of one kind need one test of each")]
mod shared_leases;
#[path = "../shared/rivals.rs"]
mod shared_rivals;
#[path = "../shared/waits.rs"]
mod shared_waits;
mod support;

use support::SplitBench;

selfsame_core::conformance_laws! { durable mod laws: SplitBench::new }
