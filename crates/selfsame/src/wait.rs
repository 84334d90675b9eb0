//! [`Waiters`]: who waits for the run of a key to end.
//!
//! A waiter holds a place here and nothing of the store. The end of a run wakes all who wait for
//! its key, and each claims again: one may find the key freed and run, the rest replay or wait on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::RecordId;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How many requests may wait for one key; one more is refused as if it did not wish to wait.
const PER_KEY_MAX: usize = 10_000;
/// How many requests may wait in all.
const IN_ALL_MAX: usize = 20_000;

/// Who waits for the run of a key to end.
#[derive(Default)]
pub(crate) struct Waiters {
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    by_key: HashMap<RecordId, Queue>,
    in_all: usize,
}

#[derive(Default)]
struct Queue {
    ended: Arc<Notify>,
    waiting: usize,
}

/// A place among those who wait for one key. Dropping it leaves the queue.
pub(crate) struct Place<'a> {
    waiters: &'a Waiters,
    id: RecordId,
    ended: Arc<Notify>,
}

impl Waiters {
    /// A place among those who wait for `id`, unless too many wait already.
    pub(crate) fn join(&self, id: RecordId) -> Option<Place<'_>> {
        let mut queues = self.queues.lock();
        if queues.in_all >= IN_ALL_MAX {
            return None;
        }
        let queue = queues.by_key.entry(id).or_default();
        if queue.waiting >= PER_KEY_MAX {
            return None;
        }
        queue.waiting += 1;
        let ended = queue.ended.clone();
        queues.in_all += 1;
        Some(Place { waiters: self, id, ended })
    }

    /// Wakes all who wait for `id`: its run has ended.
    pub(crate) fn wake(&self, id: &RecordId) {
        if let Some(queue) = self.queues.lock().by_key.get(id) {
            queue.ended.notify_waiters();
        }
    }
}

impl Place<'_> {
    /// Does `look`, and if that gives a time to wait, waits for the run's end, but no longer than
    /// that and not past `deadline`. An end between the look and the wait is not missed.
    pub(crate) async fn look_then_wait<T>(
        &self,
        look: impl Future<Output = Result<T, Duration>>,
        deadline: Instant,
    ) -> Option<T> {
        let mut ended = std::pin::pin!(self.ended.notified());
        ended.as_mut().enable();
        match look.await {
            Ok(found) => Some(found),
            Err(lease_left) => {
                let until = deadline.min(Instant::now() + lease_left);
                let _over = timeout_at(until, ended).await;
                None
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queues = self.waiters.queues.lock();
        queues.in_all -= 1;
        if let Some(queue) = queues.by_key.get_mut(&self.id) {
            queue.waiting -= 1;
            if queue.waiting == 0 {
                queues.by_key.remove(&self.id);
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
        let waiters = Waiters::default();
        let places: Vec<_> = (0..PER_KEY_MAX).map(|_| waiters.join(id(1))).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(waiters.join(id(1)).is_none());
        assert!(waiters.join(id(2)).is_some());
        drop(places);
        assert!(waiters.join(id(1)).is_some());
    }

    #[test]
    fn all_keys_together_can_have_only_so_many_waiters() {
        let waiters = Waiters::default();
        let places: Vec<_> = (0..IN_ALL_MAX).map(|n| waiters.join(id((n % 200) as u8))).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(waiters.join(id(201)).is_none());
    }

    #[test]
    fn who_leaves_last_leaves_nothing_behind() {
        let waiters = Waiters::default();
        drop([waiters.join(id(1)), waiters.join(id(1)), waiters.join(id(2))]);
        let queues = waiters.queues.lock();
        assert_eq!((queues.by_key.len(), queues.in_all), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_between_the_look_and_the_wait_is_not_missed() {
        let waiters = Waiters::default();
        let place = waiters.join(id(1)).expect("there is room");
        let begun = Instant::now();
        let look = async {
            waiters.wake(&id(1));
            Err::<(), _>(Duration::from_secs(30))
        };
        assert_eq!(place.look_then_wait(look, begun + Duration::from_secs(10)).await, None);
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
