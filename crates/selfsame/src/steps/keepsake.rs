//! Step 3, for routes that want it: what a record keeps of the request besides its fingerprint, and in
//! what a request under a used key differs from that.

use bytes::Bytes;
use http::request::Parts;
use selfsame_core::{Difference, Keepsake, Outline, RecordId};

use super::Asked;
use super::fingerprint::with_facts;
use crate::engine::Engine;
use crate::grpc;
use crate::policy::Policy;

/// What is kept of a request if it is the first with its key.
pub(crate) fn keepsake<B>(
    asked: &Asked<B>,
    engine: &Engine,
    policy: &Policy,
) -> Option<Box<Keepsake>> {
    let Asked { ask, request, is_shared, .. } = asked;
    // Who shares a key space with strangers could find out by trying what one of them has sent.
    let is_told = policy.mismatch_hint && !is_shared && !grpc::is_call(&request.parts.headers);
    if !is_told {
        return None;
    }
    let sent = (&*request.parts, request.body.data());
    let outline = Bytes::from(outline(&ask.id, sent, engine, policy).to_bytes());
    Some(Box::new(Keepsake { outline: Some(outline), request: None }))
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
