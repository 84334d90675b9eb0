//! Connections whose clients take too long: found by one timer a connection, which is set anew only
//! where it would go off too late. A request costs no timer of its own.

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::server::graceful::Watcher;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::body_rate::BodyRate;
use crate::config::Limits;

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Nothing of the client's.
    Nothing,
    /// The first byte of a connection, or the rest of a request's head.
    Head,
    /// The next request.
    Next,
    /// More of a request's body.
    Body,
    /// A request's body at its least rate.
    BodyRate,
    /// The answer to a request, which has not begun.
    Answer,
    /// That the client takes more of an answer.
    Taking,
}

impl Awaited {
    /// Its name in metrics and logs.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Head => "head",
            Self::Next => "idle",
            Self::Body => "body",
            Self::BodyRate => "body_rate",
            Self::Answer => "answer",
            Self::Taking => "write",
        }
    }

    /// How long it may take.
    fn limit(self, limits: &Limits) -> Option<Duration> {
        match self {
            Self::Nothing | Self::BodyRate => None,
            Self::Head => Some(limits.head_timeout),
            Self::Next => Some(limits.idle_timeout),
            Self::Body => Some(limits.body_timeout),
            Self::Answer => Some(limits.answer_timeout),
            Self::Taking => Some(limits.write_timeout),
        }
    }
}

/// The listener that a connection came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    Public,
    Admin,
    Checkpoints,
}

impl Listener {
    /// Its name in metrics and logs.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Admin => "admin",
            Self::Checkpoints => "checkpoints",
        }
    }
}

/// What can be seen of a connection.
pub(crate) trait Pulse {
    /// Forgets what the connection waited for: it is about to say so again.
    fn forget(&self);

    /// What it waits for, and a number that changes when it has come further.
    fn feel(&self) -> (Awaited, u32);

    /// Progress of the request's body, if it must keep to a least rate.
    fn body(&self) -> Option<BodyProgress> {
        None
    }
}

/// Progress of a request's body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyProgress {
    /// Tells the requests of a connection apart.
    request: u32,
    bytes: u64,
}

impl<P: Pulse> Pulse for Arc<P> {
    fn forget(&self) {
        (**self).forget();
    }

    fn feel(&self) -> (Awaited, u32) {
        (**self).feel()
    }

    fn body(&self) -> Option<BodyProgress> {
        (**self).body()
    }
}

/// The pulse of a connection of HTTP/1.1, felt by its bytes.
#[derive(Debug, Default)]
pub(crate) struct Bytewise {
    /// An [`Awaited`] that only more bytes can end; [`Awaited::Nothing`] where none are asked for.
    reading: AtomicU8,
    is_writing: AtomicBool,
    /// Whether a request is there whose answer has not begun.
    is_asked: AtomicBool,
    moves: AtomicU32,
    /// Number of requests that were handed on.
    requests: AtomicU32,
    /// Bytes received since the last of them.
    body_bytes: AtomicU64,
    /// Tells whether a request has a body and its response has not begun.
    has_body: AtomicBool,
}

/// What a connection of HTTP/1.1 may wait to read.
const READINGS: [Awaited; 4] = [Awaited::Nothing, Awaited::Head, Awaited::Next, Awaited::Body];

impl Bytewise {
    /// Nothing is there to read, and this is missing.
    pub(crate) fn misses(&self, what: Awaited) {
        let index = READINGS.iter().position(|reading| *reading == what);
        let index = u8::try_from(index.unwrap_or_default()).expect("four");
        self.reading.store(index, Ordering::Relaxed);
    }

    /// A request is there.
    pub(crate) fn head_is_whole(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
        self.moves();
    }

    /// There is more of a request's body.
    pub(crate) fn body_goes_on(&self, bytes: usize) {
        let known = self.body_bytes.load(Ordering::Relaxed);
        self.body_bytes.store(known.saturating_add(bytes as u64), Ordering::Relaxed);
        self.moves();
    }

    /// A request with a body is handed on. Requests that were sent ahead wait for their turn before.
    pub(crate) fn request_begins(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.body_bytes.store(0, Ordering::Relaxed);
        self.has_body.store(true, Ordering::Relaxed);
    }

    /// Its response is there: from now on its body may come as slowly as both ends like.
    pub(crate) fn response_begins(&self) {
        self.has_body.store(false, Ordering::Relaxed);
    }

    /// Its answer has gone further, or could not.
    pub(crate) fn wrote(&self, could: bool) {
        self.is_writing.store(!could, Ordering::Relaxed);
        if could {
            self.is_asked.store(false, Ordering::Relaxed);
            self.moves();
        }
    }

