//! [`Waiters`]: who waits for the run of a key to end.
//!
//! A waiter holds a place here and nothing of the store. The end of a run wakes all who wait for
//! its key, and each claims again: one may find the key freed and run, the rest replay or wait on.
//! Where nodes share a store, its bell tells them of each other's ends; because a bell may be missed,
//! a waiter also looks now and then.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::{Bell, RecordId, Sleepers};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How many requests may wait for one key; one more is refused as if it did not wish to wait.
const PER_KEY_MAX: usize = 10_000;
/// How many requests may wait in all.
const IN_ALL_MAX: usize = 20_000;
/// How long it takes until a waiter looks for the end of a run that another node may have. It
/// doubles with each look, up to one of the others.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE_IF_WOKEN: Duration = Duration::from_secs(5);

/// Who waits for the run of a key to end.
pub(crate) struct Waiters {
    queues: Mutex<HashMap<RecordId, Queue>>,
    /// How many wait in all. Changed under the lock, and read without it.
    in_all: AtomicUsize,
    bell: Option<Arc<dyn Bell>>,
}

#[derive(Default)]
struct Queue {
    ended: Arc<Notify>,
    waiting: usize,
    /// Whether other nodes know that somebody waits here.
    is_told: bool,
}

/// A place among those who wait for one key. Dropping it leaves the queue.
pub(crate) struct Place<'a> {
    waiters: &'a Waiters,
    id: RecordId,
    ended: Arc<Notify>,
    pause: Duration,
}

impl Waiters {
    /// Those who wait on this node, among others that share `bell`.
    pub(crate) fn new(bell: Option<Arc<dyn Bell>>) -> Arc<Self> {
        let waiters =
            Arc::new(Self { queues: Mutex::default(), in_all: AtomicUsize::new(0), bell });
        let sleepers: Arc<dyn Sleepers> = waiters.clone();
        if let Some(bell) = &waiters.bell {
            bell.wakes(Arc::downgrade(&sleepers));
        }
        waiters
    }

    /// A place among those who wait for `id`, unless too many wait already.
    pub(crate) fn join(&self, id: RecordId) -> Option<Place<'_>> {
        let mut queues = self.queues.lock();
        if self.in_all.load(Ordering::SeqCst) >= IN_ALL_MAX {
            return None;
        }
        let queue = queues.entry(id).or_default();
        if queue.waiting >= PER_KEY_MAX {
            return None;
        }
        queue.waiting += 1;
        let ended = queue.ended.clone();
        self.in_all.fetch_add(1, Ordering::SeqCst);
        Some(Place { waiters: self, id, ended, pause: FIRST_PAUSE })
    }

    /// How many wait in all.
    pub(crate) fn in_all(&self) -> usize {
        self.in_all.load(Ordering::Relaxed)
    }

    /// Wakes all who wait for `id`, on whichever node: its run has ended here.
    pub(crate) fn wake(&self, id: &RecordId) {
        self.wake_here(id);
        if let Some(bell) = &self.bell {
            bell.ring(id);
        }
    }
}

impl Sleepers for Waiters {
    fn wake_here(&self, id: &RecordId) {
        // Every run comes by here at its end, and the lock would make the cores take turns. Whoever is
        // about to wait is counted before it looks, so it sees the end or is seen here.
        if self.in_all.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(queue) = self.queues.lock().get_mut(id) {
            queue.is_told = false;
            queue.ended.notify_waiters();
        }
    }
}

impl Place<'_> {
    /// Does `look`, and if that gives a time to wait, waits for the run's end, but no longer than
    /// that and not past `deadline`. An end between the look and the wait is not missed.
    pub(crate) async fn look_then_wait<T>(
        &mut self,
        look: impl Future<Output = Result<T, Duration>>,
        deadline: Instant,
    ) -> Option<T> {
        let ended = self.ended.clone();
        let mut ended = std::pin::pin!(ended.notified());
        ended.as_mut().enable();
        self.tell_others();
        match look.await {
            Ok(found) => Some(found),
            Err(lease_left) => {
                let until = deadline.min(Instant::now() + lease_left.min(self.next_pause()));
                if timeout_at(until, ended).await.is_ok() {
                    self.pause = FIRST_PAUSE;
                }
                None
            }
        }
    }

    /// Tells other nodes that somebody waits here, unless they know.
    fn tell_others(&self) {
        let Some(bell) = &self.waiters.bell else { return };
        let was_told = match self.waiters.queues.lock().get_mut(&self.id) {
            Some(queue) => std::mem::replace(&mut queue.is_told, true),
            None => true,
        };
        if !was_told {
            bell.listen_for(&self.id);
        }
    }

    /// How long to wait before looking: for ever, where all who run are on this node.
    fn next_pause(&mut self) -> Duration {
        let Some(bell) = &self.waiters.bell else { return Duration::MAX };
        let longest = if bell.is_heard() { LONGEST_PAUSE_IF_WOKEN } else { LONGEST_PAUSE };
        let pause = self.pause.min(longest);
        self.pause = pause * 2;
        pause
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queues = self.waiters.queues.lock();
        self.waiters.in_all.fetch_sub(1, Ordering::SeqCst);
        if let Some(queue) = queues.get_mut(&self.id) {
            queue.waiting -= 1;
            if queue.waiting == 0 {
                queues.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> RecordId {
        RecordId::from_bytes([byte; RecordId::LEN])
    }

    #[test]
    fn one_key_can_have_only_so_many_waiters() {
        let waiters = Waiters::new(None);
        let places: Vec<_> = (0..PER_KEY_MAX).map(|_| waiters.join(id(1))).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(waiters.join(id(1)).is_none());
        assert!(waiters.join(id(2)).is_some());
        drop(places);
        assert!(waiters.join(id(1)).is_some());
    }

    #[test]
    fn all_keys_together_can_have_only_so_many_waiters() {
        let waiters = Waiters::new(None);
        let places: Vec<_> = (0..IN_ALL_MAX).map(|n| waiters.join(id((n % 200) as u8))).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(waiters.join(id(201)).is_none());
    }

    #[test]
    fn who_leaves_last_leaves_nothing_behind() {
        let waiters = Waiters::new(None);
        drop([waiters.join(id(1)), waiters.join(id(1)), waiters.join(id(2))]);
        let in_all = waiters.in_all.load(Ordering::SeqCst);
        assert_eq!((waiters.queues.lock().len(), in_all), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_between_the_look_and_the_wait_is_not_missed() {
        let waiters = Waiters::new(None);
        let mut place = waiters.join(id(1)).expect("there is room");
        let begun = Instant::now();
        let look = async {
            waiters.wake(&id(1));
            Err::<(), _>(Duration::from_secs(30))
        };
        assert_eq!(place.look_then_wait(look, begun + Duration::from_secs(10)).await, None);
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
