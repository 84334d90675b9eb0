//! [`FairShare`]: one busy address does not delay the others that a worker serves.
//!
//! A worker polls its tasks in the order in which they become ready. If one address keeps a
//! thousand tasks ready, everybody else waits for all of them.
//!
//! So each worker measures the time that the tasks of an address take. An address that took more
//! than `SHARE` lately is busy, and its tasks wait in a queue. In each turn of its event loop the
//! worker first polls all tasks that need not wait, then one from the queue: a task of the busy
//! address that took the least. Busy addresses share equally the time that nobody else needs.
//!
//! A request waits for other threads too: those of the store, and those of the system that finish
//! what the disk does. On a core that is never idle they get their turn after some milliseconds. So
//! while a request of an address that is not busy is under way, a worker that serves busy ones
//! pauses again and again.
//!
//! While a worker serves a single address, nobody waits, and nobody goes on waiting.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use metrics::Counter;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::address_limit::ClientAddress;
use crate::room::Seldom;

/// Counter of the times that a task waited because its address had taken more than its share.
pub(crate) const DEFERRED: &str = "selfsame_deferred_tasks_total";

/// Time after which what an address has taken counts half.
const HALF_LIFE: Duration = Duration::from_millis(50);
/// Time on each worker that an address may take before it is busy. An address that always takes 2 %
/// to 4 % of a worker's time reaches it.
const SHARE: Duration = Duration::from_millis(2);
/// Limit of that time on all workers together: an address that keeps a single one of many workers
/// busy reaches it.
const SHARE_MAX: Duration = Duration::from_micros(12_500);
/// Time for which a worker is taken to serve several addresses, after it last did.
const CONTENDED_FOR: Duration = Duration::from_millis(100);

/// Time for which workers pause after a request in the foreground has begun. It may wait for its
/// upstream for much longer, or its client may be gone.
const FOREGROUND_FOR: Duration = Duration::from_millis(100);
/// Time that a worker spends on busy addresses before it pauses, while a request of another one is
/// under way.
const PAUSE_AFTER: Duration = Duration::from_micros(200);
/// Shortest pause. Linux makes it some 50 µs.
const PAUSE: Duration = Duration::from_micros(1);

/// Decides when the tasks of one worker are polled.
pub(crate) struct FairShare {
    /// Time that an address may have taken lately, on all workers.
    share: Duration,
    /// Start of the clock that all workers share, because they measure one [`BusyTime`].
    begun: Instant,
    /// The address whose task was polled last, as the place of its [`BusyTime`].
    last_address: AtomicUsize,
    /// Time of the last change from one address to another, in nanoseconds since `begun`.
    changed_nanos: AtomicU64,
    /// Number of requests under way of addresses that are not busy.
    foreground: AtomicUsize,
    /// Time of the last beginning of one, in nanoseconds since `begun`.
    foreground_nanos: AtomicU64,
    queue: Mutex<Queue>,
    queued: Notify,
    deferred: Counter,
    throttle: Seldom,
}

/// The tasks that wait, by address.
#[derive(Default)]
struct Queue {
    addresses: Vec<(Arc<BusyTime>, VecDeque<Arc<Waiting>>)>,
}

/// A task in the queue.
#[derive(Default)]
struct Waiting {
    is_next: AtomicBool,
    waker: AtomicWaker,
}

impl FairShare {
    /// One for each of `workers`.
    pub(crate) fn for_each(workers: usize) -> impl Iterator<Item = Arc<Self>> {
        let begun = Instant::now();
        std::iter::repeat_with(move || Arc::new(Self::new(workers, begun))).take(workers)
    }

    fn new(workers: usize, begun: Instant) -> Self {
        let share = SHARE.saturating_mul(u32::try_from(workers).unwrap_or(u32::MAX));
        Self {
            share: share.min(SHARE_MAX),
            begun,
            last_address: AtomicUsize::default(),
            changed_nanos: AtomicU64::default(),
            foreground: AtomicUsize::default(),
            foreground_nanos: AtomicU64::default(),
            queue: Mutex::default(),
            queued: Notify::new(),
            deferred: metrics::counter!(DEFERRED),
            throttle: Seldom::default(),
        }
    }

