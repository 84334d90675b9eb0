//! The contract for programs. Its shape is documented, and stays: names may be added to it, and
//! whatever else must change makes another `version`.

use std::time::Duration;

use http::{HeaderName, Method};
use selfsame::{
    JsonPointer, Key, KeyFormat, KeyMode, KeyRules, OnConflict, OnStoreError, Profile, Recover,
    ReplayStatus, ScopeKind, ServerErrors, StatusPattern,
};
use selfsame_core::FingerprintForm;
use selfsame_core::headers::{IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, X_SHOULD_RETRY};
use serde::Serialize;

use super::problems::Entry;
use super::{Contract, words};
use crate::config::{RouteSettings, TenantSource};

const VERSION: u32 = 1;

pub(super) fn render(contract: &Contract) -> String {
    let view = View {
        version: VERSION,
        key: KeyView { characters_min: 1, characters_max: Key::LEN_MAX },
        replayed_header: words::header(&IDEMPOTENT_REPLAYED),
        expires_header: words::header(&IDEMPOTENCY_EXPIRES),
        should_retry_header: words::header(&X_SHOULD_RETRY),
        default: Rules::of(&contract.defaults),
        routes: contract
            .routes
            .iter()
            .map(|route| RouteView {
                host: route.host.as_ref().map(ToString::to_string),
                path: &route.pattern,
                rules: Rules::of(&route.settings),
            })
            .collect(),
        problems: contract
            .problems
            .iter()
            .map(|entry| ProblemView::of(entry, &contract.address))
            .collect(),
        page: &contract.address,
        status_page: contract.status.as_deref(),
    };
    serde_json::to_string_pretty(&view).expect("plain values are JSON") + "\n"
}

#[derive(Serialize)]
struct View<'a> {
    version: u32,
    page: &'a str,
    /// None where nobody may ask.
    status_page: Option<&'a str>,
    key: KeyView,
    replayed_header: String,
    expires_header: String,
    should_retry_header: String,
    default: Rules<'a>,
    routes: Vec<RouteView<'a>>,
    problems: Vec<ProblemView>,
}

#[derive(Serialize)]
struct KeyView {
    characters_min: usize,
    characters_max: usize,
}

#[derive(Serialize)]
struct RouteView<'a> {
    /// None where any host will do.
    host: Option<String>,
    path: &'a str,
    #[serde(flatten)]
    rules: Rules<'a>,
}

#[derive(Serialize)]
struct Rules<'a> {
    profile: &'static str,
    methods: Vec<&'a str>,
    key: &'static str,
    key_headers: Vec<String>,
    key_pointer: Option<&'a str>,
    key_quoted: bool,
    key_format: &'static str,
    key_characters_min: usize,
    key_age_max_ms: u64,
    tenant: TenantView<'a>,
    scope: &'static str,
    retention_ms: u64,
    remember_ms: u64,
    compared_by: &'static str,
    ignored_members: Vec<&'a str>,
    compared_headers: Vec<String>,
    names_differences: bool,
    on_conflict: &'static str,
    wait_max_ms: u64,
    server_errors: &'static str,
    final_statuses: Vec<String>,
    transient_statuses: Vec<String>,
    unknown_statuses: Vec<String>,
    interrupted: &'static str,
    completes_abandoned: bool,
    unprotected_without_store: bool,
    created_replayed_as_ok: bool,
    replays_set_cookie: bool,
    headers_also_replayed: Vec<String>,
    headers_never_replayed: Vec<String>,
    tells_expiry: bool,
    streams: bool,
    request_bytes_max: usize,
    answer_bytes_max: usize,
    live_keys_max: Option<u32>,
    running_max: Option<u32>,
    held_keys_max: Option<u32>,
    anonymous_live_keys_max: Option<u32>,
    anonymous_running_max: Option<u32>,
    anonymous_held_keys_max: Option<u32>,
    answer_timeout_ms: u64,
}

#[derive(Serialize)]
struct TenantView<'a> {
    from: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

/// By the profile of the route.
#[derive(Serialize)]
struct StatusView {
    ietf: u16,
    stripe: u16,
}

#[derive(Serialize)]
struct ProblemView {
    slug: &'static str,
    #[serde(rename = "type")]
    kind: String,
    status: StatusView,
    title: &'static str,
    retryable: Option<bool>,
    retry_after: bool,
    used: bool,
    meaning: String,
    action: String,
}

