//! The nouns of Selfsame, in the order of a request's life, and the laws a store obeys.
//!
//! A client sends a [`Key`]; it belongs to a [`Tenant`] within a [`Scope`], which together give
//! the [`RecordId`]. The [`Fingerprint`] says which request the key stands for. A [`Store`]
//! grants the right to run as a [`Lease`], wrapped in a [`Claim`] that knows whether the work
//! has begun, and keeps the [`Record`] from which every retry is answered.
//!
//! Nothing here reads a clock, opens a socket or starts a task: time comes from the store.

mod answer;
mod bell;
mod claim;
mod clock;
mod decide;
mod derived_key;
mod digest;
mod error;
mod fingerprint;
pub mod headers;
mod journal;
mod json_pointer;
mod keepsake;
mod key;
mod key_rules;
mod lease;
mod problem;
mod record;
mod scope;
mod store;
pub mod wire;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use answer::{Answer, AnswerBody, Checkpoint, Kept};
pub use bell::{Bell, Sleepers};
pub use claim::{Claim, Releaser, Sent, Started, Unstarted};
pub use clock::{Clock, Timestamp};
pub use decide::{Decision, Start, answered, claim, decide};
pub use digest::Secret;
pub use error::{StoreError, StoreErrorKind};
pub use fingerprint::{
    CountedHeader, Difference, Fingerprint, FingerprintForm, FingerprintRules, Outline,
    RequestFacts,
};
pub use journal::Phase;
pub use json_pointer::{InvalidPointer, JsonPointer};
pub use keepsake::{Keepsake, KeptRequest, Note};
pub use key::{InvalidKey, Key};
pub use key_rules::{KeyFormat, KeyRules};
pub use lease::{AttemptId, Birth, Fence, Fenced, Lease, Recorded};
pub use problem::{Problem, ProblemDetails};
pub use record::{
    Due, Erased, Label, Record, Recover, Release, Resolution, Resolved, State, StateName, Verdict,
};
pub use scope::{RecordId, Scope, Tenant, TenantTag};
pub use store::{
    Ask, Claimed, Count, Facts, Filter, Find, FullStore, Grant, Inspect, Replay, Store, Sweep,
    Swept, Whose,
};
