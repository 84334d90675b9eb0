//! Selfsame's faults over real processes and real sockets: a gateway that can be killed, stopped
//! and cut off, in front of an upstream whose ledger is the judge.

mod crash;
mod durability;
mod harness;
mod smoke;
mod client_leaves;
mod keys;
mod meaning;
mod reuse;
mod rivals;
mod shutdown;
mod takeover;
mod unreachable;
mod lost_answers;
mod slow;
mod outcomes;
mod full_disk;
mod bytes;
mod streams;
mod tenants;
mod damage;
mod passing;
mod metrics;
mod start;
mod identity;
mod admin;
mod logs;
mod retention;
mod framing;
mod refusals;
mod others_bugs;
mod chaos;
mod demo;
