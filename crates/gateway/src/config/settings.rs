//! [`RouteSettings`]: what `[idempotency]` says for every route, and `[[route]]` again for one.

use std::time::Duration;

use http::header::SET_COOKIE;
use http::{HeaderName, Method};
use selfsame::{
    Completing, JsonPointer, KeyFormat, KeyMode, KeyRules, Mode, OnConflict, OnStoreError, Origin,
    Probe, Profile, ReplayStatus, ScopeKind, ServerErrors, StatusPattern, TenantLimit,
};
use selfsame_core::headers::IDEMPOTENCY_KEY;
use selfsame_core::{FingerprintForm, Recover};

use super::file::Section;
use super::statuses;
use super::tenants::TENANT;
use super::values::{
    COUNT, DURATION, DURATION_OR_OFF, KEY_LENGTH, LEASE, SIZE, SWITCH, TENANT_LIMIT, written,
};
use super::words::{
    COUNTED_HEADER, FINGERPRINT, FORMAT, HEADER, KEY, KEY_POINTER, METHOD, MODE, ON_CONFLICT,
    ON_STORE_ERROR, ORIGIN, POINTER, PROBE, PROFILE, RECOVER, REPLAY_ALSO, REPLAY_NEEDS,
    REPLAY_NEVER, REPLAY_STATUS, SCOPE, SERVER_ERRORS,
};

/// The least retention unless `allow_short_retention` is set.
const RETENTION_MIN: Duration = Duration::from_secs(60 * 60);

/// Default of `max_live_keys`: a tenant with a thousand new keys a second, for a day, stays below it.
const LIVE_KEYS_MAX: TenantLimit =
    TenantLimit { each: Some(100_000_000), anonymous: Some(10_000_000) };
/// Default of `max_claims`: half of all requests that may be under way by default.
const CLAIMS_MAX: TenantLimit = TenantLimit { each: Some(5_000), anonymous: Some(500) };
/// Default of `max_held_keys`.
const HELD_KEYS_MAX: TenantLimit = TenantLimit { each: Some(1_000), anonymous: Some(100) };

/// How many characters a UUID has.
const UUID_LEN: usize = 36;

