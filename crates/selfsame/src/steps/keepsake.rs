//! Step 3: what a record keeps of the request besides its fingerprint, and in what a request under a
//! used key differs from that.

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, HOST,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use selfsame_core::headers::authority;
use selfsame_core::{Difference, Keepsake, KeptRequest, Outline, RecordId, Recover, wire};

use super::Asked;
use super::fingerprint::with_facts;
use crate::abandoned::Completing;
use crate::engine::Engine;
use crate::grpc;
use crate::original_uri::OriginalUri;
use crate::policy::Policy;
use crate::seal::Kind;

/// Without these a request would be another, or its answer would.
const ALWAYS_KEPT: [HeaderName; 5] =
    [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE, ACCEPT, ACCEPT_LANGUAGE];

/// What is kept of a request if it is the first with its key.
pub(crate) fn keepsake<B>(
    asked: &Asked<B>,
    engine: &Engine,
    policy: &Policy,
) -> Option<Box<Keepsake>> {
    let Asked { ask, request, is_shared, .. } = asked;
    let path = OriginalUri::of(&request.parts).path();
    let line = Some(Keepsake::line(&request.parts.method, path));
    if grpc::is_call(&request.parts.headers) {
        return Some(Box::new(Keepsake { line, ..Keepsake::default() }));
    }
    let sent = (&*request.parts, request.body.data());
    // Who shares a key space with strangers could find out by trying what one of them has sent.
    let outline = match policy.mismatch_hint && !is_shared {
        true => outline(&ask.id, sent, engine, policy),
        false => parts_alone(&ask.id, sent, engine, policy),
    };
    // What nobody may ever run again is not kept for it.
    let may_run = policy.recover != Recover::Hold || policy.probe.is_some();
    let completing = policy.completing.as_ref().filter(|_| may_run);
    let request = completing.and_then(|how| sealed(&ask.id, sent, engine, (policy, how)));
    let outline = Some(outline.to_bytes().into());
    Some(Box::new(Keepsake { outline, request, line, note: None }))
}

/// The request as it is kept; not at all where there is no key to seal it with.
fn sealed(
    id: &RecordId,
    (parts, body): (&Parts, &[u8]),
    engine: &Engine,
    (policy, completing): (&Policy, &Completing),
) -> Option<Bytes> {
    if !engine.seal.has_key() {
        return None;
    }
    let named = policy.key_headers.iter().chain(&policy.fingerprint_headers);
    let named = named.chain(&completing.headers).chain(&ALWAYS_KEPT);
    let mut headers = HeaderMap::new();
    for name in named {
        if headers.contains_key(name) {
            continue;
        }
        for value in parts.headers.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    let host = authority(&parts.uri, &parts.headers);
    let host = host.and_then(|host| HeaderValue::from_bytes(&host).ok());
    headers.extend(host.map(|host| (HOST, host)));
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let request = KeptRequest {
        method: parts.method.clone(),
        target: target.to_owned(),
        headers,
        body: Bytes::copy_from_slice(body),
    };
    engine.seal.close(id, Kind::Request, &wire::encode_request(&request))
}

/// In what a request differs from the first one with its key, as far as that was kept.
pub(crate) async fn difference(
    id: &RecordId,
    sent: (&Parts, &[u8]),
    engine: &Engine,
    policy: &Policy,
) -> Option<Box<Difference>> {
    let record = engine.store.get(id).await.ok()??;
    let kept = record.keepsake?.outline?;
    let now = match policy.mismatch_hint {
        true => outline(id, sent, engine, policy),
        false => parts_alone(id, sent, engine, policy),
    };
    now.differs_from(&kept).map(Box::new)
}

/// The outline without the members of the body: every record has room for it.
fn parts_alone(
    id: &RecordId,
    (parts, body): (&Parts, &[u8]),
    engine: &Engine,
    policy: &Policy,
) -> Outline {
    with_facts(parts, body, policy, |facts, rules| {
        Outline::of_parts(id, facts, rules, &engine.secret)
    })
}

fn outline(
    id: &RecordId,
    (parts, body): (&Parts, &[u8]),
    engine: &Engine,
    policy: &Policy,
) -> Outline {
    with_facts(parts, body, policy, |facts, rules| Outline::of(id, facts, rules, &engine.secret))
}
