//! [`TappedBody`]: a body that goes on as it comes, and is overheard.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::oneshot;

use crate::body_buffer::BodyBuffer;

/// What was heard of a body. Nothing at all where it was dropped before its end.
#[derive(Debug)]
pub(super) enum Tapped {
    Whole {
        data: Bytes,
        trailers: HeaderMap,
    },
    /// Longer than the limit.
    Over,
    /// It ended in an error.
    Broken,
}

pin_project! {
    /// A body that goes on as it comes, and is overheard.
    #[derive(Debug)]
    pub(crate) struct TappedBody<B> {
        #[pin]
        body: B,
        tap: Tap,
    }
}

/// `body`, and what will be heard of it: no more than `bytes_max`.
pub(super) fn tap<B: Body<Data = Bytes>>(
    body: B,
    bytes_max: usize,
) -> (TappedBody<B>, oneshot::Receiver<Tapped>) {
    let (tell, tapped) = oneshot::channel();
    let (heard, trailers) = (BodyBuffer::default(), HeaderMap::new());
    let mut tap = Tap { tell: Some(tell), heard, trailers, room: bytes_max };
    tap.end_if(body.is_end_stream());
    (TappedBody { body, tap }, tapped)
}

#[derive(Debug)]
struct Tap {
    /// None once everything was told.
    tell: Option<oneshot::Sender<Tapped>>,
    heard: BodyBuffer,
    trailers: HeaderMap,
    room: usize,
}

impl Tap {
    fn hear(&mut self, data: &Bytes, to_come: Option<u64>) {
        if self.tell.as_ref().is_none_or(oneshot::Sender::is_closed) {
            self.heard = BodyBuffer::default();
            return;
        }
        match self.room.checked_sub(data.len()) {
            Some(room) => {
                self.room = room;
                self.heard.push(data.clone(), to_come);
            }
            None => self.tell(Tapped::Over),
        }
    }

    fn end_if(&mut self, is_over: bool) {
        if is_over {
            let data = std::mem::take(&mut self.heard).into_bytes();
            let trailers = std::mem::take(&mut self.trailers);
            self.tell(Tapped::Whole { data, trailers });
        }
    }

    fn tell(&mut self, tapped: Tapped) {
        self.heard = BodyBuffer::default();
        if let Some(tell) = self.tell.take() {
            let _nobody_listens = tell.send(tapped);
        }
    }
}

impl<B: Body<Data = Bytes>> Body for TappedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let polled = ready!(this.body.as_mut().poll_frame(cx));
        match &polled {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.tap.hear(data, this.body.size_hint().upper());
                }
                if let Some(trailers) = frame.trailers_ref() {
                    this.tap.trailers = trailers.clone();
                }
                // Who knows that this was the last frame does not ask for another.
                this.tap.end_if(this.body.is_end_stream());
            }
            Some(Err(_)) => this.tap.tell(Tapped::Broken),
            None => this.tap.end_if(true),
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
