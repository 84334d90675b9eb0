//! Makes retries safe: the same key gives the same answer, and the work behind it is done once.
//!
//! A client sends `Idempotency-Key`. Behind this layer the first request with a key runs, and
//! every retry gets the recorded answer, byte for byte, through crashes, races and lost replies.
//!
//! ```
//! use std::sync::Arc;
//! use axum::{Router, routing::post};
//! use selfsame::{Idempotency, Policy, stores::MemoryStore};
//!
//! # async fn example() -> Result<(), selfsame::StoreError> {
//! let idempotency = Idempotency::open(Arc::new(MemoryStore::new())).await?;
//! let app: Router = Router::new()
//!     .route("/charges", post(|| async { "charged" }))
//!     .layer(idempotency.layer(Policy::new()));
//! # Ok(())
//! # }
//! ```
//!
//! What a handler may want to know of its own run is in the request's extensions as [`Run`]; what
//! became of a request is in the response's extensions as [`Served`].
//!
//! Services on the PostgreSQL store (feature `postgres`) can do their work in `phases` that commit in
//! their own transactions.
//!
//! Requests are counted through the `metrics` facade. Install its recorder before the first request:
//! what is counted often is looked up once, and would stay silent.

mod abandoned;
mod background;
mod body;
mod collect;
mod delivery;
mod dialect;
mod engine;
mod expires;
mod grpc;
mod landing;
mod layer;
mod look_up;
mod observe;
mod once;
mod outcome;
mod patience;
#[cfg(feature = "postgres")]
pub mod phases;
mod policy;
mod prefer;
mod probe;
mod quota;
mod reject;
mod run;
pub mod seal;
mod service;
mod spool;
mod steps;
pub mod stores;
mod suspicion;
mod telemetry;
pub mod tenant;
mod timing;
mod wait;

pub use abandoned::{Abandoned, Completing, Ending};
pub use body::{BoxError, RequestBody, ResponseBody};
pub use dialect::{Dialect, InvalidOrigin, Origin, Profile};
pub use engine::Idempotency;
pub use layer::IdempotencyLayer;
pub use once::{Once, OnceError};
pub use outcome::{Outcome, Served};
pub use policy::{
    KeyMode, Mode, OnConflict, OnStoreError, Policy, ReplayStatus, ScopeKind, ServerErrors, Work,
};
pub use probe::{InvalidProbe, Probe};
pub use run::{Run, SaveError};
pub use selfsame_core::{
    Answer, Checkpoint, FingerprintForm, InvalidKey, InvalidPointer, JsonPointer, Key, KeyFormat,
    KeyRules, Lease, Problem, ProblemDetails, Recover, Secret, StoreError, Tenant,
};
pub use service::IdempotencyService;
pub use spool::Spool;
