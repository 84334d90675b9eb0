//! [`Policy`]: what one route promises, and its limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, Method};
use selfsame_core::headers::{IDEMPOTENCY_KEY, differs_between_retries};
use selfsame_core::{FingerprintForm, JsonPointer, KeyRules, Problem, Recover, Tenant};

use crate::abandoned::Completing;
use crate::dialect::{Dialect, Profile};
use crate::probe::Probe;
use crate::quota::{TenantLimit, TenantLimits};
use crate::statuses::{StatusPattern, Statuses};
use crate::tenant::{self, MissingTenant};

/// Whether a route's requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyMode {
    /// A request without one is refused.
    Required,
    /// A request without one passes unprotected.
    Optional,
    /// Keys are not looked at.
    Off,
}

/// Whether a route's promises are kept, or only watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are kept.
    Enforce,
    /// Every request passes as it came; what would have become of it is counted and recorded.
    Observe,
}

/// Where a key counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeKind {
    /// One key space for a tenant.
    Tenant,
    /// A key space for each method and route of a tenant.
    Endpoint,
}

/// What becomes of a key whose handler answered 500 or another 5xx of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerErrors {
    /// A retry runs again.
    Retry,
    /// The error is kept and given again.
    Keep,
    /// A person decides.
    Hold,
}

/// What becomes of a keyed request while the store is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStoreError {
    /// It is refused, and nothing runs.
    Reject,
    /// It runs unprotected.
    Bypass,
}

/// Which status a replay has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayStatus {
    /// That of the first answer.
    Same,
    /// 200 where the first answer was 201 or 202: nothing was created or begun this time.
    Ok,
}

/// What becomes of a request whose key is being run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// It is refused, unless its client asks to wait (`Prefer: wait=N`).
    Reject,
    /// It waits for that run's end.
    Wait,
}

/// Where the work is done, which tells whether it can outlive the call to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// In this process: a handler that returned, panicked or was dropped is over.
    Here,
    /// Somewhere else: what was sent may still be going on.
    Elsewhere,
}

/// Longest time that can be set, a hundred years; a longer one becomes this. Any later moment may be one that no
/// clock can tell.
const TIME_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Shortest lease that can be set.
const LEASE_MIN: Duration = Duration::from_millis(10);

pub(crate) type TenantSource = dyn Fn(&Parts) -> Result<Tenant, MissingTenant> + Send + Sync;

/// What one route promises, and its limits. Starts as the contract's defaults.
#[derive(Clone)]
pub struct Policy {
    pub(crate) route: Arc<str>,
    pub(crate) mode: Mode,
    pub(crate) key: KeyMode,
    pub(crate) key_headers: Vec<HeaderName>,
    pub(crate) key_pointer: Option<JsonPointer>,
    pub(crate) strict_keys: bool,
    pub(crate) key_rules: KeyRules,
    pub(crate) methods: Vec<Method>,
    pub(crate) tenant: Arc<TenantSource>,
    pub(crate) scope: ScopeKind,
    pub(crate) fingerprint: FingerprintForm,
    pub(crate) ignore: Vec<JsonPointer>,
    pub(crate) fingerprint_headers: Vec<HeaderName>,
    pub(crate) fingerprint_authority: bool,
    pub(crate) mismatch_hint: bool,
    pub(crate) recover: Recover,
    pub(crate) probe: Option<Probe>,
    pub(crate) completing: Option<Completing>,
    pub(crate) server_errors: ServerErrors,
    pub(crate) statuses: Statuses,
    pub(crate) tenant_limits: TenantLimits,
    pub(crate) on_conflict: OnConflict,
    pub(crate) wait_max: Duration,
    pub(crate) retention: Duration,
    pub(crate) remember: Duration,
    pub(crate) lease: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) run_timeout: Duration,
    pub(crate) request_bytes_max: usize,
    pub(crate) answer_bytes_max: usize,
    pub(crate) stream: bool,
    pub(crate) replay_status: ReplayStatus,
    pub(crate) replay_set_cookie: bool,
    pub(crate) replay_also: Vec<HeaderName>,
    pub(crate) replay_never: Vec<HeaderName>,
    pub(crate) expires_header: bool,
    pub(crate) on_store_error: OnStoreError,
    pub(crate) log_keys: bool,
    pub(crate) work: Work,
    pub(crate) dialect: Dialect,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            route: "default".into(),
            mode: Mode::Enforce,
            key: KeyMode::Optional,
            key_headers: vec![IDEMPOTENCY_KEY],
            key_pointer: None,
            strict_keys: false,
            key_rules: KeyRules::default(),
            methods: vec![Method::POST, Method::PATCH],
            tenant: Arc::new(tenant::authorization),
            scope: ScopeKind::Tenant,
            fingerprint: FingerprintForm::Canonical,
            ignore: Vec::new(),
            fingerprint_headers: Vec::new(),
            fingerprint_authority: false,
            mismatch_hint: false,
            recover: Recover::Resume,
            probe: None,
            completing: None,
            server_errors: ServerErrors::Retry,
            statuses: Statuses::default(),
            tenant_limits: TenantLimits::default(),
            on_conflict: OnConflict::Reject,
            wait_max: Duration::from_secs(10),
            retention: Duration::from_secs(24 * 60 * 60),
            remember: Duration::ZERO,
            lease: Duration::from_secs(30),
            response_timeout: Duration::from_secs(60),
            run_timeout: Duration::from_secs(15 * 60),
            request_bytes_max: 1024 * 1024,
            answer_bytes_max: 1024 * 1024,
            stream: false,
            replay_status: ReplayStatus::Same,
            replay_set_cookie: false,
            replay_also: Vec::new(),
            replay_never: Vec::new(),
            expires_header: true,
            on_store_error: OnStoreError::Reject,
            log_keys: false,
            work: Work::Here,
            dialect: Dialect::new(Profile::Ietf, Problem::CONTRACT_PAGE),
        }
    }
}

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        impl Policy {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $name: $type) -> Self {
                self.$name = $name;
                self
            })*
        }
    };
}

