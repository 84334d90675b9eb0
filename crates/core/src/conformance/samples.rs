//! What the laws ask, answer and save.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use crate::{
    Answer, AnswerBody, Ask, AttemptId, Checkpoint, Fingerprint, FingerprintForm, FingerprintRules,
    Keepsake, Key, Label, RecordId, Recover, RequestFacts, Scope, Secret, Tenant,
};

/// How long the laws' claims live.
pub const LEASE: Duration = Duration::from_secs(30);
/// How long the laws' keys live.
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// How long completed keys are remembered, in the laws where they are.
pub const REMEMBER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How long an outcome is kept at least.
pub const HOUR: Duration = Duration::from_secs(60 * 60);
/// How near to a boundary the laws look; a clock that goes by itself stays well within it.
pub const MARGIN: Duration = Duration::from_secs(10);

/// A first ask for `key`, where dead claims may be resumed.
pub fn ask(key: &str) -> Ask {
    ask_of(&Tenant::named("header:x-tenant", "acme"), key)
}

/// A first ask for the `key` of a tenant.
pub fn ask_of(tenant: &Tenant, key: &str) -> Ask {
    let secret = Secret::from_bytes(&[7; Secret::LEN]);
    let key = Key::parse(key.as_bytes()).expect("the laws' keys are valid");
    let tag = tenant.tag(&secret);
    Ask {
        id: RecordId::derive(&secret, tag, &Scope::Tenant, &key),
        fingerprint: fingerprint("first body"),
        attempt_id: AttemptId::random(),
        lease: LEASE,
        retention: RETENTION,
        remember: Duration::ZERO,
        recover: Recover::Resume,
        label: Label {
            tenant: tag,
            tenant_name: tenant.name().map(Into::into),
            key,
            route: "POST /charges".into(),
        },
        keepsake: None,
    }
}

/// A first ask for a `key` that is remembered after its retention.
pub fn remembered(key: &str) -> Ask {
    Ask { remember: REMEMBER, ..ask(key) }
}

/// A first ask for a `key` that keeps something of its request.
pub fn kept(key: &str) -> Ask {
    let keepsake = Keepsake {
        outline: Some(Bytes::from_static(b"\0outline\xff")),
        request: Some(Bytes::from(format!("POST /charges of {key}\0\u{ff}").repeat(500))),
        ..Keepsake::default()
    };
    Ask { keepsake: Some(Box::new(keepsake)), ..ask(key) }
}

/// The same request, sent once more: a wish of its own.
pub fn retry(ask: &Ask) -> Ask {
    Ask { attempt_id: AttemptId::random(), ..ask.clone() }
}

/// Another request under the same key.
pub fn mismatch(ask: &Ask) -> Ask {
    Ask { fingerprint: fingerprint("another body"), ..retry(ask) }
}

fn fingerprint(body: &str) -> Fingerprint {
    let facts = RequestFacts {
        method: &Method::POST,
        authority: None,
        path: "/charges",
        query: None,
        content_type: None,
        content_encoding: None,
        headers: &[],
        body: body.as_bytes(),
    };
    let rules = FingerprintRules { form: FingerprintForm::Raw, ignore: &[], unpacked_bytes_max: 0 };
    Fingerprint::of(&facts, &rules, None)
}

/// An answer with this body.
pub fn answer(body: impl Into<Bytes>) -> Answer {
    Answer {
        status: StatusCode::CREATED,
        headers: HeaderMap::new(),
        body: AnswerBody::Kept(body.into()),
        trailers: HeaderMap::new(),
    }
}

/// The recovery point of this name.
pub fn checkpoint(recovery_point: &str) -> Checkpoint {
    Checkpoint::new(recovery_point, format!("{recovery_point}\0\u{ff}"))
}
