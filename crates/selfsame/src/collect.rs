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
use crate::buffer_limit::{BufferExcess, HeldBytes};
use crate::patience;

/// An answer's body, as far as it was read.
pub(crate) enum Collected<R> {
    Whole {
        data: Bytes,
        trailers: HeaderMap,
        /// Those of `data`.
        held: HeldBytes,
    },
    /// Longer than the limit: what was read, which is counted, and what is still to come.
    Over { begun: Vec<Bytes>, rest: Pin<Box<R>> },
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
        /// Those of `data`.
        held: HeldBytes,
    },
    /// Longer than the limit: what was read of it, which is counted.
    Over { begun: Vec<Bytes> },
    /// It ended in the middle.
    Broken,
    /// There is no room for more of it. A response has always room.
    NoRoom(BufferExcess),
}

/// Reads an answer to its end, or until it has more than `bytes_max`. Its bytes are `held`.
pub(crate) async fn collect<R>(
    body: R,
    bytes_max: usize,
    held: HeldBytes,
    deadline: Instant,
) -> Collected<R>
where
    R: Body<Data = Bytes>,
{
    let mut body = Box::pin(body);
    // A body is not read on after a panic, so no one meets its broken state.
    let reading = AssertUnwindSafe(read(body.as_mut(), bytes_max, held)).catch_unwind();
    match patience::before(deadline, reading).await {
        Some(Ok(Read::Whole { data, trailers, held })) => Collected::Whole { data, trailers, held },
        Some(Ok(Read::Over { begun })) => Collected::Over { begun, rest: body },
        Some(Ok(Read::NoRoom(_))) => unreachable!("a response is never refused"),
        Some(Ok(Read::Broken)) | None => Collected::Broken,
        Some(Err(payload)) => Collected::Panicked(payload),
    }
}

/// Reads `body` to its end, or until it has more than `bytes_max`. Its bytes are `held`.
pub(crate) fn read<B>(
    body: Pin<&mut B>,
    bytes_max: usize,
    held: HeldBytes,
) -> impl Future<Output = Read>
where
    B: Body<Data = Bytes>,
{
    let mut len = 0;
    read_while(body, bytes_max, held, move |data| {
        len += data.len();
        len <= bytes_max
    })
}

/// Reads `body` to its end, or until a part of it does not make `goes_on`, which lets at most `bytes_max` pass.
pub(crate) async fn read_while<B>(
    mut body: Pin<&mut B>,
    bytes_max: usize,
    mut held: HeldBytes,
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
            Ok(data) if goes_on(&data) => {
                // More than the limit is refused, so there is never room for more.
                let most = bytes_max.saturating_sub(read.len() + data.len()) as u64;
                let to_come = body.size_hint().upper().map_or(most, |upper| upper.min(most));
                if let Err(excess) = held.grow_to(read.held_with(&data, Some(to_come))) {
                    return Read::NoRoom(excess);
                }
                read.push(data, Some(to_come));
            }
            Ok(data) => {
                let begun = [held.guard(read.into_bytes()), data].into_iter();
                return Read::Over { begun: begun.filter(|piece| !piece.is_empty()).collect() };
            }
            Err(Ok(said)) => trailers.extend(said),
            Err(Err(_)) => {}
        }
    }
    Read::Whole { data: read.into_bytes(), trailers, held }
}
