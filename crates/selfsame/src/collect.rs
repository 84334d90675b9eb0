//! Reading an answer: whole where it fits, as far as needed where it does not.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

/// An answer's body, as far as it was read.
pub(crate) enum Collected<R> {
    Whole {
        data: Bytes,
        trailers: HeaderMap,
    },
    /// Longer than the limit: what was read, and what is still to come.
    Over {
        begun: Vec<Bytes>,
        rest: Pin<Box<R>>,
    },
    /// It ended in the middle, or took too long.
    Broken,
}

/// Reads `body` to its end, or until it has more than `bytes_max`.
pub(crate) async fn collect<R>(body: R, bytes_max: usize, deadline: Instant) -> Collected<R>
where
    R: Body<Data = Bytes>,
{
    let mut body = Box::pin(body);
    let mut begun: Vec<Bytes> = Vec::new();
    let mut trailers = HeaderMap::new();
    let mut len = 0;
    loop {
        match timeout_at(deadline, body.frame()).await {
            Ok(None) => return Collected::Whole { data: join(begun), trailers },
            Ok(Some(Ok(frame))) => match frame.into_data().map_err(Frame::into_trailers) {
                Ok(data) => {
                    len += data.len();
                    begun.push(data);
                    if len > bytes_max {
                        return Collected::Over { begun, rest: body };
                    }
                }
                Err(Ok(more)) => trailers.extend(more),
                Err(Err(_)) => {}
            },
            Ok(Some(Err(_))) | Err(_) => return Collected::Broken,
        }
    }
}

/// The parts in one piece.
pub(crate) fn join(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() <= 1 {
        return parts.pop().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in parts {
        whole.extend_from_slice(&part);
    }
    whole.freeze()
}
