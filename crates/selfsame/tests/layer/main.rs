//! The tower layer, around services of its own kind: what it promises, and what it leaves alone.

mod abandoned;
mod admin;
mod answers;
mod buffers;
mod differences;
mod expires;
mod faulty;
mod frameworks;
mod grpc;
mod keys;
mod leases;
mod meaning;
mod new_keys;
mod observe;
mod owed;
mod panics;
mod payments;
mod quotas;
mod replays;
mod runs;
mod sealed;
mod store_faults;
mod support;
mod sweeping;
mod waiting;
