//! Selfsame's faults over real processes and real sockets: a gateway that can be killed, stopped
//! and cut off, in front of an upstream whose ledger is the judge.

mod crash;
mod harness;
mod smoke;
