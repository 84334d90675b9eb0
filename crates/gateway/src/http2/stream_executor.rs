//! [`StreamExecutor`]: runs the streams of a connection, and cuts one whose client does not take its answer.
//!
//! The timer of the connection sees only that none of its streams goes on. A client that leaves answers
//! lying and takes others would keep them in memory for ever.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};

use super::streams::Streams;
use crate::background;
use crate::door::Door;
use crate::fair_share::{BusyTime, FairShare};

/// Times that a stream is waited for once more because the connection itself is full: on a slow one, each of
/// many streams has to wait for its turn.
const EXTENSIONS_MAX: u32 = 4;

/// The state of one stream's answer.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Parts that were handed over.
    portions: u32,
    /// Set while a part that was handed over waits for the client.
    is_untaken: bool,
}

thread_local! {
    /// Of the stream that is polled at the moment. Its body has no other way to its task.
    static CURRENT: Cell<Progress> = const { Cell::new(Progress { portions: 0, is_untaken: false }) };
}

/// Notes that the stream which is polled has handed over a part of its answer.
pub(super) fn portion_handed_over() {
    let portions = CURRENT.get().portions.wrapping_add(1);
    CURRENT.set(Progress { portions, is_untaken: true });
}

/// Notes that all parts were taken, and that there are no more at the moment.
pub(super) fn all_taken() {
    CURRENT.set(Progress { is_untaken: false, ..CURRENT.get() });
}

/// Runs the streams of one connection.
#[derive(Clone)]
pub(crate) struct StreamExecutor {
    streams: Arc<Streams>,
    limit: Duration,
    share: Arc<FairShare>,
    busy_time: Option<Arc<BusyTime>>,
}

impl StreamExecutor {
    /// A connection that is alone at fault is closed after `write_timeout`, so a stream gets half of it more.
    pub(crate) fn new(streams: Arc<Streams>, write_timeout: Duration, door: &Door) -> Self {
        let (share, busy_time) = (door.share.clone(), door.busy_time().cloned());
        Self { streams, limit: write_timeout + write_timeout / 2, share, busy_time }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        let (streams, limit, progress) = (self.streams.clone(), self.limit, Progress::default());
        let task = StreamTask { stream, streams, limit, progress, stall: None };
        background::spawn(self.share.schedule(self.busy_time.clone(), task));
    }
}

pin_project! {
    struct StreamTask<F> {
        #[pin]
        stream: F,
        streams: Arc<Streams>,
        limit: Duration,
        progress: Progress,
        // Only large answers ever have one.
        stall: Option<Pin<Box<StallTimer>>>,
    }
}

pin_project! {
    /// Measures for how long no part of an answer was taken.
    struct StallTimer {
        since: Instant,
        extensions: u32,
        #[pin]
        timer: Sleep,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        CURRENT.set(*this.progress);
        let polled = this.stream.poll(cx);
        let before = std::mem::replace(this.progress, CURRENT.get());
        if polled.is_ready() || !this.progress.is_untaken {
            *this.stall = None;
            return polled;
        }
        let limit = *this.limit;
        let stall = this.stall.get_or_insert_with(|| Box::pin(StallTimer::new(limit)));
        if before.portions != this.progress.portions {
            stall.as_mut().restart();
        }
        let is_full = || this.streams.is_writing();
        stall.as_mut().poll(limit, is_full, cx).map(|()| {
            metrics::counter!("selfsame_streams_cut_total").increment(1);
            tracing::debug!("a client did not take an answer: its stream was reset");
        })
    }
}

impl StallTimer {
    fn new(limit: Duration) -> Self {
        Self { since: Instant::now(), extensions: 0, timer: sleep(limit) }
    }

    fn restart(self: Pin<&mut Self>) {
        let this = self.project();
        (*this.since, *this.extensions) = (Instant::now(), 0);
    }

    /// Ready once nothing was taken for `limit`.
    fn poll(
        self: Pin<&mut Self>,
        limit: Duration,
        is_full: impl Fn() -> bool,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut this = self.project();
        while this.timer.as_mut().poll(cx).is_ready() {
            if this.timer.deadline() >= *this.since + limit {
                if !is_full() || *this.extensions == EXTENSIONS_MAX {
                    return Poll::Ready(());
                }
                *this.extensions += 1;
                *this.since = Instant::now();
            }
            this.timer.as_mut().reset(*this.since + limit);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// Seconds until a stream is cut that hands over a part at each of these seconds.
    async fn seconds(portions_at: &[u64], is_full: bool) -> u64 {
        let begun = Instant::now();
        let streams = Arc::new(Streams::default());
        streams.set_writing(is_full);
        let mut due = portions_at.iter().map(|second| Duration::from_secs(*second)).peekable();
        let mut alarm = Box::pin(sleep(Duration::ZERO));
        let stream = poll_fn(move |cx| {
            while due.next_if(|at| begun.elapsed() >= *at).is_some() {
                portion_handed_over();
            }
            if let Some(at) = due.peek() {
                alarm.as_mut().reset(begun + *at);
                let _pending = alarm.as_mut().poll(cx);
            }
            Poll::<()>::Pending
        });
        let progress = Progress::default();
        StreamTask { stream, streams, limit: LIMIT, progress, stall: None }.await;
        begun.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_cut_once_nothing_of_it_was_taken_for_too_long() {
        assert_eq!(seconds(&[0], false).await, 30);
        assert_eq!(seconds(&[0, 29, 58], false).await, 88);
        assert_eq!(seconds(&[100], false).await, 130);
        // On a connection that is full, it waits for its turn, but not for ever.
        assert_eq!(seconds(&[0], true).await, 150);
        assert_eq!(seconds(&[0, 100], true).await, 250);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_waits_for_its_upstream_is_not_cut() {
        let streams = Arc::default();
        let mut nap = Box::pin(sleep(LIMIT * 10));
        let stream = poll_fn(move |cx| {
            portion_handed_over();
            all_taken();
            nap.as_mut().poll(cx)
        });
        let begun = Instant::now();
        let progress = Progress::default();
        StreamTask { stream, streams, limit: LIMIT, progress, stall: None }.await;
        assert_eq!(begun.elapsed(), LIMIT * 10);
    }
}
