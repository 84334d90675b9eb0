//! The laws of `selfsame-core` over PostgreSQL, and what that store promises beyond them.
#![cfg(feature = "postgres")]

mod support;

use support::PostgresBench;

selfsame_core::conformance_laws! { durable mod laws: PostgresBench::new }
