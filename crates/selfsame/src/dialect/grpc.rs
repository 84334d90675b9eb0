//! Refusals to gRPC clients, which read a status in the trailers and nothing else.

use std::fmt::Write;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};
use selfsame_core::{Problem, ProblemDetails};

use crate::grpc::{GRPC, GRPC_STATUS};

const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// How long a client's own retry shall wait; a negative number forbids it.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// An answer that is nothing but its trailers, which gRPC sends as headers then.
pub(super) fn trailers_only(details: &ProblemDetails) -> Response<Bytes> {
    let problem = details.problem;
    let message = percent_encoded(&format!("{}: {}", problem.title(), details.detail));
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert(GRPC_STATUS, HeaderValue::from(code(problem)));
    headers.insert(GRPC_MESSAGE, HeaderValue::from_str(&message).expect("percent-encoded"));
    let pushback = if problem.is_retryable() { "1000" } else { "-1" };
    headers.insert(PUSHBACK, HeaderValue::from_static(pushback));
    response
}

/// The status code that says most nearly the same.
fn code(problem: Problem) -> u16 {
    match problem {
        Problem::UpstreamFailed { .. } => 2,            // UNKNOWN
        Problem::MissingKey | Problem::InvalidKey => 3, // INVALID_ARGUMENT
        Problem::KeyReused => 3,                        // INVALID_ARGUMENT
        Problem::UpstreamTimeout => 4,                  // DEADLINE_EXCEEDED
        Problem::BodyTooLarge | Problem::TooManyKeys | Problem::TooManyRequests => 8, // RESOURCE_EXHAUSTED
        Problem::OutcomeUnknown | Problem::ResponseNotKept => 9, // FAILED_PRECONDITION
        Problem::KeyExpired => 9,                                // FAILED_PRECONDITION
        Problem::InProgress => 10,                               // ABORTED
        Problem::StreamingCall => 12,                            // UNIMPLEMENTED
        Problem::BodyIncomplete | Problem::UpstreamUnreachable => 14, // UNAVAILABLE
        Problem::StoreUnavailable | Problem::AuthUnavailable | Problem::Overloaded => 14, // UNAVAILABLE
        Problem::RecordDamaged => 15, // DATA_LOSS
        Problem::MissingTenant => 16, // UNAUTHENTICATED
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => write!(encoded, "%{byte:02X}").expect("a string takes all"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_status_with_a_message_and_a_word_on_retries() {
        let details = ProblemDetails::new(Problem::OutcomeUnknown, "50 % naïve\n");
        let response = trailers_only(&details);
        let header = |name: &HeaderName| response.headers()[name].to_str().expect("ASCII");
        assert_eq!((response.status().as_u16(), response.body().len()), (200, 0));
        assert_eq!(header(&GRPC_STATUS), "9");
        assert!(header(&GRPC_MESSAGE).ends_with(": 50 %25 na%C3%AFve%0A"));
        assert_eq!(header(&PUSHBACK), "-1");
    }
}
