//! Selfsame's faults over real processes and real sockets: a gateway that can be killed, stopped
//! and cut off, in front of an upstream whose ledger is the judge. Rows are those of docs/FAULTS.md.

mod admin;
mod browser;
mod bytes;
mod chaos;
mod client_leaves;
mod contract;
mod crash;
mod curl;
mod damage;
mod demo;
mod durability;
mod framing;
mod full_disk;
mod grpc;
mod harness;
mod hosts;
mod http2;
mod http2_upstream;
mod identity;
mod keys;
mod logs;
mod lost_answers;
mod meaning;
mod metrics;
mod observe;
mod others_bugs;
mod outcomes;
mod passing;
#[path = "../../crates/selfsame/tests/layer/payments.rs"]
mod payments;
mod postgres;
mod refusals;
mod retention;
mod reuse;
mod rivals;
mod shutdown;
mod slow;
mod smoke;
mod start;
mod streams;
mod takeover;
mod tenants;
mod unreachable;
mod waiting;
