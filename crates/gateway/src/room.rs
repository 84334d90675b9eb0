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
use ipnet::IpNet;
use parking_lot::{Mutex, RwLock};
use selfsame::{Idempotency, Problem};
use tokio::time::Instant;

use crate::address_limit::{
    AddressLimits, ConnectionPermit, Excess, MAX_ABANDONED_REQUESTS, RequestPermit,
};
use crate::config::Limits;
use crate::peer::Peer;
use crate::telemetry;

/// How often is said that something is too much.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// How much there is for clients, on all threads together.
pub(crate) struct Room {
    limits: RwLock<Arc<Limits>>,
    requests_max: AtomicUsize,
    /// Held once here, and once by each request until its answer is over, or the tunnel it began.
    seats: Arc<()>,
    pub(crate) addresses: Arc<AddressLimits>,
    /// Peers whose connections carry requests of many clients.
    trusted_proxies: RwLock<Arc<[IpNet]>>,
    idempotency: Idempotency,
    full: Seldom,
    address_full: Seldom,
    abandoned_full: Seldom,
}

/// A request's place among those that are under way.
pub(crate) struct Seat {
    pub(crate) _whole: WholePermit,
    pub(crate) _address: RequestPermit,
}

/// Counts a request among those of all addresses until it is dropped.
pub(crate) struct WholePermit(#[expect(dead_code, reason = "it is held")] Arc<()>);

impl Room {
    pub(crate) fn new(limits: Limits, trusted: &[IpNet], idempotency: Idempotency) -> Self {
        let (seats, full, address_full, abandoned_full) = Default::default();
        Self {
            limits: RwLock::new(Arc::new(limits)),
            requests_max: AtomicUsize::new(limits.requests_max),
            seats,
            addresses: AddressLimits::new(&limits),
            trusted_proxies: RwLock::new(trusted.into()),
            idempotency,
            full,
            address_full,
            abandoned_full,
        }
    }

    /// What counts for a connection that comes now.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limits.read().clone()
    }

    /// Other limits, from now on.
    pub(crate) fn change(&self, limits: Limits, trusted: &[IpNet]) {
        *self.limits.write() = Arc::new(limits);
        *self.trusted_proxies.write() = trusted.into();
        self.addresses.set(&limits);
        self.requests_max.store(limits.requests_max, Ordering::Relaxed);
    }

    /// Counts a connection against its peer's address; none where many clients share it.
    pub(crate) fn connection(&self, peer: &Peer) -> Result<Option<ConnectionPermit>, Excess> {
        match peer.is_among(&self.trusted_proxies.read()) {
            true => Ok(None),
            false => self.addresses.connection(peer.ip()).map(Some),
        }
    }

    /// Counts one request more, unless there are too many. Work whose client has left is counted, too; those
    /// who wait for another's run have a limit of their own.
    pub(crate) fn request(&self) -> Result<WholePermit, Problem> {
        let asked = Arc::strong_count(&self.seats) - 1 + self.addresses.abandoned();
        let busy = asked.max(self.idempotency.running());
        let max = self.requests_max.load(Ordering::Relaxed);
        if busy >= max && busy.saturating_sub(self.idempotency.waiting()) >= max {
            telemetry::shed("max_requests");
            if self.full.is_due() {
                tracing::warn!(max, "too many requests are under way: others are refused");
            }
            return Err(Problem::Overloaded);
        }
        Ok(WholePermit(self.seats.clone()))
    }

    /// Counts a request that is refused because its address has no share left.
    pub(crate) fn refuse(&self, excess: &Excess) -> Problem {
        let Excess { address, setting, max } = *excess;
        telemetry::shed(setting);
        let (throttle, what) = match setting {
            MAX_ABANDONED_REQUESTS => (&self.abandoned_full, "left too many runs behind"),
            _ => (&self.address_full, "has too many requests under way"),
        };
        if throttle.is_due() {
            tracing::warn!(
                %address, setting, max,
                "a client address {what}: its requests are refused; if it is a load balancer's, name it \
                 in trusted_proxies"
            );
        }
        Problem::TooManyRequests
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
