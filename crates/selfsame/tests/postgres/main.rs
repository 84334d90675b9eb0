//! The laws of `selfsame-core` over PostgreSQL, and what that store promises beyond them.
#![cfg(feature = "postgres")]

mod crashes;
mod damage;
mod opening;
mod rivals;
mod rows;
mod support;
mod sweeping;
mod tls;
mod wakes;

use support::PostgresBench;

selfsame_core::conformance_laws! { durable mod laws: PostgresBench::new }
