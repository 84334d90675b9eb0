//! Settings as a configuration has them, for people who want to see which ones count.

use std::fmt;

use selfsame::{
    KeyMode, Mode, OnConflict, OnStoreError, Profile, ScopeKind, ServerErrors, StatusPattern,
    TenantLimit,
};
use selfsame_core::Recover;

use super::values::written;
use super::{Protocol, RouteSettings, TenantSource, Upstream};

impl RouteSettings {
    /// The settings that decide what becomes of a request, by their names in the file.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let headers: Vec<String> = self.key_headers.iter().map(quoted).collect();
        let remember = match self.remember.is_zero() {
            true => quoted("off"),
            false => quoted(written(self.remember)),
        };
        vec![
            ("mode", quoted(mode(self.mode))),
            ("profile", quoted(profile(self.profile))),
            ("key", quoted(key(self.key))),
            ("key_headers", format!("[{}]", headers.join(", "))),
            ("tenant", quoted(&self.tenant)),
            ("replay_needs", quoted(if self.needs_permission { "forward-auth" } else { "off" })),
            ("scope", quoted(scope(self.scope))),
            ("recover", quoted(self.recover_word())),
            ("server_errors", quoted(server_errors(self.server_errors))),
            ("final_statuses", statuses(&self.final_statuses)),
            ("transient_statuses", statuses(&self.transient_statuses)),
            ("unknown_statuses", statuses(&self.unknown_statuses)),
            ("on_conflict", quoted(on_conflict(self.on_conflict))),
            ("retention", quoted(written(self.retention))),
            ("remember", remember),
            ("lease", quoted(written(self.lease))),
            ("response_timeout", quoted(written(self.response_timeout))),
            ("run_timeout", quoted(written(self.run_timeout))),
            ("max_request_body", self.request_bytes_max.to_string()),
            ("max_response_body", self.answer_bytes_max.to_string()),
            ("max_live_keys", tenant_limit(self.live_keys_max)),
            ("max_claims", tenant_limit(self.claims_max)),
            ("max_held_keys", tenant_limit(self.held_keys_max)),
            ("on_store_error", quoted(on_store_error(self.on_store_error))),
        ]
    }

    fn recover_word(&self) -> &'static str {
        match (self.recover, &self.probe) {
            (_, Some(_)) => "probe",
            (Recover::Auto, None) => "auto",
            (Recover::Resume, None) => "resume",
            (Recover::Hold, None) => "hold",
        }
    }
}

fn quoted(value: impl fmt::Display) -> String {
    format!("\"{value}\"")
}

fn tenant_limit(TenantLimit { each, anonymous }: TenantLimit) -> String {
    let off_or = |most: Option<u32>| most.map_or(quoted("off"), |most| most.to_string());
    match each == anonymous {
        true => off_or(each),
        false => format!("{}  # without a credential: {}", off_or(each), off_or(anonymous)),
    }
}

fn statuses(list: &[StatusPattern]) -> String {
    let written = |pattern: &StatusPattern| match pattern {
        StatusPattern::Exactly(_) => pattern.to_string(),
        StatusPattern::Class(_) => quoted(pattern),
    };
    format!("[{}]", list.iter().map(written).collect::<Vec<_>>().join(", "))
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
    }
}

fn profile(profile: Profile) -> &'static str {
    match profile {
        Profile::Ietf => "ietf",
        Profile::Stripe => "stripe",
    }
}

fn key(key: KeyMode) -> &'static str {
    match key {
        KeyMode::Required => "required",
        KeyMode::Optional => "optional",
        KeyMode::Off => "off",
    }
}

fn scope(scope: ScopeKind) -> &'static str {
    match scope {
        ScopeKind::Tenant => "tenant",
        ScopeKind::Endpoint => "endpoint",
    }
}

fn server_errors(errors: ServerErrors) -> &'static str {
    match errors {
        ServerErrors::Retry => "retry",
        ServerErrors::Keep => "keep",
        ServerErrors::Hold => "hold",
    }
}

fn on_conflict(on: OnConflict) -> &'static str {
    match on {
        OnConflict::Reject => "reject",
        OnConflict::Wait => "wait",
    }
}

fn on_store_error(on: OnStoreError) -> &'static str {
    match on {
        OnStoreError::Reject => "reject",
        OnStoreError::Bypass => "bypass",
    }
}

impl fmt::Display for TenantSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authorization => f.write_str("authorization"),
            Self::Credential(name) => write!(f, "credential:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Jwt { claim, .. } => write!(f, "jwt:{claim}"),
            Self::ForwardAuth { .. } => f.write_str("forward-auth"),
            Self::Mtls => f.write_str("mtls"),
            Self::None => f.write_str("none"),
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.protocol, self.is_encrypted) {
            (Protocol::Http1, false) => "http",
            (Protocol::Http1, true) => "https",
            (Protocol::Http2, false) => "h2c",
            (Protocol::Http2, true) => "h2",
        };
        write!(f, "{scheme}://{}", self.authority)
    }
}