    /// Runs `task` for an address. Without one it never waits: many clients share it.
    pub(crate) fn schedule<F>(
        self: &Arc<Self>,
        busy_time: Option<Arc<BusyTime>>,
        task: F,
    ) -> Scheduled<F> {
        Scheduled { task, busy_time, share: self.clone(), waiting: None }
    }

    /// Counts a request of an address that is not busy, until it is dropped.
    pub(crate) fn count_foreground(self: &Arc<Self>) -> ForegroundRequest {
        self.foreground.fetch_add(1, Ordering::Relaxed);
        self.foreground_nanos.store(self.nanos_at(Instant::now()), Ordering::Relaxed);
        ForegroundRequest(self.clone())
    }

    /// Lets tasks out of the queue in each turn of the worker's event loop.
    pub(crate) async fn run(&self) {
        let mut paused_at = Instant::now();
        loop {
            if self.has_foreground() {
                // The store's threads may be at work for a request in the foreground.
                thread::yield_now();
                if paused_at.elapsed() >= PAUSE_AFTER {
                    thread::sleep(PAUSE);
                    // Polls all tasks first that became ready meanwhile.
                    tokio::task::yield_now().await;
                    paused_at = Instant::now();
                }
            }
            if self.release() {
                tokio::task::yield_now().await;
            } else {
                self.queued.notified().await;
                paused_at = Instant::now();
            }
        }
    }

    /// Lets one task out of the queue, or all of them if no other address is served any more. Tells
    /// whether there was one.
    ///
    /// Their address needs no turn for its other tasks then. One of those in the queue would wait for as
    /// many turns as there are before it, each as long as all the others take.
    fn release(&self) -> bool {
        let now = Instant::now();
        let (half_life, is_contended) = (self.half_life_at(now), self.is_contended(now));
        let next = || self.queue.lock().pop(half_life);
        let mut has_released = false;
        while let Some(waiting) = next() {
            has_released = true;
            waiting.is_next.store(true, Ordering::Relaxed);
            waiting.waker.wake();
            if is_contended {
                break;
            }
        }
        has_released
    }

    /// Whether threads may be at work for a request of an address that is not busy. Those that have
    /// waited for longer wait for their upstream.
    fn has_foreground(&self) -> bool {
        self.foreground.load(Ordering::Relaxed) > 0 && {
            let began = self.foreground_nanos.load(Ordering::Relaxed);
            self.nanos_at(Instant::now()).saturating_sub(began) < FOREGROUND_FOR.as_nanos() as u64
        }
    }

    /// Tells if tasks of an address have to wait, while others are served too.
    pub(crate) fn is_exceeded(&self, busy_time: &BusyTime) -> bool {
        let now = Instant::now();
        self.is_contended(now) && self.is_busy(busy_time, self.half_life_at(now))
    }

    fn is_busy(&self, busy_time: &BusyTime, half_life: u32) -> bool {
        Duration::from_nanos(busy_time.in_half_life(half_life).into()) > self.share
    }

    /// Tells if tasks of more than one address were polled lately.
    fn is_contended(&self, now: Instant) -> bool {
        let changed = self.changed_nanos.load(Ordering::Relaxed);
        self.nanos_at(now).saturating_sub(changed) < CONTENDED_FOR.as_nanos() as u64
    }

    /// Notes that a task of this address is about to be polled.
    fn note(&self, busy_time: Option<&BusyTime>, now: Instant) {
        let address = busy_time.map_or(0, |busy_time| std::ptr::from_ref(busy_time).addr());
        // Only the worker's own thread writes here.
        if self.last_address.load(Ordering::Relaxed) != address {
            self.last_address.store(address, Ordering::Relaxed);
            self.changed_nanos.store(self.nanos_at(now), Ordering::Relaxed);
        }
    }

