//! [`Queue`]: the writes that wait for the store, by record and by when they are tried next.

use std::cmp::Ordering as Order;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::RecordId;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::owed::Owed;
use crate::telemetry;

/// Limit of writes that wait before no more work is begun. None is ever dropped: what runs by then still
/// finds room.
const WAITING_MAX: usize = 64 * 1024;

pub(super) struct Queue {
    /// Number of writes that wait. An atomic, because every claim reads it, and a lock would be contended.
    len: AtomicUsize,
    /// Those of them about which the store has said nothing yet.
    open: AtomicUsize,
    waiting: Mutex<Waiting>,
    /// Wakes whoever tries them.
    pub(super) added: Arc<Notify>,
    /// Wakes whoever waits until the store has said something about each of them.
    is_settled: Notify,
}

#[derive(Default)]
struct Waiting {
    by_record: HashMap<RecordId, Vec<Arc<Owed>>>,
    due: BinaryHeap<Due>,
    answers: usize,
    /// Releases and cancellations.
    releases: usize,
    /// Cancellations of claims that the store does not know.
    looked_for: usize,
}

struct Due {
    at: Instant,
    owed: Arc<Owed>,
}

impl Queue {
    pub(super) fn new() -> Self {
        let (len, open) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (added, is_settled) = (Arc::default(), Notify::new());
        Self { len, open, waiting: Mutex::default(), added, is_settled }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    /// Tells if the store has answered for each of them.
    pub(super) fn is_settled(&self) -> bool {
        self.open.load(Ordering::SeqCst) == 0
    }

    /// Waits until the store has said something about each of them.
    pub(super) async fn settled(&self) {
        loop {
            let settled = self.is_settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if self.is_settled() {
                return;
            }
            settled.await;
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.open.load(Ordering::SeqCst) >= WAITING_MAX
    }

    /// Makes a write known to claims of its record. It is tried once it is scheduled.
    pub(super) fn add(&self, owed: Arc<Owed>) {
        let mut waiting = self.waiting.lock();
        *waiting.kind_of(&owed) += 1;
        waiting.by_record.entry(owed.id).or_default().push(owed);
        self.count(&waiting);
    }

    /// Has a write tried after `pause`.
    pub(super) fn schedule(&self, owed: Arc<Owed>, pause: Duration) {
        self.waiting.lock().due.push(Due { at: Instant::now() + pause, owed });
        self.added.notify_one();
    }

    /// The store does not know the claim that is to be cancelled: it is looked for again, or that is over.
    pub(super) fn missed(&self, owed: &Arc<Owed>) {
        let mut waiting = self.waiting.lock();
        if owed.is_over() {
            return;
        }
        *waiting.kind_of(owed) -= 1;
        let pause = owed.next_look();
        *waiting.kind_of(owed) += 1;
        self.count(&waiting);
        drop(waiting);
        match pause {
            Some(pause) => self.schedule(owed.clone(), pause),
            None => self.remove(owed),
        }
    }

    /// The write is made, or given up.
    pub(super) fn remove(&self, owed: &Arc<Owed>) {
        let mut waiting = self.waiting.lock();
        if owed.is_over.swap(true, Ordering::SeqCst) {
            return;
        }
        *waiting.kind_of(owed) -= 1;
        if let Some(of_record) = waiting.by_record.get_mut(&owed.id) {
            of_record.retain(|other| !Arc::ptr_eq(other, owed));
            if of_record.is_empty() {
                waiting.by_record.remove(&owed.id);
            }
        }
        self.count(&waiting);
    }

    /// The writes that wait for this record.
    pub(super) fn of_record(&self, id: &RecordId) -> Vec<Arc<Owed>> {
        self.waiting.lock().by_record.get(id).cloned().unwrap_or_default()
    }

    /// The writes that wait and are not in the spool.
    pub(super) fn unspooled(&self) -> Vec<Arc<Owed>> {
        let waiting = self.waiting.lock();
        let all = waiting.by_record.values().flatten();
        all.filter(|owed| !owed.is_spooled()).cloned().collect()
    }

    /// Takes writes whose time has come; whoever takes one schedules it again, or removes it.
    pub(super) fn take_due(&self, most: usize) -> Vec<Arc<Owed>> {
        let now = Instant::now();
        let mut waiting = self.waiting.lock();
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(first) = waiting.due.peek()
            && (first.at <= now || first.owed.is_over())
        {
            taken.extend(waiting.due.pop().map(|due| due.owed).filter(|owed| !owed.is_over()));
        }
        taken
    }

    /// When the next write is to be tried, if any is.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.waiting.lock().due.peek().map(|due| due.at)
    }

    fn count(&self, waiting: &Waiting) {
        let open = waiting.answers + waiting.releases;
        self.open.store(open, Ordering::SeqCst);
        self.len.store(open + waiting.looked_for, Ordering::SeqCst);
        telemetry::unlanded(waiting.answers, waiting.releases);
        if open == 0 {
            self.is_settled.notify_waiters();
        }
    }
}

impl Waiting {
    /// The number of those that are of the same kind.
    fn kind_of(&mut self, owed: &Owed) -> &mut usize {
        match owed.is_answer() {
            true => &mut self.answers,
            false if owed.is_looked_for() => &mut self.looked_for,
            false => &mut self.releases,
        }
    }
}

impl Ord for Due {
    /// The one that is due first is the greatest.
    fn cmp(&self, other: &Self) -> Order {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}
