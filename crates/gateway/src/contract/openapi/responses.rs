//! What an operation with a key may answer besides its own: headers, refusals, and their bodies.

use std::collections::{BTreeMap, BTreeSet};

use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, StatusCode};
use selfsame::Profile;
use selfsame_core::headers::{
    IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, STRIPE_SHOULD_RETRY, X_SHOULD_RETRY,
};
use serde_json::{Map, Value, json};

use super::super::problems::{self, Entry};
use super::super::{Contract, words};
use super::component_name;
use crate::config::RouteSettings;

pub(super) fn headers() -> Value {
    let should_retry = json!({
        "description": "Whether sending the same request with the same key again can help.",
        "schema": { "type": "boolean" },
    });
    json!({
        "Idempotent-Replayed": {
            "description": "There, and `true`, where this answer was given before.",
            "schema": { "type": "boolean", "const": true },
        },
        "Idempotency-Expires": {
            "description": "Until when this answer is kept, as an HTTP date.",
            "schema": { "type": "string" },
        },
        "X-Should-Retry": should_retry,
        "Stripe-Should-Retry": should_retry,
        "Retry-After": {
            "description": "How many seconds to wait before that.",
            "schema": { "type": "integer", "minimum": 0 },
        },
        "Www-Authenticate": {
            "description": "Which credential is taken.",
            "schema": { "type": "string" },
        },
    })
}

pub(super) fn operation(settings: &RouteSettings) -> Value {
    let mut names = vec![IDEMPOTENT_REPLAYED];
    if settings.expires_header {
        names.push(IDEMPOTENCY_EXPIRES);
    }
    let own = json!({
        "description": "The service's own answer, or the same one given again.",
        "headers": header_references(&names),
    });
    let mut responses = Map::from_iter([("2XX".to_owned(), own)]);
    let entries = problems::entries(std::slice::from_ref(settings));
    for sharing in by_status(&entries, settings.profile) {
        if sharing.entries.iter().any(|entry| entry.used) {
            let reference = format!("#/components/responses/{}", sharing.name());
            responses.insert(sharing.status.to_string(), json!({ "$ref": reference }));
        }
    }
    Value::Object(responses)
}

/// One for each problem, and one for each status that several share: an operation can only say
/// one thing of a status.
pub(super) fn all(contract: &Contract) -> Value {
    let mut responses = Map::new();
    for profile in &contract.profiles {
        for sharing in by_status(&contract.problems, *profile) {
            for entry in &sharing.entries {
                let alone = Sharing { entries: vec![entry], ..sharing };
                responses.insert(alone.name(), alone.response(contract));
            }
            responses.insert(sharing.name(), sharing.response(contract));
        }
    }
    Value::Object(responses)
}

/// The problems that share a status.
struct Sharing<'a> {
    profile: Profile,
    status: u16,
    entries: Vec<&'a Entry>,
}

fn by_status(entries: &[Entry], profile: Profile) -> Vec<Sharing<'_>> {
    let mut statuses: BTreeMap<u16, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        statuses.entry(entry.status(profile)).or_default().push(entry);
    }
    let sharing = |(status, entries)| Sharing { profile, status, entries };
    statuses.into_iter().map(sharing).collect()
}

impl Sharing<'_> {
    fn name(&self) -> String {
        let profile = match self.profile {
            Profile::Ietf => "",
            Profile::Stripe => "Stripe",
        };
        match &self.entries[..] {
            [only] => format!("{profile}{}", component_name(only.slug)),
            _ => format!("{profile}Status{}", self.status),
        }
    }

    fn response(&self, contract: &Contract) -> Value {
        let says = |entry: &&Entry| {
            format!("`{}`: {}. {}", entry.slug, entry.title, entry.meaning.plain())
        };
        let description: Vec<String> = self.entries.iter().map(says).collect();
        let mut names = vec![X_SHOULD_RETRY];
        if self.profile == Profile::Stripe {
            names.push(STRIPE_SHOULD_RETRY);
        }
        if self.entries.iter().any(|entry| entry.retry_after) {
            names.push(RETRY_AFTER);
        }
        if self.status == StatusCode::UNAUTHORIZED.as_u16() {
            names.push(WWW_AUTHENTICATE);
        }
        json!({
            "description": description.join("\n\n"),
            "headers": header_references(&names),
            "content": self.content(&contract.address),
        })
    }

    fn content(&self, address: &str) -> Value {
        let pages: BTreeSet<String> =
            self.entries.iter().map(|entry| format!("{address}#{}", entry.slug)).collect();
        match self.profile {
            Profile::Ietf => json!({ "application/problem+json": { "schema": {
                "$ref": "#/components/schemas/Problem",
                "properties": { "type": { "enum": pages } },
            } } }),
            Profile::Stripe => json!({ "application/json": { "schema": {
                "$ref": "#/components/schemas/StripeError",
                "properties": { "error": { "properties": { "doc_url": { "enum": pages } } } },
            } } }),
        }
    }
}

fn header_references(names: &[HeaderName]) -> Value {
    let reference = |name: &HeaderName| {
        let name = words::header(name);
        let reference = json!({ "$ref": format!("#/components/headers/{name}") });
        (name, reference)
    };
    Value::Object(names.iter().map(reference).collect())
}

pub(super) fn schemas() -> Value {
    json!({ "Problem": problem_schema(), "StripeError": stripe_schema() })
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "description": "Why a request was not carried out, or its answer cannot be given (RFC 9457).",
        "required": ["type", "title", "status", "detail", "instance", "retryable"],
        "properties": {
            "type": { "type": "string", "format": "uri-reference" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "instance": { "type": "string", "format": "uri" },
            "retryable": { "type": "boolean" },
            "original_status": { "type": "integer" },
            "location": { "type": "string" },
            "mismatch": mismatch_schema(),
        },
    })
}

fn stripe_schema() -> Value {
    json!({
        "type": "object",
        "description": "Why a request was not carried out, or its answer cannot be given, as \
                        Stripe's SDKs read it.",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["type", "code", "message", "doc_url"],
            "properties": {
                "type": { "type": "string" },
                "code": { "type": "string" },
                "message": { "type": "string" },
                "doc_url": { "type": "string", "format": "uri-reference" },
                "original_status": { "type": "integer" },
                "location": { "type": "string" },
                "mismatch": mismatch_schema(),
            },
        } },
    })
}

fn mismatch_schema() -> Value {
    let names = json!({ "type": "array", "items": { "type": "string" } });
    json!({
        "type": "object",
        "description": "In what the request differs from the first one with its key.",
        "properties": {
            "parts": names,
            "members": names,
            "more_members": { "type": "integer" },
            "missing_members": { "type": "integer" },
        },
    })
}
