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

use super::{Apart, Identity};
use crate::body::RequestBody;
use crate::collect::{Read, read};
use crate::grpc;
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
}

pub(crate) fn fingerprint<'a, B>(
    request: Apart<B>,
    identity: Identity,
    policy: &'a Policy,
    secret: &'a Secret,
) -> impl Future<Output = Result<Asked<B>, Refusal>> + use<'a, B>
where
    B: Body<Data = Bytes>,
{
    // Taken apart before the future is made: it would keep room for the whole besides.
    let Apart { parts, body } = request;
    let bytes_max = policy.request_bytes_max;
    async move {
        // Whoever announces too much need not send it first.
        if announces_more_than(bytes_max, &parts.headers) {
            return Err(Refusal::BodyTooLarge { bytes_max });
        }
        let mut body = pin!(body);
        // A client that sends for ever holds memory for ever.
        let read = read(body.as_mut(), bytes_max);
        let (data, trailers) = match patience::within(policy.response_timeout, read).await {
            Some(Read::Whole { data, trailers }) => (data, trailers),
            Some(Read::Over { .. }) => return Err(Refusal::BodyTooLarge { bytes_max }),
            Some(Read::Broken) | None => return Err(Refusal::BodyIncomplete),
        };
        if grpc::is_call(&parts.headers) && !grpc::is_one_message(&data) {
            return Err(Refusal::StreamingCall);
        }
        let ask = ask(identity, fingerprint_of(&parts, &data, policy, secret), policy);
        let preferred_wait = prefer::wait(&parts.headers);
        let request = Apart { parts, body: RequestBody::whole(data, trailers) };
        Ok(Asked { ask, request, preferred_wait })
    }
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
    }
}

/// Whether the headers say already that the body is longer than `bytes_max`.
pub(crate) fn announces_more_than(bytes_max: usize, headers: &HeaderMap) -> bool {
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let announced = announced.and_then(|length| length.parse::<u64>().ok());
    announced.is_some_and(|length| length > bytes_max as u64)
}

/// Which request this is.
pub(crate) fn fingerprint_of(
    parts: &Parts,
    body: &[u8],
    policy: &Policy,
    secret: &Secret,
) -> Fingerprint {
    let authority = match policy.fingerprint_authority {
        true => authority(&parts.uri, &parts.headers),
        false => None,
    };
    let counted = policy.fingerprint_headers.iter();
    let counted: Vec<CountedHeader<'_>> =
        counted.map(|name| (name.as_str(), lines(&parts.headers, name))).collect();
    let content_type = lines(&parts.headers, &CONTENT_TYPE);
    let content_encoding = lines(&parts.headers, &CONTENT_ENCODING);
    let facts = RequestFacts {
        method: &parts.method,
        authority: authority.as_deref(),
        path: parts.uri.path(),
        query: parts.uri.query(),
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
    Fingerprint::of(&facts, &rules, Some(secret))
}