    fn nanos_at(&self, now: Instant) -> u64 {
        let nanos = now.saturating_duration_since(self.begun).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Number of the half-life that it is.
    fn half_life_at(&self, now: Instant) -> u32 {
        let number = now.saturating_duration_since(self.begun).as_millis() / HALF_LIFE.as_millis();
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Puts a task at the end of its address's queue.
    fn enqueue(&self, busy_time: &Arc<BusyTime>, cx: &Context<'_>) -> Arc<Waiting> {
        self.deferred.increment(1);
        if self.throttle.is_due() {
            tracing::debug!(
                address = %busy_time.address,
                "a client address takes more than its share of the processor: others are served first"
            );
        }
        let waiting = Arc::new(Waiting::default());
        waiting.waker.register(cx.waker());
        self.queue.lock().push(busy_time, waiting.clone());
        self.queued.notify_one();
        waiting
    }
}

/// A request under way, of an address that was not busy when it came.
pub(crate) struct ForegroundRequest(Arc<FairShare>);

impl Drop for ForegroundRequest {
    fn drop(&mut self) {
        self.0.foreground.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Queue {
    fn push(&mut self, busy_time: &Arc<BusyTime>, waiting: Arc<Waiting>) {
        // There are few: an address is here for what it takes, and there is only so much to take.
        let found = self.addresses.iter_mut().find(|(known, _)| Arc::ptr_eq(known, busy_time));
        match found {
            Some((_, tasks)) => tasks.push_back(waiting),
            None => self.addresses.push((busy_time.clone(), VecDeque::from([waiting]))),
        }
    }

    /// Takes out the next task of the address that has taken the least time.
    fn pop(&mut self, half_life: u32) -> Option<Arc<Waiting>> {
        let least = self.addresses.iter().enumerate();
        let (index, _) = least.min_by_key(|(_, (busy, _))| busy.in_half_life(half_life))?;
        let (_, tasks) = &mut self.addresses[index];
        let next = tasks.pop_front();
        if tasks.is_empty() {
            self.addresses.swap_remove(index);
        }
        next
    }
}

/// Time that the tasks of one address have taken lately, on all workers.
#[derive(Debug)]
pub(crate) struct BusyTime {
    address: ClientAddress,
    /// In the upper half, the number of the last half-life in which some was taken; in the lower half,
    /// nanoseconds, as they counted then.
    packed: AtomicU64,
}

impl BusyTime {
    pub(crate) fn new(address: ClientAddress) -> Self {
        Self { address, packed: AtomicU64::default() }
    }

    /// Nanoseconds that count in a half-life.
    fn in_half_life(&self, number: u32) -> u32 {
        let packed = self.packed.load(Ordering::Relaxed);
        let (last, busy) = ((packed >> 32) as u32, packed as u32);
        busy.checked_shr(number.saturating_sub(last)).unwrap_or(0)
    }

    fn add(&self, number: u32, busy: Duration) {
        let added = u32::try_from(busy.as_nanos()).unwrap_or(u32::MAX);
        let sum = self.in_half_life(number).saturating_add(added);
        // Of two workers at once, one may be lost: this is an estimate.
        self.packed.store(u64::from(number) << 32 | u64::from(sum), Ordering::Relaxed);
    }
}

pin_project! {
    /// A task that is polled when its address may take more time.
    pub(crate) struct Scheduled<F> {
        #[pin]
        task: F,
        busy_time: Option<Arc<BusyTime>>,
        share: Arc<FairShare>,
        // Its place in the queue, if it has one.
        waiting: Option<Arc<Waiting>>,
    }
}

impl<F: Future> Future for Scheduled<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let (share, now) = (&**this.share, Instant::now());
        share.note(this.busy_time.as_deref(), now);
        let Some(busy_time) = this.busy_time else { return this.task.poll(cx) };
        let half_life = share.half_life_at(now);
        if let Some(waiting) = this.waiting {
            if !waiting.is_next.load(Ordering::Relaxed) {
                waiting.waker.register(cx.waker());
                return Poll::Pending;
            }
            *this.waiting = None;
        } else if share.is_busy(busy_time, half_life) && share.is_contended(now) {
            *this.waiting = Some(share.enqueue(busy_time, cx));
            return Poll::Pending;
        }
        let polled = this.task.poll(cx);
        busy_time.add(half_life, now.elapsed());
        polled
    }
}
