//! The bodies that go in and out of the layer.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::mpsc;

use crate::observe::TappedBody;

/// Any error a body can end with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that is all here.
#[derive(Debug, Clone, Default)]
struct Whole {
    data: Option<Bytes>,
    /// Boxed: hardly any body has some.
    trailers: Option<Box<HeaderMap>>,
}

impl Whole {
    fn new(data: Bytes, trailers: HeaderMap) -> Self {
        Self {
            data: Some(data).filter(|data| !data.is_empty()),
            trailers: (!trailers.is_empty()).then(|| Box::new(trailers)),
        }
    }

    fn next_frame(&mut self) -> Option<Frame<Bytes>> {
        let data = self.data.take().map(Frame::data);
        data.or_else(|| self.trailers.take().map(|trailers| Frame::trailers(*trailers)))
    }

    fn is_end(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let len = self.data.as_ref().map_or(0, |data| data.len() as u64);
        match self.trailers {
            None => SizeHint::with_exact(len),
            // An exact length would be sent as `Content-Length`, which leaves trailers no place.
            Some(_) => {
                let mut hint = SizeHint::new();
                hint.set_lower(len);
                hint
            }
        }
    }
}

pin_project! {
    /// What the inner service reads: the client's body as it comes, or, for a keyed request, the
    /// whole of it.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        #[pin]
        source: RequestSource<B>,
    }
}

pin_project! {
    #[project = RequestProjection]
    #[derive(Debug)]
    enum RequestSource<B> {
        // As it comes from the client.
        Streamed {
            #[pin]
            body: B,
        },
        // As it comes, and overheard.
        Tapped {
            #[pin]
            body: TappedBody<B>,
        },
        // Read before anything ran.
        Whole {
            whole: Whole,
        },
        // Looked into, and then as it comes.
        Begun {
            begun: std::vec::IntoIter<Bytes>,
            rest: Pin<Box<B>>,
        },
    }
}

impl<B> RequestBody<B> {
    pub(crate) fn streamed(body: B) -> Self {
        Self { source: RequestSource::Streamed { body } }
    }

    pub(crate) fn tapped(body: TappedBody<B>) -> Self {
        Self { source: RequestSource::Tapped { body } }
    }

    pub(crate) fn whole(data: Bytes, trailers: HeaderMap) -> Self {
        Self { source: RequestSource::Whole { whole: Whole::new(data, trailers) } }
    }

    /// The data of a whole body.
    pub(crate) fn data(&self) -> &[u8] {
        match &self.source {
            RequestSource::Whole { whole } => whole.data.as_deref().unwrap_or_default(),
            RequestSource::Streamed { .. }
            | RequestSource::Tapped { .. }
            | RequestSource::Begun { .. } => unreachable!("a keyed request was read whole"),
        }
    }

    /// What was read of a body, and what is still to come.
    pub(crate) fn begun(begun: Vec<Bytes>, rest: Pin<Box<B>>) -> Self {
        Self { source: RequestSource::Begun { begun: begun.into_iter(), rest } }
    }
}

impl<B: Body<Data = Bytes>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().source.project() {
            RequestProjection::Streamed { body } => body.poll_frame(cx),
            RequestProjection::Tapped { body } => body.poll_frame(cx),
            RequestProjection::Whole { whole } => Poll::Ready(whole.next_frame().map(Ok)),
            RequestProjection::Begun { begun, rest } => match begun.next() {
                Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
                None => rest.as_mut().poll_frame(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            RequestSource::Streamed { body } => body.is_end_stream(),
            RequestSource::Tapped { body } => body.is_end_stream(),
            RequestSource::Whole { whole } => whole.is_end(),
            RequestSource::Begun { begun, rest } => begun.len() == 0 && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            RequestSource::Streamed { body } => body.size_hint(),
            RequestSource::Tapped { body } => body.size_hint(),
            RequestSource::Whole { whole } => whole.size_hint(),
            RequestSource::Begun { begun, rest } => {
                let len: u64 = begun.as_slice().iter().map(|data| data.len() as u64).sum();
                let (to_come, mut hint) = (rest.size_hint(), SizeHint::new());
                hint.set_lower(to_come.lower() + len);
                if let Some(upper) = to_come.upper() {
                    hint.set_upper(upper + len);
                }
                hint
            }
        }
    }
}

/// A step of a body that a detached run passes on.
#[derive(Debug)]
pub(crate) enum Pumped {
    Frame(Frame<Bytes>),
    End,
    Broken(BoxError),
}

pin_project! {
    /// What the client reads.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        source: ResponseSource<B>,
    }
}

pin_project! {
    #[project = ResponseProjection]
    #[derive(Debug)]
    enum ResponseSource<B> {
        // As it comes from the inner service.
        Streamed {
            #[pin]
            body: B,
        },
        // As it comes, and overheard.
        Tapped {
            #[pin]
            body: TappedBody<B>,
        },
        // Recorded before its first byte is sent.
        Whole {
            whole: Whole,
        },
        // Too large to keep: passed on by the detached run, which goes on when the client goes.
        Pumped {
            frames: mpsc::Receiver<Pumped>,
        },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn streamed(body: B) -> Self {
        Self { source: ResponseSource::Streamed { body } }
    }

    pub(crate) fn tapped(body: TappedBody<B>) -> Self {
        Self { source: ResponseSource::Tapped { body } }
    }

    pub(crate) fn whole(data: Bytes, trailers: HeaderMap) -> Self {
        Self { source: ResponseSource::Whole { whole: Whole::new(data, trailers) } }
    }

    pub(crate) fn pumped(frames: mpsc::Receiver<Pumped>) -> Self {
        Self { source: ResponseSource::Pumped { frames } }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().source.project() {
            ResponseProjection::Streamed { body } => {
                body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            ResponseProjection::Tapped { body } => {
                body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            ResponseProjection::Whole { whole } => Poll::Ready(whole.next_frame().map(Ok)),
            ResponseProjection::Pumped { frames } => frames.poll_recv(cx).map(|next| match next {
                Some(Pumped::Frame(frame)) => Some(Ok(frame)),
                Some(Pumped::End) => None,
                Some(Pumped::Broken(error)) => Some(Err(error)),
                // The run gave up in the middle: a clean end would pass a torso off as whole.
                None => Some(Err("the answer was cut off".into())),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            ResponseSource::Streamed { body } => body.is_end_stream(),
            ResponseSource::Tapped { body } => body.is_end_stream(),
            ResponseSource::Whole { whole } => whole.is_end(),
            ResponseSource::Pumped { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            ResponseSource::Streamed { body } => body.size_hint(),
            ResponseSource::Tapped { body } => body.size_hint(),
            ResponseSource::Whole { whole } => whole.size_hint(),
            ResponseSource::Pumped { .. } => SizeHint::default(),
        }
    }
}
