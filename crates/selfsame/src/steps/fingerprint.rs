//! Step 3: the whole body is read, and which request the key stands for is known.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http_body::Body;
use selfsame_core::headers::{authority, lines};
use selfsame_core::{
    Ask, AttemptId, CountedHeader, Fingerprint, FingerprintRules, RequestFacts, Secret,
};

use super::{Apart, Identity, has_no_other_key};
use crate::body::RequestBody;
use crate::buffer_limit::{BufferAllowance, HeldBytes};
use crate::collect::{Read, read};
use crate::grpc;
use crate::original_uri::OriginalUri;
use crate::patience;
use crate::policy::Policy;
use crate::prefer;
use crate::reject::Refusal;

/// A request that is ready to be claimed and run.
pub(crate) struct Asked<B> {
    pub(crate) ask: Ask,
    pub(crate) request: Apart<RequestBody<B>>,
    /// How long the client would rather wait than be refused.
    pub(crate) preferred_wait: Option<Duration>,
    /// Whether callers who do not know of each other have its tenant in common.
    pub(crate) is_shared: bool,
}

/// The body of a request, read to its end.
pub(crate) struct Whole {
    pub(super) data: Bytes,
    pub(super) trailers: HeaderMap,
}

impl Whole {
    /// The same, unless the route has keys in bodies and there is one besides that of the headers.
    pub(crate) fn with_no_other_key(self, parts: &Parts, policy: &Policy) -> Result<Self, Refusal> {
        has_no_other_key(parts, &self.data, policy).map(|()| self)
    }
}

/// Reads the body. The future borrows nothing, so that whoever waits for it holds little besides.
pub(crate) fn read_whole<B>(
    Apart { parts, body }: Apart<B>,
    policy: &Policy,
) -> (Box<Parts>, impl Future<Output = Result<Whole, Refusal>> + use<B>)
where
    B: Body<Data = Bytes>,
{
    let (bytes_max, time) = (policy.request_bytes_max, policy.response_timeout);
    // Whoever announces too much need not send it first.
    let fits = fits(&parts, bytes_max);
    let held = HeldBytes::of_request(parts.extensions.get());
    let whole = async move {
        fits?;
        let body = pin!(body);
        // A client that sends for ever holds memory for ever.
        match patience::within(time, read(body, bytes_max, held)).await {
            Some(Read::Whole { data, trailers, held }) => {
                Ok(Whole { data: held.guard(data), trailers })
            }
            Some(Read::Over { .. }) => Err(Refusal::BodyTooLarge { bytes_max }),
            Some(Read::NoRoom(excess)) => Err(Refusal::NoRoom(excess)),
            Some(Read::Broken) | None => Err(Refusal::BodyIncomplete),
        }
    };
    (parts, whole)
}

/// Tells if a body of the length that its headers announce may come.
fn fits(parts: &Parts, bytes_max: usize) -> Result<(), Refusal> {
    let announced = announced_length(&parts.headers).unwrap_or_default();
    let announced = usize::try_from(announced).unwrap_or(usize::MAX);
    if announced > bytes_max {
        return Err(Refusal::BodyTooLarge { bytes_max });
    }
    match parts.extensions.get::<BufferAllowance>() {
        Some(allowance) => allowance.check(announced).map_err(Refusal::NoRoom),
        None => Ok(()),
    }
}

/// The request as it is asked for.
pub(crate) fn fingerprint<B>(
    parts: Box<Parts>,
    whole: Whole,
    identity: Identity,
    policy: &Policy,
    secret: &Secret,
) -> Result<Asked<B>, Refusal> {
    let Whole { data, trailers } = whole;
    if grpc::is_call(&parts.headers) && !grpc::is_one_message(&data) {
        return Err(Refusal::StreamingCall);
    }
    let is_shared = identity.is_shared;
    let ask = ask(identity, fingerprint_of(&parts, &data, policy, secret), policy);
    let preferred_wait = prefer::wait(&parts.headers);
    let request = Apart { parts, body: RequestBody::whole(data, trailers) };
    Ok(Asked { ask, request, preferred_wait, is_shared })
}

/// The wish to run a request with this fingerprint.
pub(crate) fn ask(identity: Identity, fingerprint: Fingerprint, policy: &Policy) -> Ask {
    Ask {
        id: identity.id,
        fingerprint,
        attempt_id: AttemptId::random(),
        lease: policy.lease,
        retention: policy.retention,
        remember: policy.remember,
        recover: policy.recover,
        label: identity.label,
        keepsake: None,
    }
}

/// Whether the headers say already that the body is longer than `bytes_max`.
pub(crate) fn announces_more_than(bytes_max: usize, headers: &HeaderMap) -> bool {
    announced_length(headers).is_some_and(|length| length > bytes_max as u64)
}

fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Which request this is.
pub(crate) fn fingerprint_of(
    parts: &Parts,
    body: &[u8],
    policy: &Policy,
    secret: &Secret,
) -> Fingerprint {
    with_facts(parts, body, policy, |facts, rules| Fingerprint::of(facts, rules, Some(secret)))
}

/// Gives `then` what a request is made of, and how it is compared.
pub(super) fn with_facts<T>(
    parts: &Parts,
    body: &[u8],
    policy: &Policy,
    then: impl FnOnce(&RequestFacts<'_>, &FingerprintRules<'_>) -> T,
) -> T {
    let authority = match policy.fingerprint_authority {
        true => authority(&parts.uri, &parts.headers),
        false => None,
    };
    let uri = OriginalUri::of(parts);
    let counted = policy.fingerprint_headers.iter();
    let counted: Vec<CountedHeader<'_>> =
        counted.map(|name| (name.as_str(), lines(&parts.headers, name))).collect();
    let content_type = lines(&parts.headers, &CONTENT_TYPE);
    let content_encoding = lines(&parts.headers, &CONTENT_ENCODING);
    let facts = RequestFacts {
        method: &parts.method,
        authority: authority.as_deref(),
        path: uri.path(),
        query: uri.query(),
        content_type: content_type.as_deref(),
        content_encoding: content_encoding.as_deref(),
        headers: &counted,
        body,
    };
    let rules = FingerprintRules {
        form: policy.fingerprint,
        ignore: &policy.ignore,
        unpacked_bytes_max: policy.request_bytes_max,
    };
    then(&facts, &rules)
}
