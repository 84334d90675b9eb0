//! [`Streams`]: what can be seen of a connection of HTTP/2, whose requests come and go independently.
//!
//! The connection as a whole is closed when none of its answers is taken. One answer that is left lying
//! while others are taken is seen by its own task, in `stream_executor`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame_watch::{Flood, FrameWatch};
use super::stream_executor::{all_taken, portion_handed_over};
use crate::pace::{self, Awaited, Listener, Pulse};

/// How much of an answer is handed over at once: a frame. The rest waits here, where it is seen, until the
/// client has taken of it.
const PORTION: usize = 16 * 1024;

/// What is written without an answer being taken: a ping, and what is said beside it.
const CHATTER: usize = 64;

/// Control frames that a client may send more for each request.
const FRAMES_PER_REQUEST: u32 = 50;
/// The same for each part of an answer, however small. A client may update two windows for each.
const FRAMES_PER_PORTION: u32 = 16;
/// Bytes of an answer for which it may send one more besides: windows of a few hundred bytes are in use.
const BYTES_PER_FRAME: usize = 256;

/// The pulse of a connection of HTTP/2.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// How many requests are open.
    open: AtomicU32,
    /// How many answers have more, once the client takes what it was given.
    untaken: AtomicU32,
    is_writing: AtomicBool,
    moves: AtomicU32,
    /// Control frames that the client has earned since frames were last read.
    earned_frames: AtomicU32,
}

impl Streams {
    /// Counts a request.
    pub(crate) fn open(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.moves.fetch_add(1, Ordering::Relaxed);
        self.earned_frames.fetch_add(FRAMES_PER_REQUEST, Ordering::Relaxed);
        Open { streams: self.clone(), is_untaken: false }
    }
}

impl Pulse for Streams {
    fn forget(&self) {
        self.is_writing.store(false, Ordering::Relaxed);
    }

    fn feel(&self) -> (Awaited, u32) {
        let is_untaken = self.untaken.load(Ordering::Relaxed) > 0;
        let awaited = match self.open.load(Ordering::Relaxed) {
            _ if is_untaken || self.is_writing.load(Ordering::Relaxed) => Awaited::Taking,
            0 => Awaited::Next,
            _ => Awaited::Nothing,
        };
        (awaited, self.moves.load(Ordering::Relaxed))
    }
}

impl Streams {
    /// Whether the connection takes no more bytes at the moment.
    pub(super) fn is_writing(&self) -> bool {
        self.is_writing.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn set_writing(&self, is_writing: bool) {
        self.is_writing.store(is_writing, Ordering::Relaxed);
    }
}

/// A request that is open until its answer is over.
#[derive(Debug)]
pub(crate) struct Open {
    streams: Arc<Streams>,
    is_untaken: bool,
}

impl Open {
    /// Its answer.
    pub(crate) fn answer<B>(self, body: B) -> Portioned<B> {
        Portioned { body, rest: Bytes::new(), is_large: false, open: self }
    }

    fn is_untaken(&mut self, is_untaken: bool) {
        let was = std::mem::replace(&mut self.is_untaken, is_untaken);
        let (more, less) = (u32::from(is_untaken), u32::from(was));
        self.streams.untaken.fetch_add(more.wrapping_sub(less), Ordering::Relaxed);
        self.streams.moves.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.is_untaken(false);
        self.streams.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer that is handed over as the client takes it.
pub(crate) struct Portioned<B> {
    body: B,
    /// Of the last frame.
    rest: Bytes,
    /// Set where a part of the last frame was handed over already.
    is_large: bool,
    open: Open,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Portioned<B> {
    type Data = Bytes;
    type Error = B::Error;

    /// Asked only once the client has room for more.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self { body, rest, is_large, open } = &mut *self;
        if rest.is_empty() {
            let polled = Pin::new(body).poll_frame(cx);
            match polled {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => *rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                nothing => {
                    all_taken();
                    open.is_untaken(false);
                    return nothing;
                }
            }
        }
        open.is_untaken(true);
        portion_handed_over();
        let portion = match rest.len() > PORTION {
            true => {
                *is_large = true;
                rest.split_to(PORTION)
            }
            // The last of a large frame: h2 may hold it for long, and the whole frame would be held with it.
            false if std::mem::take(is_large) => Bytes::copy_from_slice(&std::mem::take(rest)),
            false => std::mem::take(rest),
        };
        let frames = u32::try_from(portion.len() / BYTES_PER_FRAME).expect("a portion is short");
        let earned = &open.streams.earned_frames;
        earned.fetch_add(FRAMES_PER_PORTION + frames, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(portion))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (left, hint) = (self.rest.len() as u64, self.body.size_hint());
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + left);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + left);
        }
        whole
    }
}

/// A connection of which is noted whether it takes what is written, and whose client may not send control
/// frames without end.
pub(crate) struct Noted<S> {
    stream: S,
    streams: Arc<Streams>,
    frames: FrameWatch,
}

impl<S> Noted<S> {
    pub(crate) fn new(stream: S, streams: Arc<Streams>) -> Self {
        Self { stream, streams, frames: FrameWatch::new() }
    }

    fn note(&self, wrote: &Poll<io::Result<usize>>) {
        self.streams.is_writing.store(wrote.is_pending(), Ordering::Relaxed);
        if matches!(wrote, Poll::Ready(Ok(bytes)) if *bytes > CHATTER) {
            self.streams.moves.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, streams, frames } = &mut *self;
        if frames.is_turn_over() {
            frames.begin_turn();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let begun = buf.filled().len();
        let Poll::Ready(read) = Pin::new(stream).poll_read(cx, buf) else {
            frames.begin_turn();
            return Poll::Pending;
        };
        read?;
        if streams.earned_frames.load(Ordering::Relaxed) > 0 {
            frames.earn(streams.earned_frames.swap(0, Ordering::Relaxed));
        }
        Poll::Ready(frames.read(&buf.filled()[begun..]).map_err(|Flood| {
            pace::cut(Listener::Public, "h2_flood");
            io::Error::other("the client floods its connection with control frames")
        }))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(&wrote);
        wrote
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(&wrote);
        wrote
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