    fn moves(&self) {
        // Only the connection's own task writes here.
        self.moves.store(self.moves.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

impl Pulse for Bytewise {
    fn forget(&self) {
        self.reading.store(0, Ordering::Relaxed);
        self.is_writing.store(false, Ordering::Relaxed);
    }

    fn feel(&self) -> (Awaited, u32) {
        let reading = READINGS[usize::from(self.reading.load(Ordering::Relaxed))];
        let awaited = match reading {
            _ if self.is_writing.load(Ordering::Relaxed) => Awaited::Taking,
            Awaited::Nothing if self.is_asked.load(Ordering::Relaxed) => Awaited::Answer,
            reading => reading,
        };
        (awaited, self.moves.load(Ordering::Relaxed))
    }

    fn body(&self) -> Option<BodyProgress> {
        let (request, bytes) = (&self.requests, &self.body_bytes);
        self.has_body.load(Ordering::Relaxed).then(|| BodyProgress {
            request: request.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        })
    }
}

/// How long a connection is served.
pub(crate) struct Terms {
    pub(crate) listener: Listener,
    pub(crate) limits: Arc<Limits>,
    pub(crate) begun: Instant,
    pub(crate) stop: CancellationToken,
    /// Held until the end. It cannot watch a connection that may leave HTTP.
    pub(crate) watcher: Watcher,
}

impl Terms {
    /// `connection`, which has such a pulse, and can be asked to end.
    pub(crate) fn over<C, P>(
        self,
        connection: C,
        ask_to_end: fn(Pin<&mut C>),
        pulse: P,
    ) -> SeenOut<C, P> {
        let Self { listener, limits, begun, stop, watcher } = self;
        let (lateness, stop) = (Lateness::since(begun, limits), stop.cancelled_owned());
        let is_ending = false;
        SeenOut { connection, ask_to_end, listener, pulse, lateness, stop, is_ending, watcher }
    }
}

pin_project! {
    /// A connection that is seen to its end. One that has nothing to do for too long, or is told to stop,
    /// is asked to end; one that keeps us waiting is dropped. How it ended, if it did by itself.
    pub(crate) struct SeenOut<C, P> {
        #[pin]
        connection: C,
        ask_to_end: fn(Pin<&mut C>),
        listener: Listener,
        pulse: P,
        lateness: Lateness,
        #[pin]
        stop: WaitForCancellationFutureOwned,
        is_ending: bool,
        watcher: Watcher,
    }
}

impl<C: Future, P: Pulse> Future for SeenOut<C, P> {
    type Output = Option<C::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            this.pulse.forget();
            if let Poll::Ready(ended) = this.connection.as_mut().poll(cx) {
                return Poll::Ready(Some(ended));
            }
            match this.lateness.poll(this.pulse.feel(), this.pulse.body(), cx) {
                Poll::Ready(awaited) => {
                    cut(*this.listener, awaited.label());
                    if awaited != Awaited::Next || *this.is_ending {
                        return Poll::Ready(None);
                    }
                    this.lateness.begin_again();
                }
                Poll::Pending if *this.is_ending => return Poll::Pending,
                Poll::Pending => ready!(this.stop.as_mut().poll(cx)),
            }
            *this.is_ending = true;
            (this.ask_to_end)(this.connection.as_mut());
        }
    }
}

/// Counts a connection that was closed for this reason.
pub(crate) fn cut(listener: Listener, reason: &'static str) {
    let label = listener.label();
    match listener {
        Listener::Public => {
            metrics::counter!("selfsame_connections_cut_total", "reason" => reason).increment(1);
        }
        Listener::Admin | Listener::Checkpoints => {
            let name = "selfsame_internal_connections_cut_total";
            metrics::counter!(name, "listener" => label, "reason" => reason).increment(1);
        }
    }
    tracing::debug!(listener = label, reason, "a connection was cut off");
}

/// How long a connection has waited for the same thing.
struct Lateness {
    limits: Arc<Limits>,
    felt: (Awaited, u32),
    since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    rate: Option<BodyRate>,
    /// The request whose body was waited for last, and for how long in all.
    body: (u32, Duration),
}

impl Lateness {
    /// Of a connection that has said nothing since.
    fn since(since: Instant, limits: Arc<Limits>) -> Self {
        let rate = BodyRate::of(&limits);
        let (felt, body) = ((Awaited::Head, 0), (0, Duration::ZERO));
        Self { limits, felt, since, timer: None, rate, body }
    }

    fn begin_again(&mut self) {
        self.since = Instant::now();
        self.timer = None;
    }

    /// What was waited for too long.
    fn poll(
        &mut self,
        felt: (Awaited, u32),
        body: Option<BodyProgress>,
        cx: &mut Context<'_>,
    ) -> Poll<Awaited> {
        let has_changed = self.felt != felt;
        if has_changed && self.felt.0 == Awaited::Body {
            self.body.1 += self.since.elapsed();
        }
        self.felt = felt;
        let Some(limit) = felt.0.limit(&self.limits) else { return Poll::Pending };
        if has_changed {
            self.since = Instant::now();
        }
        let (deadline, late) = match self.time_for(felt.0, body) {
            Some(left) if left < limit => (self.since + left, Awaited::BodyRate),
            _ => (self.since + limit, felt.0),
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= deadline {
                return Poll::Ready(late);
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    /// Time left to wait for a body at its least rate.
    fn time_for(&mut self, awaited: Awaited, body: Option<BodyProgress>) -> Option<Duration> {
        let (rate, body) = self.rate.zip(body.filter(|_| awaited == Awaited::Body))?;
        if self.body.0 != body.request {
            self.body = (body.request, Duration::ZERO);
        }
        Some(rate.time_left(body.bytes, self.body.1))
    }
}
