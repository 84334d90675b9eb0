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
//! A layer inside a nested axum router sees paths without their prefix. The feature `axum`, on by default, gives it the
//! whole path, so that `/v2/charges` is not taken for a retry of `/v1/charges`; see [`OriginalUri`].
//!
//! What a handler may want to know of its own run is in the request's extensions as [`Run`]; what
//! became of a request is in the response's extensions as [`Served`].
//!
//! Services on the PostgreSQL store (feature `postgres`) can do their work in `phases` that commit in
//! their own transactions.
//!
//! Expired records are removed in the background: once a minute, unless [`Sweeping`] says otherwise.
//!
//! Held keys are listed and resolved by [`admin`].
//!
//! Requests are counted through the `metrics` facade. Install its recorder before the first request:
//! what is counted often is looked up once, and would stay silent.

mod abandoned;
pub mod admin;
mod background;
mod body;
mod body_buffer;
mod buffer_limit;
mod collect;
mod delivery;
mod dialect;
mod engine;
mod expires;
mod grpc;
mod landing;
mod layer;
mod log_throttle;
mod look_up;
mod new_keys;
mod observe;
mod once;
mod original_uri;
mod outcome;
mod patience;
#[cfg(feature = "postgres")]
pub mod phases;
mod policy;
mod prefer;
mod private_files;
mod probe;
mod quota;
mod reject;
mod renewals;
mod run;
mod running;
pub mod seal;
mod service;
mod spool;
mod statuses;
mod steps;
mod store_budget;
pub mod stores;
mod suspicion;
mod sweeping;
mod telemetry;
pub mod tenant;
mod timing;
mod wait;

pub use abandoned::{Abandoned, Completing, Ending};
pub use body::{BoxError, RequestBody, ResponseBody};
pub use buffer_limit::{BufferAllowance, BufferExcess, BufferLimit};
pub use dialect::{Dialect, InvalidOrigin, Origin, Profile};
pub use engine::Idempotency;
pub use layer::IdempotencyLayer;
#[doc(hidden)]
pub use log_throttle::LogThrottle;
pub use new_keys::{NewKeyAllowance, NewKeyLimit};
pub use once::{Once, OnceError};
pub use original_uri::OriginalUri;
pub use outcome::{Outcome, Served};
pub use policy::{
    KeyMode, Mode, OnConflict, OnStoreError, Policy, ReplayStatus, ScopeKind, ServerErrors, Work,
};
pub use probe::{InvalidProbe, Probe};
pub use quota::TenantLimit;
pub use run::{Run, SaveError};
pub use selfsame_core::{
    Answer, Checkpoint, FingerprintForm, InvalidKey, InvalidPointer, JsonPointer, Key, KeyFormat,
    KeyRules, Lease, Problem, ProblemDetails, Recover, Secret, StoreError, Tenant,
};
pub use service::IdempotencyService;
pub use spool::{Spool, Spooled};
pub use statuses::{InvalidStatus, StatusPattern};
pub use store_budget::StoreBudget;
pub use sweeping::Sweeping;
