//! Step 4, where nobody knows whether the work was done: the service itself is asked.

use std::future::poll_fn;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, EXPECT, RANGE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use selfsame_core::headers::is_hop_by_hop;
use selfsame_core::{Answer, AnswerBody, Ask, Note, Resolution, State, Verdict};
use tokio::time::Instant;
use tower_service::Service;

use super::replay::answer_to_keep;
use super::{ClaimContext, Settled, claim};
use crate::body::{BoxError, RequestBody};
use crate::buffer_limit::HeldBytes;
use crate::collect::{Collected, collect};
use crate::patience;
use crate::policy::Policy;
use crate::probe::Probe;
use crate::reject::Refusal;
use crate::telemetry;

/// Settles a claim that found its key held, by what the service says: done, and so answered; not done,
/// and so run; anything else, and so held on.
pub(crate) async fn probe<S, B, R>(
    inner: &mut S,
    parts: &Parts,
    ask: &mut Ask,
    probe: &Probe,
    context: ClaimContext<'_>,
) -> Settled
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    let ClaimContext { engine, policy, .. } = context;
    let held = Settled::Refused(Refusal::Held);
    let Some(path) = probe.of(&ask.label.key) else {
        tracing::warn!(
            record = ask.id.short(),
            "a held key is not asked about: dots in it would lead to another path"
        );
        return held;
    };
    let Some(asking) = engine.probes.begin(ask.id) else { return held };
    // Read before the question: what is decided by its answer is this claim's fate and no later one's.
    let Ok(Some(record)) = engine.store.get(&ask.id).await else { return held };
    if !matches!(record.state, State::Held { .. }) {
        // Somebody was told in the meantime.
        asking.answered();
        return claim(context, ask).await;
    }
    let deadline = Instant::now() + policy.response_timeout;
    let told = patience::before(deadline, async {
        let answered = inner.call(question(parts, path)).await.ok()?;
        let told = listen(answered, policy, deadline).await;
        // It may be called once more.
        poll_fn(|cx| inner.poll_ready(cx)).await.ok()?;
        told
    });
    let told = told.await.flatten();
    telemetry::probed(&policy.route, told.as_ref().map(|told| matches!(told, Verdict::Free)));
    let Some(verdict) = told else { return held };
    let note = Some(Box::new(Note::new("probe", None)));
    let resolution = Resolution { verdict, note };
    match engine.people.resolve(&ask.id, record.fence, &resolution).await {
        Ok(_) => asking.answered(),
        Err(error) => {
            tracing::warn!(%error, record = ask.id.short(), "what was told of a key is not recorded");
            return Settled::Refused(Refusal::StoreDown);
        }
    }
    claim(context, ask).await
}

/// As the retry, without its body: whoever may send that may ask.
fn question<B>(parts: &Parts, path: Uri) -> Request<RequestBody<B>> {
    let mut request = Request::new(RequestBody::whole(Bytes::new(), HeaderMap::new()));
    *request.method_mut() = Method::GET;
    *request.uri_mut() = path;
    *request.extensions_mut() = parts.extensions.clone();
    let is_asked = |name: &HeaderName| {
        let text = name.as_str();
        let of_the_body = text.starts_with("content-");
        let conditions = text.starts_with("if-") || [EXPECT, RANGE, ACCEPT_ENCODING].contains(name);
        !(of_the_body || conditions || is_hop_by_hop(name) || text == "prefer")
    };
    for (name, value) in parts.headers.iter().filter(|(name, _)| is_asked(name)) {
        request.headers_mut().append(name, value.clone());
    }
    request
}

/// What the answer decides, if anything.
async fn listen<R>(response: Response<R>, policy: &Policy, until: Instant) -> Option<Verdict>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    match parts.status {
        StatusCode::NOT_FOUND => Some(Verdict::Free),
        StatusCode::OK => {
            match collect(body, policy.answer_bytes_max, HeldBytes::default(), until).await {
                Collected::Whole { data, trailers, .. } => {
                    let answer: Answer =
                        answer_to_keep(&parts, AnswerBody::Kept(data), trailers, policy);
                    Some(Verdict::Complete(answer))
                }
                Collected::Over { .. } | Collected::Broken | Collected::Panicked(_) => None,
            }
        }
        _ => None,
    }
}