settings! {
    /// Whether the promises are kept or only watched: kept, unless set.
    mode: Mode;
    /// Whether requests need a key. Optional unless set.
    key: KeyMode;
    /// The headers a key may come in; more than one of them in a request is an error.
    key_headers: Vec<HeaderName>;
    /// Where a JSON body may have the key instead, such as `/idempotency_key`. A key there beside one
    /// in a header is an error. The body is then read before anything else, as long as it can be
    /// JSON: one that is larger than `request_bytes_max` is refused, because its key cannot be known.
    key_pointer: Option<JsonPointer>;
    /// Whether only quoted keys (RFC 9651) are taken from headers.
    strict_keys: bool;
    /// What is asked of keys beyond being keys: nothing, unless set.
    key_rules: KeyRules;
    /// The methods that are protected: `POST` and `PATCH` unless set.
    methods: Vec<Method>;
    /// Where a key counts: for the tenant unless set.
    scope: ScopeKind;
    /// How a body is compared: by its meaning, unless set.
    fingerprint: FingerprintForm;
    /// What does not count in a JSON body, whether it is there or not, such as `/sent_at`. Where an
    /// array loses an element, those behind it count as if it had never been there. In a body
    /// that is compared byte by byte, everything counts.
    ignore: Vec<JsonPointer>;
    /// Whether the host and port that a request was sent to are part of what it is: for services
    /// that do another thing for another host.
    fingerprint_authority: bool;
    /// Whether a request under a used key is told in what it differs from the first: by the names of
    /// the members of its JSON body, never by values. Records then keep short digests of each
    /// member. Not for callers who share a tenant with others.
    mismatch_hint: bool;
    /// What a run without an outcome leads to: another run, unless set.
    recover: Recover;
    /// Where the inner service is asked about a key that is held, before its retry is refused: `200` is
    /// the answer of the work that was done, `404` means that it was not and can run, anything else
    /// tells nothing. Nobody is asked unless set.
    probe: Option<Probe>;
    /// How requests are run again whose clients do not come back: not at all unless set. Records then
    /// keep the request until it has an outcome, encrypted: without a [`Seal`](crate::seal::Seal) with
    /// keys nothing is kept. See [`IdempotencyService::see_to`](crate::IdempotencyService::see_to).
    completing: Option<Completing>;
    /// What a 5xx of the handler's own leads to: another run, unless set.
    server_errors: ServerErrors;
    /// What becomes of a request whose key is being run: refused, unless set.
    on_conflict: OnConflict;
    /// The largest request body that can be protected: 1 MiB unless set.
    request_bytes_max: usize;
    /// The largest answer that is kept: 1 MiB unless set.
    answer_bytes_max: usize;
    /// Whether answers are streams, passed on as they come and never kept.
    stream: bool;
    /// Which status a replay has: that of the first answer, unless set.
    replay_status: ReplayStatus;
    /// Whether `Set-Cookie` is part of a replay.
    replay_set_cookie: bool;
    /// Headers that are part of a replay although they are about one moment, such as
    /// `X-Request-Id`. Those of one connection, the length and `Set-Cookie` are not affected.
    replay_also: Vec<HeaderName>;
    /// Headers and trailers that are never kept or given again, whatever else is said of them.
    replay_never: Vec<HeaderName>;
    /// Whether answers say when their key expires (`Idempotency-Expires`). They do unless set.
    expires_header: bool;
    /// What becomes of keyed requests while the store is down: refused, unless set.
    on_store_error: OnStoreError;
    /// Whether keys may appear in logs, beside the first characters of their record's id.
    log_keys: bool;
    /// Where the work is done: in this process, unless set.
    work: Work;
    /// How refusals are worded: as the IETF draft does, unless set.
    dialect: Dialect;
}