impl<'a> Rules<'a> {
    /// A new setting does not compile until it is told here, or known to be none of clients'
    /// business.
    fn of(settings: &'a RouteSettings) -> Self {
        let RouteSettings {
            profile,
            mode: _,
            key,
            key_headers,
            key_pointer,
            strict,
            key_rules: KeyRules { format, len_min, age_max },
            methods,
            tenant,
            scope,
            fingerprint,
            ignore,
            fingerprint_headers,
            mismatch_hint,
            recover,
            probe,
            completing,
            server_errors,
            final_statuses,
            transient_statuses,
            unknown_statuses,
            on_conflict,
            wait_max,
            retention,
            remember,
            lease: _,
            response_timeout,
            run_timeout: _,
            request_bytes_max,
            answer_bytes_max,
            live_keys_max,
            claims_max,
            held_keys_max,
            stream,
            needs_permission: _,
            replay_status,
            replay_set_cookie,
            replay_also,
            replay_never,
            expires_header,
            cors_origins: _,
            on_store_error,
        } = settings;
        let headers =
            |names: &[HeaderName]| -> Vec<String> { names.iter().map(words::header).collect() };
        let statuses =
            |list: &[StatusPattern]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        Self {
            profile: match profile {
                Profile::Ietf => "ietf",
                Profile::Stripe => "stripe",
            },
            methods: methods.iter().map(Method::as_str).collect(),
            key: match key {
                KeyMode::Required => "required",
                KeyMode::Optional => "optional",
                KeyMode::Off => "off",
            },
            key_headers: headers(key_headers),
            key_pointer: key_pointer.as_ref().map(JsonPointer::as_str),
            key_quoted: *strict,
            key_format: match format {
                KeyFormat::Any => "any",
                KeyFormat::Uuid => "uuid",
                KeyFormat::UuidV7 => "uuidv7",
            },
            key_characters_min: *len_min,
            key_age_max_ms: millis(*age_max),
            tenant: TenantView::of(tenant),
            scope: match scope {
                ScopeKind::Tenant => "tenant",
                ScopeKind::Endpoint => "endpoint",
            },
            retention_ms: millis(*retention),
            remember_ms: millis(*remember),
            compared_by: match fingerprint {
                FingerprintForm::Canonical => "meaning",
                FingerprintForm::Raw => "bytes",
            },
            ignored_members: ignore.iter().map(JsonPointer::as_str).collect(),
            compared_headers: headers(fingerprint_headers),
            names_differences: *mismatch_hint,
            on_conflict: match on_conflict {
                OnConflict::Reject => "reject",
                OnConflict::Wait => "wait",
            },
            wait_max_ms: millis(*wait_max),
            server_errors: match server_errors {
                ServerErrors::Retry => "retry",
                ServerErrors::Keep => "keep",
                ServerErrors::Hold => "hold",
            },
            final_statuses: statuses(final_statuses),
            transient_statuses: statuses(transient_statuses),
            unknown_statuses: statuses(unknown_statuses),
            interrupted: match recover {
                _ if probe.is_some() => "ask",
                Recover::Resume => "resume",
                Recover::Auto => "resume_if_noted",
                Recover::Hold => "hold",
            },
            completes_abandoned: completing.is_some(),
            unprotected_without_store: *on_store_error == OnStoreError::Bypass,
            created_replayed_as_ok: *replay_status == ReplayStatus::Ok,
            replays_set_cookie: *replay_set_cookie,
            headers_also_replayed: headers(replay_also),
            headers_never_replayed: headers(replay_never),
            tells_expiry: *expires_header,
            streams: *stream,
            request_bytes_max: *request_bytes_max,
            answer_bytes_max: *answer_bytes_max,
            live_keys_max: live_keys_max.each,
            running_max: claims_max.each,
            held_keys_max: held_keys_max.each,
            anonymous_live_keys_max: live_keys_max.anonymous,
            anonymous_running_max: claims_max.anonymous,
            anonymous_held_keys_max: held_keys_max.anonymous,
            answer_timeout_ms: millis(*response_timeout),
        }
    }
}

impl<'a> TenantView<'a> {
    fn of(source: &'a TenantSource) -> Self {
        match source {
            TenantSource::Authorization => Self { from: "authorization", name: None },
            TenantSource::Credential(name) => {
                Self { from: "credential", name: Some(name.as_str()) }
            }
            TenantSource::Cookie(name) => Self { from: "cookie", name: Some(name) },
            TenantSource::Jwt { claim, .. } => Self { from: "jwt", name: Some(claim) },
            // Clients do not send it, and need not know what it is called.
            TenantSource::Header(_) | TenantSource::ForwardAuth { .. } => {
                Self { from: "account", name: None }
            }
            TenantSource::Mtls => Self { from: "certificate", name: None },
            TenantSource::None => Self { from: "none", name: None },
        }
    }
}

impl ProblemView {
    fn of(entry: &Entry, address: &str) -> Self {
        Self {
            slug: entry.slug,
            kind: format!("{address}#{}", entry.slug),
            status: StatusView {
                ietf: entry.status(Profile::Ietf),
                stripe: entry.status(Profile::Stripe),
            },
            title: entry.title,
            retryable: entry.retryable,
            retry_after: entry.retry_after,
            used: entry.used,
            meaning: entry.meaning.plain(),
            action: entry.action.plain(),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("at most ten years")
}
