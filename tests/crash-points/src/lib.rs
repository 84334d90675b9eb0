//! Power cuts at every point of a workload, and what the embedded store makes of what they leave.
//!
//! 1. A workload runs under a recorder, `recorder.c`, which notes every change of the store's files
//!    in an event log, and the workload's notes of what was acknowledged ([`workload`],
//!    [`recorder`], [`event`]).
//! 2. A model of a disk goes through the event log, and at each point makes what a power cut may leave:
//!    any part of what was not synced, torn and in any order ([`disk`], [`crash`]).
//! 3. The store opens each, and is compared with a model of what was acknowledged ([`check`],
//!    [`model`], [`explore`]).
//!
//! The store is known by its public API alone, and its files only as the recorder saw them.

pub mod body;
mod caller;
pub mod campaign;
pub mod check;
pub mod crash;
pub mod disk;
pub mod event;
pub mod explore;
pub mod faults;
pub mod model;
pub mod op;
pub mod place;
pub mod random;
pub mod recorder;
mod seen;
pub mod story;

pub mod tamper;
pub mod workload;
