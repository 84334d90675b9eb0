//! What the binary can do, one file each.

pub(crate) mod config;
pub(crate) mod contract;
pub(crate) mod demo;
pub(crate) mod keys;
pub(crate) mod serve;
pub(crate) mod store;
