//! [`Patient`]: a request's body over HTTP/2, whose rest is read even where nobody wants it.
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
use tokio::time::timeout;

use crate::background;

/// How much is read for nobody.
const REST_BYTES_MAX: usize = 1024 * 1024;
/// How long that may take.
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// A body that is read to its end, or as far as is reasonable.
pub(crate) struct Patient {
    /// There until it is dropped.
    body: Option<Incoming>,
}

impl Patient {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body: Some(body) }
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
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}