/// How one route's requests are treated. Starts as the contract's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteSettings {
    /// `mode`: whether all this is enforced, or only observed.
    pub mode: Mode,
    /// `profile`: whose manners refusals have.
    pub profile: Profile,
    /// `key`: whether requests need one.
    pub key: KeyMode,
    /// `key_headers`: the headers a key may come in; at least one.
    pub key_headers: Vec<HeaderName>,
    /// `key_pointer`: where a JSON body may have the key instead; none where it is off.
    pub key_pointer: Option<JsonPointer>,
    /// `strict`: whether only quoted keys are taken from headers.
    pub strict: bool,
    /// `format`, `min_length` and `reject_older_than`: what is asked of keys.
    pub key_rules: KeyRules,
    /// `methods`, or those that a route's `match` names: the ones that are protected.
    pub methods: Vec<Method>,
    /// `tenant`: whose key it is.
    pub tenant: TenantSource,
    /// `scope`: where a key counts.
    pub scope: ScopeKind,
    /// `fingerprint`: how bodies are compared.
    pub fingerprint: FingerprintForm,
    /// `ignore`: what does not count in a JSON body.
    pub ignore: Vec<JsonPointer>,
    /// `headers`: those that are part of what a request is.
    pub fingerprint_headers: Vec<HeaderName>,
    /// `mismatch_hint`: whether a request under a used key is told in what it differs.
    pub mismatch_hint: bool,
    /// `recover`, with `upstream_idempotent` counted in: what a run without an outcome leads to.
    pub recover: Recover,
    /// `probe`, where `recover` says so: where the upstream is asked about a held key.
    pub probe: Option<Probe>,
    /// `complete_abandoned`, with `completer_after`, `completer_attempts` and `completer_headers`: how
    /// requests are run again whose clients do not come back, if they are.
    pub completing: Option<Completing>,
    /// `server_errors`, or what `profile` makes of it: what a 5xx of the handler's own leads to.
    pub server_errors: ServerErrors,
    /// `final_statuses`: answers that are kept, whatever is usual.
    pub final_statuses: Vec<StatusPattern>,
    /// `transient_statuses`: answers that free their key, whatever is usual.
    pub transient_statuses: Vec<StatusPattern>,
    /// `unknown_statuses`: answers of unknown outcome, whatever is usual.
    pub unknown_statuses: Vec<StatusPattern>,
    /// `on_conflict`: what becomes of a request whose key is being run.
    pub on_conflict: OnConflict,
    /// `wait_max`: how long a request may wait for that run.
    pub wait_max: Duration,
    /// `retention`: how long a key lives from its first use.
    pub retention: Duration,
    /// `remember`: how long after that a completed key is refused as used; zero where it is off.
    pub remember: Duration,
    /// `lease`: how long a claim lives without renewal.
    pub lease: Duration,
    /// `response_timeout`: how long a client waits; the work goes on.
    pub response_timeout: Duration,
    /// `run_timeout`: how long the work may take.
    pub run_timeout: Duration,
    /// `max_request_body`: the largest request that can be protected.
    pub request_bytes_max: usize,
    /// `max_response_body`: the largest answer that is kept.
    pub answer_bytes_max: usize,
    /// `max_live_keys`: how many keys of one tenant may live.
    pub live_keys_max: TenantLimit,
    /// `max_claims`: how many requests of one tenant may run at once.
    pub claims_max: TenantLimit,
    /// `max_held_keys`: limit of the keys of one tenant that are held.
    pub held_keys_max: TenantLimit,
    /// `stream`: whether answers are passed on as they come and never kept.
    pub stream: bool,
    /// `replay_needs`: asks the service of `[forward_auth]` for permission before a keyed request runs or is
    /// answered.
    pub needs_permission: bool,
    /// `replay_status`: which status a replay has.
    pub replay_status: ReplayStatus,
    /// `replay_set_cookie`: whether `Set-Cookie` is part of a replay.
    pub replay_set_cookie: bool,
    /// `replay_also`: headers that are part of a replay although they are about one moment.
    pub replay_also: Vec<HeaderName>,
    /// `replay_never`: headers that are never kept or given again.
    pub replay_never: Vec<HeaderName>,
    /// `expires_header`: whether answers say when their key expires.
    pub expires_header: bool,
    /// `cors_origins`: whose pages may read refusals.
    pub cors_origins: Vec<Origin>,
    /// `on_store_error`: what becomes of keyed requests while the store is down.
    pub on_store_error: OnStoreError,
}

/// Where a request's tenant comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantSource {
    /// The credential in `Authorization`.
    Authorization,
    /// The value of a header that is itself the credential, from any client.
    Credential(HeaderName),
    /// The value of a cookie.
    Cookie(String),
    /// The value of a header that trusted proxies set.
    Header(HeaderName),
    /// A claim of a token that was verified.
    Jwt {
        /// Which one.
        claim: String,
        /// Who made the token: another's callers are others.
        issuer: String,
    },
    /// What another service says.
    ForwardAuth {
        /// Where it says so: another header's callers are others.
        header: HeaderName,
    },
    /// The certificate that the client has shown.
    Mtls,
    /// Nowhere: everyone shares one key space.
    None,
}

impl Default for RouteSettings {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            profile: Profile::Ietf,
            key: KeyMode::Optional,
            key_headers: vec![IDEMPOTENCY_KEY],
            key_pointer: None,
            strict: false,
            key_rules: KeyRules::default(),
            methods: vec![Method::POST, Method::PATCH],
            tenant: TenantSource::Authorization,
            scope: ScopeKind::Tenant,
            fingerprint: FingerprintForm::Canonical,
            ignore: Vec::new(),
            fingerprint_headers: Vec::new(),
            mismatch_hint: false,
            recover: Recover::Auto,
            probe: None,
            completing: None,
            server_errors: ServerErrors::Retry,
            final_statuses: Vec::new(),
            transient_statuses: Vec::new(),
            unknown_statuses: Vec::new(),
            on_conflict: OnConflict::Reject,
            wait_max: Duration::from_secs(10),
            retention: Duration::from_secs(24 * 60 * 60),
            remember: Duration::ZERO,
            lease: Duration::from_secs(30),
            response_timeout: Duration::from_secs(60),
            run_timeout: Duration::from_secs(15 * 60),
            request_bytes_max: 1 << 20,
            answer_bytes_max: 1 << 20,
            live_keys_max: LIVE_KEYS_MAX,
            claims_max: CLAIMS_MAX,
            held_keys_max: HELD_KEYS_MAX,
            stream: false,
            needs_permission: false,
            replay_status: ReplayStatus::Same,
            replay_set_cookie: false,
            replay_also: Vec::new(),
            replay_never: Vec::new(),
            expires_header: true,
            cors_origins: Vec::new(),
            on_store_error: OnStoreError::Reject,
        }
    }
}