macro_rules! times {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        impl Policy {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $name: Duration) -> Self {
                self.$name = $name.min(TIME_MAX);
                self
            })*
        }
    };
}

times! {
    /// Limit of a request's wait for the run of its key: 10 seconds unless set.
    wait_max;
    /// Life of a key from its first use: 24 hours unless set.
    retention;
    /// Time after its expiry for which a key whose work was done is refused as used, and not run again:
    /// not at all unless set.
    remember;
    /// Limit of a client's wait for its answer: 60 seconds unless set. The work goes on.
    response_timeout;
    /// Limit of the work: 15 minutes unless set. Then its outcome is unknown.
    run_timeout;
}

impl Policy {
    /// The contract's defaults for a Rust service.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name of the route in metrics, logs and, for [`ScopeKind::Endpoint`], in a key's
    /// identity.
    #[must_use]
    pub fn route(mut self, route: impl Into<Arc<str>>) -> Self {
        self.route = route.into();
        self
    }

    /// Life of a claim without renewal: 30 seconds unless set. A shorter lease than 10 ms becomes one
    /// of 10 ms.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.clamp(LEASE_MIN, TIME_MAX);
        self
    }

    /// Headers that are part of what a request is. Those that may differ between retries of one
    /// request are left out: `Authorization`, `Date`, `User-Agent`, `traceparent`.
    #[must_use]
    pub fn fingerprint_headers(mut self, mut names: Vec<HeaderName>) -> Self {
        names.retain(|name| !differs_between_retries(name));
        // The order in which they were named is not part of what a request is.
        names.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        names.dedup();
        self.fingerprint_headers = names;
        self
    }

    /// Statuses whose answers are kept and replayed, whatever [`Outcome::of`](crate::Outcome::of) and
    /// `server_errors` make of them. A number goes before a class; a status in two lists is unknown
    /// before it is final, and final before it is transient. A handler's own word goes before all.
    #[must_use]
    pub fn final_statuses(mut self, statuses: Vec<StatusPattern>) -> Self {
        self.statuses.final_statuses = statuses;
        self
    }

    /// Statuses that free their key, so that a retry runs again. Success never does: the work was
    /// done. 401 and 403 leave no record of a first attempt.
    #[must_use]
    pub fn transient_statuses(mut self, statuses: Vec<StatusPattern>) -> Self {
        self.statuses.transient_statuses = statuses;
        self
    }

    /// Statuses after which nobody knows whether the work was done: `recover` decides.
    #[must_use]
    pub fn unknown_statuses(mut self, statuses: Vec<StatusPattern>) -> Self {
        self.statuses.unknown_statuses = statuses;
        self
    }

    /// How many keys of one tenant may live, over all routes: any number unless set. A request with
    /// one more is refused; each process counts those that it was the first to see.
    #[must_use]
    pub fn max_live_keys(mut self, most: impl Into<TenantLimit>) -> Self {
        self.tenant_limits.live_keys = most.into();
        self
    }

    /// How many requests of one tenant may run in this process at once, over all routes: any number
    /// unless set.
    #[must_use]
    pub fn max_claims(mut self, most: impl Into<TenantLimit>) -> Self {
        self.tenant_limits.claims = most.into();
        self
    }

    /// Limit of the keys of one tenant that are held, over all routes: none unless set. At it, requests with new
    /// keys are refused until a person has resolved some; no held key is ever dropped. Each process counts the keys
    /// that it saw becoming held, and asks the store before it refuses.
    #[must_use]
    pub fn max_held_keys(mut self, most: impl Into<TenantLimit>) -> Self {
        self.tenant_limits.held_keys = most.into();
        self
    }

    /// Where a request's tenant comes from: [`tenant::authorization`] unless set.
    #[must_use]
    pub fn tenant(
        mut self,
        tenant: impl Fn(&Parts) -> Result<Tenant, MissingTenant> + Send + Sync + 'static,
    ) -> Self {
        self.tenant = Arc::new(tenant);
        self
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("route", &self.route).finish_non_exhaustive()
    }
}
