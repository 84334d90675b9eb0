//! What a key is.

use std::time::Duration;

use selfsame::{KeyFormat, KeyRules, ScopeKind};
use selfsame_core::FingerprintForm;

use super::super::document::{Line, code, codes, line, plain, text};
use super::super::words;
use crate::config::{RouteSettings, TenantSource};

pub(super) fn place(settings: &RouteSettings) -> Line {
    match (settings.key_headers.len(), &settings.key_pointer) {
        (1, None) => line("The header {}.", [names(settings)]),
        (_, None) => line("The header {}: one of them, once.", [names(settings)]),
        (_, Some(pointer)) => line(
            "The header {}, or {} (a JSON pointer) in a JSON body, as a string: one of them, once.",
            [names(settings), code(words::pointer(pointer))],
        ),
    }
}

pub(super) fn place_brief(settings: &RouteSettings) -> Line {
    match &settings.key_pointer {
        None => line("header {}", [names(settings)]),
        Some(pointer) => {
            line("header {}, or {} in the body", [names(settings), code(words::pointer(pointer))])
        }
    }
}

fn names(settings: &RouteSettings) -> Line {
    codes(settings.key_headers.iter().map(words::header), "or")
}

pub(super) fn format(settings: &RouteSettings) -> Line {
    let look = look(settings);
    match settings.strict {
        true => line(
            "{} as a quoted string (RFC 9651), such as `\"abc\"`. Upper and lower case differ.",
            [look],
        ),
        false => line(
            "{}, upper and lower case differ. Bare, or as a quoted string (RFC 9651): `abc` and \
             `\"abc\"` are the same key.",
            [look],
        ),
    }
}

pub(super) fn format_brief(settings: &RouteSettings) -> Line {
    let quoted = match settings.strict {
        true => plain("only quoted keys"),
        false => plain("quoted or bare keys"),
    };
    let KeyRules { format, len_min, .. } = settings.key_rules;
    match (format, len_min) {
        (KeyFormat::Any, 1) => quoted,
        _ => line("{}: {}", [quoted, look(settings)]),
    }
}

fn look(settings: &RouteSettings) -> Line {
    match settings.key_rules.format {
        KeyFormat::Any => {
            text(format!("{} to 255 printable ASCII characters", settings.key_rules.len_min))
        }
        KeyFormat::Uuid => plain("A UUID with hyphens"),
        KeyFormat::UuidV7 => plain("A UUID of version 7 with hyphens"),
    }
}

pub(super) fn age(settings: &RouteSettings) -> Line {
    match settings.key_rules.age_max {
        Duration::ZERO => plain("Makes no difference."),
        most => line(
            "A UUID of version 7 says when it was made. One that is older than {}, or more than 10 \
             minutes in the future, is refused as [invalid-key].",
            [text(words::duration(most))],
        ),
    }
}

pub(super) fn age_brief(settings: &RouteSettings) -> Line {
    match settings.key_rules.age_max {
        Duration::ZERO => plain("keys of any age"),
        most => line("UUIDs of version 7 no older than {}", [text(words::duration(most))]),
    }
}

pub(super) fn tenant(settings: &RouteSettings) -> Line {
    match &settings.tenant {
        TenantSource::Authorization => plain(
            "The credential in `Authorization`, so no other caller can meet it. Callers without a \
             credential share their keys; a cookie or an API key in another header is refused as \
             [missing-tenant].",
        ),
        TenantSource::Credential(name) => line(
            "The credential in the header {}, so no other caller can meet it. Without it, or with \
             two of them, a request is refused as [missing-tenant].",
            [code(words::header(name))],
        ),
        TenantSource::Cookie(name) => line(
            "The session in the cookie {}, so no other caller can meet it. Without that cookie a \
             request is refused as [missing-tenant].",
            [code(name)],
        ),
        TenantSource::Jwt { claim, .. } => line(
            "The claim {} of your token, also when the token is renewed, so no other caller can meet it. \
             Without a valid token a request is refused as [missing-tenant].",
            [code(claim)],
        ),
        TenantSource::ForwardAuth { .. } => plain(
            "Your account with this service, which your credential tells, so no other caller can meet \
             it. Without a valid credential a request is refused with 401 or 403.",
        ),
        TenantSource::Header(_) => {
            plain("Your account with this service, so no other caller can meet it.")
        }
        TenantSource::Mtls => plain(
            "Your client certificate (its subject and issuer), so no other caller can meet it; a \
             renewed one is the same. Without one a request is refused as [missing-tenant].",
        ),
        TenantSource::None => {
            plain("Everyone: all callers share their keys, so make them impossible to guess.")
        }
    }
}

