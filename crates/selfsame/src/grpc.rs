//! gRPC: what tells its calls, what one message looks like, and what a status says.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};

use crate::outcome::Outcome;

/// The media type of a call.
pub(crate) const GRPC: &str = "application/grpc";
/// How a call ended: in the trailers, or in the head of an answer that has nothing else.
pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Before each message: whether it is compressed, and its length.
const PREFIX_LEN: usize = 5;

/// Whether these are the headers of a gRPC call. gRPC-Web is not: its trailers are in the body.
pub(crate) fn is_call(headers: &HeaderMap) -> bool {
    let kind =
        headers.get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().split_at_checked(GRPC.len()));
    kind.is_some_and(|(name, rest)| {
        name.eq_ignore_ascii_case(GRPC.as_bytes())
            && matches!(rest.first(), None | Some(b'+' | b';'))
    })
}

/// Whether a call's body is one whole message, as that of every unary call is. A path does not
/// tell whether its method streams.
pub(crate) fn is_one_message(body: &[u8]) -> bool {
    let Some(([0 | 1, length @ ..], message)) = body.split_first_chunk::<PREFIX_LEN>() else {
        return false;
    };
    u32::from_be_bytes(*length) as usize == message.len()
}

/// What the status among these headers or trailers says; nothing where there is none.
pub(crate) fn outcome(headers: &HeaderMap) -> Option<Outcome> {
    let status = headers.get(GRPC_STATUS)?;
    Some(match status.as_bytes() {
        b"0" => Outcome::Final,                     // OK
        b"3" | b"5" | b"6" => Outcome::Final,       // INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS
        b"9" | b"11" | b"12" => Outcome::Final, // FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED
        b"7" | b"16" => Outcome::Denied,        // PERMISSION_DENIED, UNAUTHENTICATED
        b"8" | b"10" | b"14" => Outcome::Transient, // RESOURCE_EXHAUSTED, ABORTED, UNAVAILABLE
        b"1" | b"4" => Outcome::Unknown,        // CANCELLED, DEADLINE_EXCEEDED
        _ => Outcome::ServerError, // UNKNOWN, INTERNAL, DATA_LOSS; and what is no status
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn calls_are_told_by_their_type() {
        let with = |kind: &'static str| {
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))])
        };
        for kind in ["application/grpc", "application/grpc+proto", "Application/GRPC; x=1"] {
            assert!(is_call(&with(kind)), "{kind}");
        }
        for kind in ["application/grpc-web", "application/grpc-web+proto", "application/json", ""] {
            assert!(!is_call(&with(kind)), "{kind}");
        }
        assert!(!is_call(&HeaderMap::new()));
    }

    #[test]
    fn statuses_are_sorted_as_the_contract_says() {
        let table = [
            (Outcome::Final, &[0, 3, 5, 6, 9, 11, 12][..]),
            (Outcome::Denied, &[7, 16]),
            (Outcome::Transient, &[8, 10, 14]),
            (Outcome::ServerError, &[2, 13, 15, 17, 99]),
            (Outcome::Unknown, &[1, 4]),
        ];
        for (expected, statuses) in table {
            for &status in statuses {
                let headers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from(status))]);
                assert_eq!(outcome(&headers), Some(expected), "{status}");
            }
        }
        assert_eq!(outcome(&HeaderMap::new()), None);
    }

    #[test]
    fn a_unary_call_is_one_whole_message() {
        let message = |text: &str| {
            let length = u32::try_from(text.len()).expect("short").to_be_bytes();
            [&[0][..], &length, text.as_bytes()].concat()
        };
        assert!(is_one_message(&message("")));
        assert!(is_one_message(&message("ten")));
        assert!(is_one_message(b"\x01\0\0\0\x01z"), "compressed");
        let two = [message("ten"), message("")].concat();
        let cut = &message("ten")[..6];
        for other in [&b""[..], b"\0\0\0\0", b"\x02\0\0\0\0", cut, &two] {
            assert!(!is_one_message(other), "{}", other.escape_ascii());
        }
    }
}
