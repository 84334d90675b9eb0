//! Reading a body: whole where it fits, as far as needed where it does not.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::patience;

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
    /// The body panicked, which is the handler's crash as well.
    Panicked(Box<dyn Any + Send>),
}

/// A body, as far as it was read.
pub(crate) enum Read {
    Whole {
        data: Bytes,
        trailers: HeaderMap,
    },
    /// Longer than the limit: what was read of it.
    Over {
        begun: Vec<Bytes>,
    },
    /// It ended in the middle.
    Broken,
}

/// Reads an answer to its end, or until it has more than `bytes_max`.
pub(crate) async fn collect<R>(body: R, bytes_max: usize, deadline: Instant) -> Collected<R>
where
    R: Body<Data = Bytes>,
{
    let mut body = Box::pin(body);
    // A body is not read on after a panic, so no one meets its broken state.
    let reading = AssertUnwindSafe(read(body.as_mut(), bytes_max)).catch_unwind();
    match patience::before(deadline, reading).await {
        Some(Ok(Read::Whole { data, trailers })) => Collected::Whole { data, trailers },
        Some(Ok(Read::Over { begun })) => Collected::Over { begun, rest: body },
        Some(Ok(Read::Broken)) | None => Collected::Broken,
        Some(Err(payload)) => Collected::Panicked(payload),
    }
}

/// Reads `body` to its end, or until it has more than `bytes_max`.
pub(crate) fn read<B>(body: Pin<&mut B>, bytes_max: usize) -> impl Future<Output = Read>
where
    B: Body<Data = Bytes>,
{
    let mut len = 0;
    read_while(body, move |data| {
        len += data.len();
        len <= bytes_max
    })
}

/// Reads `body` to its end, or until a part of it does not make `goes_on`.
pub(crate) async fn read_while<B>(
    mut body: Pin<&mut B>,
    mut goes_on: impl FnMut(&Bytes) -> bool,
) -> Read
where
    B: Body<Data = Bytes>,
{
    // Most come in one piece, and need no list.
    let mut first = Bytes::new();
    let mut more: Vec<Bytes> = Vec::new();
    let mut trailers = HeaderMap::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Read::Broken };
        match frame.into_data().map_err(Frame::into_trailers) {
            Ok(data) => {
                let goes_on = goes_on(&data);
                if first.is_empty() {
                    first = data;
                } else {
                    more.push(data);
                }
                if !goes_on {
                    more.insert(0, first);
                    return Read::Over { begun: more };
                }
            }
            Err(Ok(said)) => trailers.extend(said),
            Err(Err(_)) => {}
        }
    }
    if !more.is_empty() {
        more.insert(0, first);
        first = join(more);
    }
    Read::Whole { data: first, trailers }
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
