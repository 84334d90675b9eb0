//! Step 3, for routes that want it: what a record keeps of the request besides its fingerprint, and in
//! what a request under a used key differs from that.

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
    if !policy.mismatch_hint && policy.completing.is_none() {
        return None;
    }
    let Asked { ask, request, is_shared, .. } = asked;
    if grpc::is_call(&request.parts.headers) {
        return None;
    }
    let sent = (&*request.parts, request.body.data());
    // Who shares a key space with strangers could find out by trying what one of them has sent.
    let is_told = policy.mismatch_hint && !is_shared;
    let outline = is_told.then(|| outline(&ask.id, sent, engine, policy).to_bytes().into());
    // What nobody may ever run again is not kept for it.
    let may_run = policy.recover != Recover::Hold || policy.probe.is_some();
    let completing = policy.completing.as_ref().filter(|_| may_run);
    let request = completing.and_then(|how| sealed(&ask.id, sent, engine, (policy, how)));
    let keepsake = Keepsake { outline, request };
    Some(Box::new(keepsake)).filter(|kept| kept.outline.is_some() || kept.request.is_some())
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
    outline(id, sent, engine, policy).differs_from(&kept).map(Box::new)
}

fn outline(
    id: &RecordId,
    (parts, body): (&Parts, &[u8]),
    engine: &Engine,
    policy: &Policy,
) -> Outline {
    with_facts(parts, body, policy, |facts, rules| Outline::of(id, facts, rules, &engine.secret))
}