/// Settings as written, which a route takes over where it says nothing itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    /// As the file has them: `recover` is still without `upstream_idempotent`, `server_errors`
    /// without what the profile makes of it.
    pub(super) settings: RouteSettings,
    server_errors: Option<ServerErrors>,
    /// Whether `recover` is `"probe"`.
    asks_first: bool,
    upstream_idempotent: bool,
    complete_abandoned: bool,
    completing: Completing,
    allow_short_retention: bool,
}

impl Draft {
    /// These settings, as far as `section` does not change them.
    pub(super) fn changed_by(&self, section: &mut Section<'_>) -> Self {
        let mut draft = self.clone();
        let to = &mut draft.settings;
        section.set("mode", &MODE, &mut to.mode);
        section.set("profile", &PROFILE, &mut to.profile);
        section.set("key", &KEY, &mut to.key);
        section.set_filled_list("key_headers", &HEADER, &mut to.key_headers);
        section.set("key_pointer", &KEY_POINTER, &mut to.key_pointer);
        section.set("strict", &SWITCH, &mut to.strict);
        section.set("format", &FORMAT, &mut to.key_rules.format);
        section.set("min_length", &KEY_LENGTH, &mut to.key_rules.len_min);
        section.set("reject_older_than", &DURATION_OR_OFF, &mut to.key_rules.age_max);
        section.set_filled_list("methods", &METHOD, &mut to.methods);
        section.set("tenant", &TENANT, &mut to.tenant);
        section.set("scope", &SCOPE, &mut to.scope);
        section.set("fingerprint", &FINGERPRINT, &mut to.fingerprint);
        section.set_list("ignore", &POINTER, &mut to.ignore);
        section.set_list("headers", &COUNTED_HEADER, &mut to.fingerprint_headers);
        section.set("mismatch_hint", &SWITCH, &mut to.mismatch_hint);
        if let Some((recover, asks_first)) = section.get("recover", &RECOVER) {
            to.recover = recover;
            draft.asks_first = asks_first;
        }
        to.probe = section.get("probe", &PROBE).or(to.probe.take());
        section.set("upstream_idempotent", &SWITCH, &mut draft.upstream_idempotent);
        section.set("complete_abandoned", &SWITCH, &mut draft.complete_abandoned);
        section.set("completer_after", &DURATION, &mut draft.completing.after);
        section.set("completer_attempts", &COUNT, &mut draft.completing.attempts);
        section.set_list("completer_headers", &HEADER, &mut draft.completing.headers);
        let server_errors = section.get("server_errors", &SERVER_ERRORS);
        draft.server_errors = server_errors.or(draft.server_errors);
        statuses::read(to, section);
        section.set("on_conflict", &ON_CONFLICT, &mut to.on_conflict);
        section.set("wait_max", &DURATION, &mut to.wait_max);
        section.set("retention", &DURATION, &mut to.retention);
        section.set("remember", &DURATION_OR_OFF, &mut to.remember);
        section.set("allow_short_retention", &SWITCH, &mut draft.allow_short_retention);
        section.set("lease", &LEASE, &mut to.lease);
        section.set("response_timeout", &DURATION, &mut to.response_timeout);
        section.set("run_timeout", &DURATION, &mut to.run_timeout);
        section.set("max_request_body", &SIZE, &mut to.request_bytes_max);
        section.set("max_response_body", &SIZE, &mut to.answer_bytes_max);
        section.set("max_live_keys", &TENANT_LIMIT, &mut to.live_keys_max);
        section.set("max_claims", &TENANT_LIMIT, &mut to.claims_max);
        section.set("max_held_keys", &TENANT_LIMIT, &mut to.held_keys_max);
        section.set("stream", &SWITCH, &mut to.stream);
        section.set("replay_needs", &REPLAY_NEEDS, &mut to.needs_permission);
        section.set("replay_status", &REPLAY_STATUS, &mut to.replay_status);
        section.set("replay_set_cookie", &SWITCH, &mut to.replay_set_cookie);
        section.set_list("replay_also", &REPLAY_ALSO, &mut to.replay_also);
        section.set_list("replay_never", &REPLAY_NEVER, &mut to.replay_never);
        section.set("expires_header", &SWITCH, &mut to.expires_header);
        section.set_list("cors_origins", &ORIGIN, &mut to.cors_origins);
        section.set("on_store_error", &ON_STORE_ERROR, &mut to.on_store_error);
        draft.check(section);
        draft
    }

