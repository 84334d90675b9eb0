//! Reading a body: whole where it fits, as far as needed where it does not.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::FutureExt;
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::body_buffer::BodyBuffer;
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
    let mut read = BodyBuffer::default();
    let mut trailers = HeaderMap::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Read::Broken };
        match frame.into_data().map_err(Frame::into_trailers) {
            Ok(data) if goes_on(&data) => read.push(data, body.size_hint().upper()),
            Ok(data) => {
                let begun = [read.into_bytes(), data].into_iter();
                return Read::Over { begun: begun.filter(|piece| !piece.is_empty()).collect() };
            }
            Err(Ok(said)) => trailers.extend(said),
            Err(Err(_)) => {}
        }
    }
    Read::Whole { data: read.into_bytes(), trailers }
}