pub(super) fn tenant_brief(settings: &RouteSettings) -> Line {
    match &settings.tenant {
        TenantSource::Authorization => plain("keys belong to the credential in `Authorization`"),
        TenantSource::Credential(name) => {
            line("keys belong to the credential in {}", [code(words::header(name))])
        }
        TenantSource::Cookie(name) => line("keys belong to the cookie {}", [code(name)]),
        TenantSource::Jwt { claim, .. } => {
            line("keys belong to the claim {} of a token", [code(claim)])
        }
        TenantSource::Header(_) | TenantSource::ForwardAuth { .. } => {
            plain("keys belong to your account")
        }
        TenantSource::Mtls => plain("keys belong to your client certificate"),
        TenantSource::None => plain("all callers share their keys"),
    }
}

pub(super) fn scope(settings: &RouteSettings) -> Line {
    match settings.scope {
        ScopeKind::Tenant => {
            plain("All endpoints: used again on another one, it is refused as [key-reused].")
        }
        ScopeKind::Endpoint => {
            plain("One endpoint: on another method or path, the same key is another key.")
        }
    }
}

pub(super) fn scope_brief(settings: &RouteSettings) -> Line {
    match settings.scope {
        ScopeKind::Tenant => plain("a key counts on all endpoints"),
        ScopeKind::Endpoint => plain("a key counts on this endpoint only"),
    }
}

pub(super) fn retention(settings: &RouteSettings) -> Line {
    let least = settings.retention.min(Duration::from_secs(60 * 60));
    let [lasts, least] = [settings.retention, least].map(|time| text(words::duration(time)));
    match settings.remember.is_zero() {
        true => line(
            "{} from its first use, and at least {} after its answer. After that it is new again, \
             and a request with it would be carried out.",
            [lasts, least],
        ),
        false => line(
            "{} from its first use, and at least {} after its answer. For {} after that it is \
             refused ([key-expired]) if its request was carried out. Then it is new again.",
            [lasts, least, text(words::duration(settings.remember))],
        ),
    }
}

pub(super) fn retention_brief(settings: &RouteSettings) -> Line {
    let lasts = text(words::duration(settings.retention));
    match settings.remember.is_zero() {
        true => line("keys last {}", [lasts]),
        false => {
            let remembered = text(words::duration(settings.remember));
            line("keys last {}, and are refused for {} more", [lasts, remembered])
        }
    }
}

pub(super) fn compared(settings: &RouteSettings) -> Line {
    let what = match settings.fingerprint_headers.is_empty() {
        true => plain("method, path, query, content type and body"),
        false => line("method, path, query, content type, {} and body", [counted(settings)]),
    };
    let by_meaning = line(
        "One request: {}. Bodies are compared by their meaning: order, spacing and escapes of JSON \
         make no difference (but `1` and `1.0` do), nor does the boundary of a form, nor whether a \
         body was compressed.",
        [what.clone()],
    );
    let compared = match settings.fingerprint {
        FingerprintForm::Raw => line("One request: {}, byte by byte.", [what]),
        FingerprintForm::Canonical if settings.ignore.is_empty() => by_meaning,
        FingerprintForm::Canonical => {
            line("{} In JSON, {} may differ.", [by_meaning, ignored(settings)])
        }
    };
    match settings.mismatch_hint {
        true => line(
            "{} A refusal names what differs: its member `mismatch` has the parts and the members of \
             the body, by name, and no values.",
            [compared],
        ),
        false => line(
            "{} A refusal names which of method, path, query and content type differ, in its member \
             `mismatch`, and no values.",
            [compared],
        ),
    }
}

pub(super) fn compared_brief(settings: &RouteSettings) -> Line {
    let mut brief = match settings.fingerprint {
        FingerprintForm::Canonical => plain("bodies are compared by their meaning"),
        FingerprintForm::Raw => plain("bodies are compared byte by byte"),
    };
    if !settings.ignore.is_empty() {
        brief = line("{} without {}", [brief, ignored(settings)]);
    }
    if !settings.fingerprint_headers.is_empty() {
        brief = line("{}, and {}", [brief, counted(settings)]);
    }
    brief
}

fn ignored(settings: &RouteSettings) -> Line {
    codes(settings.ignore.iter().map(words::pointer), "and")
}

fn counted(settings: &RouteSettings) -> Line {
    codes(settings.fingerprint_headers.iter().map(words::header), "and")
}