    /// Whether the settings fit together.
    fn check(&self, section: &mut Section<'_>) {
        let RouteSettings { retention, response_timeout, run_timeout, .. } = self.settings;
        if retention < RETENTION_MIN && !self.allow_short_retention {
            let text = format!(
                "retention ({}) is shorter than 1h, and a retry after it runs again; make it \
                 longer, or set allow_short_retention = true",
                written(retention)
            );
            section.clash(&["retention", "allow_short_retention"], text);
        }
        let KeyRules { format, len_min, .. } = self.settings.key_rules;
        if format != KeyFormat::Any && len_min > UUID_LEN {
            let text = format!(
                "a UUID has {UUID_LEN} characters, so with min_length = {len_min} none is taken"
            );
            section.clash(&["format", "min_length"], text);
        }
        let is_raw = self.settings.fingerprint == FingerprintForm::Raw;
        if is_raw && !self.settings.ignore.is_empty() {
            let text = "with fingerprint = \"raw\" everything counts; write ignore = [] here, or leave \
                        fingerprint out";
            section.clash(&["fingerprint", "ignore"], text);
        }
        if response_timeout > run_timeout {
            let text = format!(
                "response_timeout ({}) must not be longer than run_timeout ({})",
                written(response_timeout),
                written(run_timeout)
            );
            section.clash(&["response_timeout", "run_timeout"], text);
        }
        if self.asks_first && self.settings.probe.is_none() {
            let text = "nothing says where to ask; set probe = \"GET /idempotency/{key}\"";
            section.clash(&["recover", "probe"], text);
        }
        self.check_credential(section);
        self.check_replay_headers(section);
    }

    /// A credential is neither a key nor part of what is compared.
    fn check_credential(&self, section: &mut Section<'_>) {
        let RouteSettings { tenant, key_headers, fingerprint_headers, .. } = &self.settings;
        let TenantSource::Credential(name) = tenant else { return };
        if key_headers.contains(name) {
            let text = format!("{name} cannot be both the caller's credential and the key");
            section.clash(&["tenant", "key_headers"], text);
        }
        if fingerprint_headers.contains(name) {
            let text = format!("{name} is the caller's credential and never part of a fingerprint");
            section.clash(&["tenant", "headers"], text);
        }
    }

    /// One table that says two things of a header is a mistake. A route that says the opposite of
    /// `[idempotency]` is none: what is never replayed goes first.
    fn check_replay_headers(&self, section: &mut Section<'_>) {
        let RouteSettings { replay_set_cookie, replay_also, replay_never, .. } = &self.settings;
        let cookie = if *replay_set_cookie { vec![SET_COOKIE] } else { Vec::new() };
        for (wish, names) in [("replay_also", replay_also), ("replay_set_cookie", &cookie)] {
            let says = |name| section.blame(&[name]).is_some();
            let clash = names.iter().find(|&name| replay_never.contains(name));
            if let Some(name) = clash.filter(|_| says(wish) && says("replay_never")) {
                let text = format!("{wish} and replay_never disagree about {name}");
                section.clash(&[wish, "replay_never"], text);
            }
        }
    }

    /// Whether requests are kept, which only an encrypted store does.
    pub(super) fn keeps_requests(&self) -> bool {
        self.complete_abandoned
    }

    /// The settings as they count.
    pub(super) fn settled(self) -> RouteSettings {
        let recover = match self.settings.recover {
            Recover::Auto if self.upstream_idempotent => Recover::Resume,
            written => written,
        };
        let server_errors = self.server_errors.unwrap_or(match self.settings.profile {
            Profile::Ietf => ServerErrors::Retry,
            Profile::Stripe => ServerErrors::Keep,
        });
        let probe = self.settings.probe.filter(|_| self.asks_first);
        let may_run = recover != Recover::Hold || probe.is_some();
        let completing = (self.complete_abandoned && may_run).then_some(self.completing);
        RouteSettings { recover, probe, completing, server_errors, ..self.settings }
    }
}
