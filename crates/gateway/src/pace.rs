//! Connections whose clients take too long: found by one timer a connection, which is set anew only
//! where it would go off too late. A request costs no timer of its own.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::server::graceful::Watcher;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

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
            Self::Answer => "answer",
            Self::Taking => "write",
        }
    }

    /// How long it may take.
    fn limit(self, limits: &Limits) -> Option<Duration> {
        match self {
            Self::Nothing => None,
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
}

impl<P: Pulse> Pulse for Arc<P> {
    fn forget(&self) {
        (**self).forget();
    }

    fn feel(&self) -> (Awaited, u32) {
        (**self).feel()
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
    pub(crate) fn body_goes_on(&self) {
        self.moves();
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
            match this.lateness.poll(this.pulse.feel(), cx) {
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
}

impl Lateness {
    /// Of a connection that has said nothing since.
    fn since(since: Instant, limits: Arc<Limits>) -> Self {
        Self { limits, felt: (Awaited::Head, 0), since, timer: None }
    }

    fn begin_again(&mut self) {
        self.since = Instant::now();
        self.timer = None;
    }

    /// What was waited for too long.
    fn poll(&mut self, felt: (Awaited, u32), cx: &mut Context<'_>) -> Poll<Awaited> {
        let Some(limit) = felt.0.limit(&self.limits) else {
            self.felt = felt;
            return Poll::Pending;
        };
        if self.felt != felt {
            self.felt = felt;
            self.since = Instant::now();
        }
        let deadline = self.since + limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= deadline {
                return Poll::Ready(felt.0);
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Pending, pending, poll_fn};

    use hyper_util::server::graceful::GracefulShutdown;

    use super::*;

    const LIMITS: Limits = Limits {
        head_timeout: Duration::from_secs(1),
        body_timeout: Duration::from_secs(2),
        write_timeout: Duration::from_secs(3),
        idle_timeout: Duration::from_secs(5),
        answer_timeout: Duration::from_secs(60),
        tunnel_idle_timeout: Duration::from_secs(60),
        connections_max: 1,
        requests_max: 1,
        streams_max: 1,
        headers_max: 1,
        header_bytes_max: 1,
    };

    /// How many seconds a connection lives that waits for these things, each for a while.
    async fn seconds(waits: &[(Awaited, u32, u64)]) -> f64 {
        let begun = Instant::now();
        let mut lateness = Lateness::since(begun, Arc::new(LIMITS));
        for &(awaited, moves, millis) in waits {
            let late = poll_fn(|cx| lateness.poll((awaited, moves), cx));
            if tokio::time::timeout(Duration::from_millis(millis), late).await.is_ok() {
                break;
            }
        }
        begun.elapsed().as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_limit() {
        use Awaited::{Answer, Body, Head, Next, Nothing, Taking};
        let near = |took: f64, expected: f64| assert!((took - expected).abs() < 0.01, "{took}");
        near(seconds(&[(Head, 0, 99_000)]).await, 1.0);
        near(seconds(&[(Body, 1, 99_000)]).await, 2.0);
        near(seconds(&[(Taking, 1, 99_000)]).await, 3.0);
        near(seconds(&[(Next, 1, 99_000)]).await, 5.0);
        near(seconds(&[(Answer, 1, 99_000)]).await, 60.0);
        near(seconds(&[(Nothing, 1, 99_000)]).await, 99.0);
        // A shorter wait after a longer one, for which the timer was set.
        near(seconds(&[(Next, 1, 1000), (Head, 1, 99_000)]).await, 2.0);
        // What goes on is not late.
        near(seconds(&[(Body, 1, 1900), (Body, 2, 1900), (Body, 3, 99_000)]).await, 5.8);
        // A head is to be whole in time, however often something of it comes.
        near(seconds(&[(Head, 0, 500), (Head, 0, 400), (Head, 0, 99_000)]).await, 1.0);
        near(seconds(&[(Next, 1, 4900), (Nothing, 2, 9000), (Next, 3, 99_000)]).await, 18.9);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_idle_is_asked_to_end_before_it_is_dropped() {
        struct Idle;
        impl Pulse for Idle {
            fn forget(&self) {}
            fn feel(&self) -> (Awaited, u32) {
                (Awaited::Next, 0)
            }
        }
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let ask = |_: Pin<&mut Pending<()>>| ASKED.store(1, Ordering::Relaxed);
        let (begun, stop) = (Instant::now(), CancellationToken::new());
        let watcher = GracefulShutdown::new().watcher();
        let (listener, limits) = (Listener::Public, Arc::new(LIMITS));
        let terms = Terms { listener, limits, begun, stop, watcher };
        let ended = terms.over(pending(), ask, Idle).await;
        assert_eq!((ended, ASKED.load(Ordering::Relaxed)), (None, 1));
        assert_eq!(begun.elapsed().as_secs(), 10);
    }
}
