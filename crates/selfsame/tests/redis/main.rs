//! The laws of `selfsame-core` over Redis, and what that store promises beyond them.
#![cfg(feature = "redis")]

mod at_once;
mod cluster;
mod crashes;
mod damage;
mod failover;
mod keeping;
mod leases;
mod losses;
mod memory;
mod opening;
mod relay;
mod replicas;
mod rivals;
mod sentinel;
#[path = "../shared/crashes.rs"]
mod shared_crashes;
#[path = "../shared/leases.rs"]
mod shared_leases;
#[path = "../shared/rivals.rs"]
mod shared_rivals;
#[path = "../shared/waits.rs"]
mod shared_waits;
mod support;
mod wakes;

use support::RedisBench;

selfsame_core::conformance_laws! { durable mod laws: RedisBench::new }
