//! [`Room`]: how much there is for clients, and how much of it is taken.
//!
//! One request too many is refused before its body is read and before the store is asked: what runs
//! already goes on as if nothing had happened.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, RwLock};
use selfsame::Idempotency;
use tokio::time::Instant;

use crate::config::Limits;

/// How often is said that something is too much.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// How much there is for clients, on all threads together.
pub(crate) struct Room {
    limits: RwLock<Arc<Limits>>,
    requests_max: AtomicUsize,
    /// Held once here, and once by each request until its answer is over.
    seats: Arc<()>,
    idempotency: Idempotency,
    full: Seldom,
}

/// A request's place among those that are under way.
#[derive(Debug)]
pub(crate) struct Seat(#[expect(dead_code, reason = "it is held")] Arc<()>);

impl Room {
    pub(crate) fn new(limits: Limits, idempotency: Idempotency) -> Self {
        let (seats, full) = Default::default();
        let requests_max = AtomicUsize::new(limits.requests_max);
        Self { limits: RwLock::new(Arc::new(limits)), requests_max, seats, idempotency, full }
    }

    /// What counts for a connection that comes now.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limits.read().clone()
    }

    /// Other limits, from now on.
    pub(crate) fn change(&self, limits: Limits) {
        *self.limits.write() = Arc::new(limits);
        self.requests_max.store(limits.requests_max, Ordering::Relaxed);
    }

    /// A seat for one request more, if there is one. Work whose client has left has one, too; those
    /// who wait for another's run have a limit of their own.
    pub(crate) fn seat(&self) -> Option<Seat> {
        let asked = Arc::strong_count(&self.seats) - 1;
        let busy = asked.max(self.idempotency.running());
        let max = self.requests_max.load(Ordering::Relaxed);
        if busy >= max && busy.saturating_sub(self.idempotency.waiting()) >= max {
            metrics::counter!("selfsame_shed_requests_total").increment(1);
            if self.full.is_due() {
                tracing::warn!(max, "too many requests are under way: others are refused");
            }
            return None;
        }
        Some(Seat(self.seats.clone()))
    }
}

/// Says when something that happens often may be said again.
#[derive(Default)]
pub(crate) struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    pub(crate) fn is_due(&self) -> bool {
        let mut said = self.0.lock();
        let is_due = said.is_none_or(|said| said.elapsed() >= SAID_EVERY);
        if is_due {
            *said = Some(Instant::now());
        }
        is_due
    }
}

/// An answer, which keeps its request's seat to its end.
pub(crate) struct Seated<B> {
    pub(crate) body: B,
    pub(crate) _seat: Option<Seat>,
}

impl<B: Body + Unpin> Body for Seated<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
