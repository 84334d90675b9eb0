//! The words that settings of a route are written in.

use http::header::SET_COOKIE;
use http::{HeaderName, Method};
use selfsame::{
    JsonPointer, KeyFormat, KeyMode, Mode, OnConflict, OnStoreError, Origin, Probe, Profile,
    ReplayStatus, ScopeKind, ServerErrors,
};
use selfsame_core::headers::{self, differs_between_retries, is_hop_by_hop};
use selfsame_core::{FingerprintForm, Recover};
use toml::de::DeValue;

use super::values::{Kind, Wrong, choice, text};

/// The headers of an answer that only we set or read.
const OURS: [HeaderName; 3] =
    [headers::IDEMPOTENT_REPLAYED, headers::IDEMPOTENCY_EXPIRES, headers::IDEMPOTENCY_OUTCOME];

pub(super) const MODE: Kind<Mode> = Kind {
    expected: r#""enforce" or "observe""#,
    read: |value| choice(value, &[("enforce", Mode::Enforce), ("observe", Mode::Observe)]),
};

pub(super) const PROFILE: Kind<Profile> = Kind {
    expected: r#""ietf" or "stripe""#,
    read: |value| choice(value, &[("ietf", Profile::Ietf), ("stripe", Profile::Stripe)]),
};

pub(super) const KEY: Kind<KeyMode> = Kind {
    expected: r#""required", "optional" or "off""#,
    read: |value| {
        let choices = [
            ("required", KeyMode::Required),
            ("optional", KeyMode::Optional),
            ("off", KeyMode::Off),
        ];
        choice(value, &choices)
    },
};

pub(super) const SCOPE: Kind<ScopeKind> = Kind {
    expected: r#""tenant" or "endpoint""#,
    read: |value| {
        choice(value, &[("tenant", ScopeKind::Tenant), ("endpoint", ScopeKind::Endpoint)])
    },
};

pub(super) const FINGERPRINT: Kind<FingerprintForm> = Kind {
    expected: r#""canonical" or "raw""#,
    read: |value| {
        let choices = [("canonical", FingerprintForm::Canonical), ("raw", FingerprintForm::Raw)];
        choice(value, &choices)
    },
};

/// What a run without an outcome leads to, and whether the upstream is asked before.
pub(super) const RECOVER: Kind<(Recover, bool)> = Kind {
    expected: r#""auto", "resume", "hold" or "probe""#,
    read: |value| {
        let choices = [
            ("auto", (Recover::Auto, false)),
            ("resume", (Recover::Resume, false)),
            ("hold", (Recover::Hold, false)),
            ("probe", (Recover::Hold, true)),
        ];
        choice(value, &choices)
    },
};

pub(super) const PROBE: Kind<Probe> = Kind {
    expected: r#"a path with the key in it like "GET /idempotency/{key}""#,
    read: |value| Probe::parse(text(value)?).map_err(|_| Wrong::Form),
};

pub(super) const SERVER_ERRORS: Kind<ServerErrors> = Kind {
    expected: r#""retry", "keep" or "hold""#,
    read: |value| {
        let choices = [
            ("retry", ServerErrors::Retry),
            ("keep", ServerErrors::Keep),
            ("hold", ServerErrors::Hold),
        ];
        choice(value, &choices)
    },
};

pub(super) const ON_CONFLICT: Kind<OnConflict> = Kind {
    expected: r#""reject" or "wait""#,
    read: |value| choice(value, &[("reject", OnConflict::Reject), ("wait", OnConflict::Wait)]),
};

pub(super) const ON_STORE_ERROR: Kind<OnStoreError> = Kind {
    expected: r#""reject" or "bypass""#,
    read: |value| {
        choice(value, &[("reject", OnStoreError::Reject), ("bypass", OnStoreError::Bypass)])
    },
};

pub(super) const REPLAY_NEEDS: Kind<bool> = Kind {
    expected: r#""forward-auth" or "off""#,
    read: |value| choice(value, &[("forward-auth", true), ("off", false)]),
};

pub(super) const REPLAY_STATUS: Kind<ReplayStatus> = Kind {
    expected: r#""same" or "ok""#,
    read: |value| choice(value, &[("same", ReplayStatus::Same), ("ok", ReplayStatus::Ok)]),
};

pub(super) const METHOD: Kind<Method> = Kind {
    expected: r#""POST", "PATCH", "PUT" or "DELETE""#,
    read: |value| {
        let methods = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
        let text = text(value)?;
        methods.into_iter().find(|method| method == text).ok_or(Wrong::Form)
    },
};

