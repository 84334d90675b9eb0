//! [`Trace`]: what a retry would have got, as an observed record keeps it.
//!
//! A record that would be held is kept as completed all the same: nobody could resolve it, and a
//! held one never expires. No header and no body of an answer is kept, only the body's digest.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use selfsame_core::headers::IDEMPOTENCY_OUTCOME;
use selfsame_core::{Answer, AnswerBody, Secret};

/// What a retry would have got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trace {
    /// This answer.
    Answer { status: StatusCode, digest: Bytes },
    /// An answer that nobody heard to its end, because the client left; the work would have gone on.
    Unheard,
    /// That the answer was not kept.
    NotKept { status: StatusCode },
    /// That the outcome is unknown.
    Held,
}

impl Trace {
    /// Of an answer with this body.
    pub(super) fn answer(status: StatusCode, body: &[u8], secret: &Secret) -> Self {
        let digest = secret.tag("observed/answer", &[body]);
        Self::Answer { status, digest: Bytes::copy_from_slice(&digest) }
    }

    /// As a record keeps it.
    pub(super) fn to_answer(&self) -> Answer {
        let (status, body) = match self {
            Self::Answer { status, digest } => (*status, AnswerBody::Kept(digest.clone())),
            Self::NotKept { status } => (*status, AnswerBody::NotKept),
            Self::Unheard => (client_left(), AnswerBody::Kept(Bytes::new())),
            Self::Held => (StatusCode::CONFLICT, AnswerBody::Kept(Bytes::new())),
        };
        let mut headers = HeaderMap::new();
        if *self == Self::Held {
            headers.insert(IDEMPOTENCY_OUTCOME, HeaderValue::from_static("unknown"));
        }
        Answer { status, headers, body, trailers: HeaderMap::new() }
    }

    /// From what a record kept.
    pub(super) fn of(answer: Answer) -> Self {
        let Answer { status, headers, body, .. } = answer;
        match body {
            _ if headers.contains_key(IDEMPOTENCY_OUTCOME) => Self::Held,
            AnswerBody::NotKept | AnswerBody::Sealed(_) => Self::NotKept { status },
            AnswerBody::Kept(digest) if digest.is_empty() => Self::Unheard,
            AnswerBody::Kept(digest) => Self::Answer { status, digest },
        }
    }

    /// Whether `second` was heard to its end and is another answer than this one.
    pub(super) fn differs_from(&self, second: &Self) -> bool {
        let is_known = |trace: &Self| matches!(trace, Self::Answer { .. } | Self::NotKept { .. });
        matches!(self, Self::Answer { .. }) && is_known(second) && self != second
    }
}

/// The status by which servers' logs know a client that has closed its connection.
fn client_left() -> StatusCode {
    StatusCode::from_u16(499).expect("three digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces() -> [Trace; 5] {
        let secret = Secret::from_bytes(b"test");
        [
            Trace::answer(StatusCode::CREATED, b"charge 1", &secret),
            Trace::answer(StatusCode::NO_CONTENT, b"", &secret),
            Trace::Unheard,
            Trace::NotKept { status: StatusCode::CREATED },
            Trace::Held,
        ]
    }

    #[test]
    fn a_record_gives_back_what_it_was_given() {
        for trace in traces() {
            assert_eq!(Trace::of(trace.to_answer()), trace);
        }
    }

    #[test]
    fn only_whole_answers_differ() {
        let [created, empty, unheard, not_kept, held] = traces();
        assert!(created.differs_from(&empty) && created.differs_from(&not_kept));
        for other in [&created, &unheard, &held] {
            assert!(!created.differs_from(other), "{other:?}");
            assert!(!unheard.differs_from(other), "{other:?}");
        }
        assert!(!not_kept.differs_from(&created), "nobody knows what it was");
    }
}
