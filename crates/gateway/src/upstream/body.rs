//! Bodies on their way to an upstream and back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use selfsame::BoxError;

use super::http2::Slot;
use crate::address_limit::RunPermit;
use crate::request_head::{HeadRules, clean_trailers};

/// The body of a request, without trailers that belong into a head.
pub(super) struct Outgoing {
    pub(super) body: UnsyncBoxBody<Bytes, BoxError>,
    pub(super) head_rules: Arc<HeadRules>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { body, head_rules } = &mut *self;
        Pin::new(body).poll_frame(cx).map_ok(|mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                head_rules.clean_trailers(trailers);
            }
            frame
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The upstream's answer, with its place on the connection it comes over.
pub(crate) struct Answered {
    body: Incoming,
    _slot: Option<Slot>,
    /// Counts the run of a large response until it is read, also if its client is gone.
    pub(super) permit: Option<RunPermit>,
}

impl Answered {
    pub(super) fn new(body: Incoming, slot: Option<Slot>) -> Self {
        Self { body, _slot: slot, permit: None }
    }
}

impl Body for Answered {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx).map_ok(|mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                clean_trailers(trailers, |_| false);
            }
            frame
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
