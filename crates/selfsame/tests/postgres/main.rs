//! The laws of `selfsame-core` over PostgreSQL, and what that store promises beyond them.
#![cfg(feature = "postgres")]

mod audit;
mod crashes;
mod damage;
mod erasing;
mod gate;
mod leases;
mod opening;
mod phases;
mod pooler;
mod rivals;
mod rows;
#[path = "../shared/crashes.rs"]
mod shared_crashes;
#[path = "../shared/leases.rs"]
mod shared_leases;
#[path = "../shared/rivals.rs"]
mod shared_rivals;
#[path = "../shared/waits.rs"]
mod shared_waits;
mod support;
mod sweeping;
mod tls;
mod transfer;
mod wakes;

use pooler::PooledBench;
use support::PostgresBench;

selfsame_core::conformance_laws! { durable mod laws: PostgresBench::new }
selfsame_core::conformance_laws! { durable mod pooled_laws: PooledBench::new }
