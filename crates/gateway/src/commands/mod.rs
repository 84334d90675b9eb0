//! What the binary can do, one file each.

mod admin_client;
pub(crate) mod config;
pub(crate) mod contract;
pub(crate) mod demo;
pub(crate) mod keys;
pub(crate) mod serve;
pub(crate) mod store;
