//! [`Patient`]: a request's body over HTTP/2, whose rest is read even where nobody wants it, and which may
//! stand still for so long only.
//!
//! An answer that does not wait for the body is followed by a reset, which asks the client to stop
//! sending. Not every client gets to read the answer then; most of what is refused is small.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use selfsame::BoxError;
use tokio::time::{Sleep, sleep, timeout};

use crate::background;

/// How much is read for nobody.
const REST_BYTES_MAX: usize = 1024 * 1024;
/// How long that may take.
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// A body that is read to its end, or as far as is reasonable.
pub(crate) struct Patient {
    /// There until it is dropped.
    body: Option<Incoming>,
    /// How long it may stand still.
    patience: Duration,
    /// Set while it does: what comes with its head needs none.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    pub(crate) fn new(body: Incoming, patience: Duration) -> Self {
        Self { body: Some(body), patience, timer: None }
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        if let Some(rest) = self.body.take_if(|body| !body.is_end_stream()) {
            background::spawn(timeout(REST_TIMEOUT, drain(rest)));
        }
    }
}

async fn drain(mut rest: Incoming) {
    let mut read = 0;
    while let Some(Ok(frame)) = rest.frame().await
        && read < REST_BYTES_MAX
    {
        read += frame.data_ref().map_or(0, Bytes::len);
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { body, patience, timer } = &mut *self;
        let Some(body) = body else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            *timer = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let timer = timer.get_or_insert_with(|| Box::pin(sleep(*patience)));
        timer.as_mut().poll(cx).map(|()| Some(Err("the body stands still".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}
