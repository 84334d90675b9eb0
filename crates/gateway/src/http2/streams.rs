//! [`Streams`]: what can be seen of a connection of HTTP/2, whose requests come and go independently.
//!
//! A client that leaves one answer lying and takes others is not told from a busy one: what is left
//! lying is bounded by the number of its requests.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::pace::{Awaited, Pulse};

/// How much of an answer is handed over at once. The rest waits here, where it is seen, until the client
/// has taken of it.
const PORTION: usize = 64 * 1024;

/// What is written without an answer being taken: a ping, and what is said beside it.
const CHATTER: usize = 64;

/// The pulse of a connection of HTTP/2.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// How many requests are open.
    open: AtomicU32,
    /// How many answers have more, once the client takes what it was given.
    untaken: AtomicU32,
    is_writing: AtomicBool,
    moves: AtomicU32,
}

impl Streams {
    /// Counts a request.
    pub(crate) fn open(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.moves.fetch_add(1, Ordering::Relaxed);
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

/// A request that is open until its answer is over.
#[derive(Debug)]
pub(crate) struct Open {
    streams: Arc<Streams>,
    is_untaken: bool,
}

impl Open {
    /// Its answer.
    pub(crate) fn answer<B>(self, body: B) -> Portioned<B> {
        Portioned { body, rest: Bytes::new(), open: self }
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
        let Self { body, rest, open } = &mut *self;
        if rest.is_empty() {
            let polled = Pin::new(body).poll_frame(cx);
            match polled {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => *rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                nothing => {
                    open.is_untaken(false);
                    return nothing;
                }
            }
        }
        open.is_untaken(true);
        let portion = rest.split_to(rest.len().min(PORTION));
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

/// A connection of which is noted whether it takes what is written.
pub(crate) struct Noted<S> {
    stream: S,
    streams: Arc<Streams>,
}

impl<S> Noted<S> {
    pub(crate) fn new(stream: S, streams: Arc<Streams>) -> Self {
        Self { stream, streams }
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
        Pin::new(&mut self.stream).poll_read(cx, buf)
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
