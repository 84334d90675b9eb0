//! [`Patient`]: a request's body over HTTP/2, whose rest is read even where nobody wants it, and which may
//! stand still for so long only, and keep to a least rate until its response begins.
//!
//! An answer that does not wait for the body is followed by a reset, which asks the client to stop
//! sending. Not every client gets to read the answer then; most of what is refused is small.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use selfsame::BoxError;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::background;
use crate::body_rate::{BodyRate, RateCheck};
use crate::config::Limits;
use crate::pace::{self, Awaited, Listener};

/// How much is read for nobody.
const REST_BYTES_MAX: usize = 1024 * 1024;
/// How long that may take.
const REST_TIMEOUT: Duration = Duration::from_secs(5);

const TOO_SLOW: &str = "the body is too slow";

/// A body that is read to its end, or as far as is reasonable.
pub(crate) struct Patient {
    /// There until it is dropped.
    body: Option<Incoming>,
    /// How long it may stand still.
    patience: Duration,
    /// Since when it does.
    still_since: Option<Instant>,
    /// Set while it does: what comes with its head needs none.
    timer: Option<Pin<Box<Sleep>>>,
    meter: Option<Meter>,
    /// Set when it was too slow: the rest would come as slowly, and is not waited for.
    is_cut: bool,
}

/// Measures the rate of a body.
struct Meter {
    rate: BodyRate,
    check: Arc<RateCheck>,
    bytes: u64,
    /// Time in which nothing came, although it was asked for.
    waited: Duration,
}

impl Patient {
    /// Limits `body`. The check ends when the response begins.
    pub(crate) fn new(body: Incoming, limits: &Limits) -> (Self, Option<Arc<RateCheck>>) {
        let rate = BodyRate::of(limits).filter(|_| !body.is_end_stream());
        let meter = rate.map(|rate| {
            let (check, bytes, waited) = Default::default();
            Meter { rate, check, bytes, waited }
        });
        let check = meter.as_ref().map(|meter| meter.check.clone());
        let patience = limits.body_timeout;
        let (still_since, timer, is_cut) = Default::default();
        (Self { body: Some(body), patience, still_since, timer, meter, is_cut }, check)
    }

    /// Takes note of what has come.
    fn received(&mut self, bytes: usize) {
        self.timer = None;
        let waited = self.still_since.take().map(|since| since.elapsed());
        // After so long it would have been given up, had anybody asked: its reader was busy meanwhile.
        let waited = waited.filter(|waited| *waited < self.patience);
        if let Some(meter) = &mut self.meter {
            meter.bytes += bytes as u64;
            meter.waited += waited.unwrap_or_default();
        }
    }

    /// Waits until the body has stood still for too long, or is too slow.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        let since = *self.still_since.get_or_insert_with(Instant::now);
        let still_until = since + self.patience;
        loop {
            self.meter.take_if(|meter| meter.check.has_ended());
            let slow_at = self
                .meter
                .as_ref()
                .map(|meter| since + meter.rate.time_left(meter.bytes, meter.waited));
            let slow_at = slow_at.filter(|slow_at| *slow_at < still_until);
            let deadline = slow_at.unwrap_or(still_until);
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(cx));
            if slow_at.is_none() {
                return Poll::Ready("the body stands still");
            }
            if self.meter.as_ref().is_some_and(|meter| meter.check.fail()) {
                pace::cut(Listener::Public, Awaited::BodyRate.label());
                self.is_cut = true;
                return Poll::Ready(TOO_SLOW);
            }
        }
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        let is_cut = self.is_cut;
        if let Some(rest) = self.body.take_if(|body| !is_cut && !body.is_end_stream()) {
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
        if self.is_cut {
            return Poll::Ready(Some(Err(TOO_SLOW.into())));
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            let bytes = data.map_or(0, Bytes::len);
            self.received(bytes);
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        self.poll_late(cx).map(|late| Some(Err(late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}