pub(super) const HEADER: Kind<HeaderName> =
    Kind { expected: r#"a header name like "Idempotency-Key""#, read: header };

pub(super) const COUNTED_HEADER: Kind<HeaderName> =
    Kind { expected: r#"a header name like "Stripe-Account""#, read: counted_header };

pub(super) const POINTER: Kind<JsonPointer> = Kind {
    expected: r#"a JSON pointer like "/sent_at" or "/meta/trace""#,
    read: |value| {
        JsonPointer::parse(text(value)?).map_err(|invalid| Wrong::Because(invalid.to_string()))
    },
};

/// None where it is off.
pub(super) const KEY_POINTER: Kind<Option<JsonPointer>> = Kind {
    expected: r#"a JSON pointer like "/idempotency_key", or "off""#,
    read: |value| match text(value)? {
        "off" => Ok(None),
        _ => (POINTER.read)(value).map(Some),
    },
};

pub(super) const FORMAT: Kind<KeyFormat> = Kind {
    expected: r#""any", "uuid" or "uuidv7""#,
    read: |value| {
        let choices =
            [("any", KeyFormat::Any), ("uuid", KeyFormat::Uuid), ("uuidv7", KeyFormat::UuidV7)];
        choice(value, &choices)
    },
};

/// A header that a route may say something about for its replays.
pub(super) const REPLAY_NEVER: Kind<HeaderName> =
    Kind { expected: r#"a header name like "X-Request-Id""#, read: replayed_header };

pub(super) const REPLAY_ALSO: Kind<HeaderName> = Kind {
    expected: REPLAY_NEVER.expected,
    read: |value| match replayed_header(value)? {
        SET_COOKIE => Err(Wrong::Because("write replay_set_cookie = true instead".to_owned())),
        name => Ok(name),
    },
};

pub(super) const ORIGIN: Kind<Origin> = Kind {
    expected: r#"an origin as browsers write it, like "https://app.example.com", or "*""#,
    read: |value| Origin::parse(text(value)?).map_err(|_| Wrong::Form),
};

fn header(value: &DeValue<'_>) -> Result<HeaderName, Wrong> {
    header_named(text(value)?)
}

/// A star is a letter like any other in a header's name, and would stand for itself.
pub(super) fn header_named(text: &str) -> Result<HeaderName, Wrong> {
    if text.contains('*') {
        return Err(Wrong::Because(format!("{text:?} would be taken literally; name each header")));
    }
    text.parse().map_err(|_| Wrong::Form)
}

fn counted_header(value: &DeValue<'_>) -> Result<HeaderName, Wrong> {
    let name = header(value)?;
    if differs_between_retries(&name) {
        return Err(Wrong::Because(format!(
            "{name} may differ between retries of one request and is never part of its fingerprint"
        )));
    }
    Ok(name)
}

fn replayed_header(value: &DeValue<'_>) -> Result<HeaderName, Wrong> {
    let name = header(value)?;
    let reason = match name.as_str() {
        "content-length" => format!("{name} follows from the body"),
        text if OURS.contains(&name) || text.starts_with(headers::SELFSAME_PREFIX) => {
            format!("{name} is the gateway's own")
        }
        _ if is_hop_by_hop(&name) => {
            format!("{name} belongs to one connection and is never part of a replay")
        }
        _ => return Ok(name),
    };
    Err(Wrong::Because(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take<T>(kind: &Kind<T>, text: &str) -> Result<T, String> {
        kind.take(&DeValue::String(text.into()))
    }

    #[test]
    fn headers_that_differ_between_retries_are_not_counted() {
        for name in ["Authorization", "Date", "User-Agent", "traceparent"] {
            let expected = format!(
                "{} may differ between retries of one request and is never part of its \
                 fingerprint",
                name.to_ascii_lowercase()
            );
            assert_eq!(take(&COUNTED_HEADER, name), Err(expected));
        }
        assert!(take(&COUNTED_HEADER, "Stripe-Account").is_ok());
        let star = Err("\"X-*\" would be taken literally; name each header".to_owned());
        assert_eq!(take(&COUNTED_HEADER, "X-*"), star);
        assert_eq!(take(&REPLAY_NEVER, "X-*").map(drop), star.map(drop));
    }

    #[test]
    fn a_wrong_pointer_says_what_is_wrong() {
        assert!(take(&POINTER, "/meta/trace").is_ok());
        let table = [
            ("", "an empty pointer stands for the whole body"),
            ("sent_at", "a pointer begins with a slash, like \"/meta/sent_at\""),
            ("/a~b", "in a pointer \"~\" is written \"~0\", and a \"/\" within a name \"~1\""),
        ];
        for (text, expected) in table {
            assert_eq!(take(&POINTER, text), Err(expected.to_owned()));
        }
    }

    #[test]
    fn what_is_never_replayed_as_it_was_is_not_listed() {
        let table = [
            ("Connection", "connection belongs to one connection and is never part of a replay"),
            ("Content-Length", "content-length follows from the body"),
            ("Idempotent-Replayed", "idempotent-replayed is the gateway's own"),
            ("Selfsame-Attempt", "selfsame-attempt is the gateway's own"),
        ];
        for (name, reason) in table {
            assert_eq!(take(&REPLAY_ALSO, name), Err(reason.to_owned()));
            assert_eq!(take(&REPLAY_NEVER, name), Err(reason.to_owned()));
        }
        let instead = Err("write replay_set_cookie = true instead".to_owned());
        assert_eq!(take(&REPLAY_ALSO, "Set-Cookie"), instead);
        assert!(take(&REPLAY_NEVER, "Set-Cookie").is_ok());
    }

    #[test]
    fn only_methods_that_can_be_protected_are_named() {
        for text in ["POST", "PATCH", "PUT", "DELETE"] {
            assert!(take(&METHOD, text).is_ok(), "{text}");
        }
        for text in ["GET", "post", "QUERY", ""] {
            let expected = format!("expected {}, found {text:?}", METHOD.expected);
            assert_eq!(take(&METHOD, text), Err(expected));
        }
    }
}
