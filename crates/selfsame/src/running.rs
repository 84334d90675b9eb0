//! [`Running`]: the runs of this process, by record.
//!
//! A claim of a record that runs here is decided here: whatever the store says about its lease, this process
//! never takes over its own run. Where the store grants such a claim all the same, because it was sent before
//! the run was listed, the run goes on under the new lease. The leases of all runs are renewed from this list,
//! see `renewals`.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::{Ask, AttemptId, Fenced, Fingerprint, Lease, RecordId, StoreError};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::stores::TakenFromId;

/// Number of parts, each with a lock of its own.
const SHARDS: usize = 64;
/// Part of a lease after which it is renewed.
const RENEWALS_PER_LEASE: u32 = 3;
/// Pause before a failed renewal is tried again; a shorter lease has a shorter one.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const RETRIES_PER_LEASE: u32 = 12;
/// Part of that pause by which a renewal may come early.
const EARLY: u32 = 10;
/// Time after which a renewal is given up. Stores have shorter limits of their own.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Shortest pause between two renewals of one lease.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// Limit of leases that are kept for answers that the store has not taken yet.
const ANSWERED_MAX: usize = 100_000;
/// Value of `next_look` while nothing is to be renewed.
const NEVER: u64 = u64::MAX;

type Shard = HashMap<RecordId, Entry, BuildHasherDefault<TakenFromId>>;

/// A part with a cache line of its own: neighbours do not make each other wait.
#[derive(Default)]
#[repr(align(64))]
struct Part(Mutex<Shard>);

/// The runs of this process, by record.
pub(crate) struct Running {
    shards: [Part; SHARDS],
    /// Number of entries in the stage `Answered`.
    answered: AtomicUsize,
    /// Set once any run got another lease than the one it began with.
    has_adopted: AtomicBool,
    begun: Instant,
    /// Time of the next look at the list, in milliseconds since `begun`.
    next_look: AtomicU64,
    sooner: Notify,
}

struct Entry {
    /// The attempt id that the run began with.
    run: AttemptId,
    lease: Lease,
    fingerprint: Fingerprint,
    /// Time of the next renewal; none once the lease is known to be lost.
    due: Option<Instant>,
    /// Time by which it may come early, together with others.
    early: Duration,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// The store says that the lease is another's. The work cannot be called back, and still runs here.
    Lost,
    /// The work is done and its client has the answer, which the store has not taken yet.
    Answered,
}

/// Outcome of a claim of a record that runs here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The request is in progress.
    Busy { lease_left: Duration },
    /// The key runs for another request.
    Reused,
    /// The store may have an answer. Nobody runs here unless it has.
    AskStore,
}

/// A run, until it is dropped. Its lease is renewed meanwhile.
#[must_use = "a run ends when this is dropped"]
pub(crate) struct Alive<'a> {
    running: &'a Running,
    lease: &'a Lease,
}

impl Running {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Part::default()),
            answered: AtomicUsize::new(0),
            has_adopted: AtomicBool::new(false),
            begun: Instant::now(),
            next_look: AtomicU64::new(NEVER),
            sooner: Notify::new(),
        }
    }

    /// Lists a run that begins `now`. Also tells whether its renewal is the next one.
    pub(crate) fn begin<'a>(
        &'a self,
        lease: &'a Lease,
        fingerprint: Fingerprint,
        now: Instant,
    ) -> (Alive<'a>, bool) {
        let due = now.checked_add(pause_of(lease));
        let (run, early) = (lease.attempt_id, early_by(lease));
        let entry = Entry { run, lease: *lease, fingerprint, due, early, stage: Stage::Running };
        // An older entry is of a claim that the store has given to this one.
        let older = self.shard(&lease.id).lock().insert(lease.id, entry);
        self.count_out(older.as_ref());
        (Alive { running: self, lease }, due.is_some_and(|due| self.look_at(due)))
    }

    /// Decides about a claim whose record runs here; nothing if it does not.
    pub(crate) fn standing(&self, ask: &Ask) -> Option<Standing> {
        let shard = self.shard(&ask.id).lock();
        let entry = shard.get(&ask.id)?;
        Some(match entry.stage {
            Stage::Running if entry.fingerprint != ask.fingerprint => Standing::Reused,
            Stage::Running => Standing::Busy { lease_left: entry.lease.length },
            Stage::Lost | Stage::Answered => Standing::AskStore,
        })
    }

    /// Lets the run of this record go on under `lease`, which the store has granted to another request of this
    /// process. Tells whether there is such a run.
    pub(crate) fn adopt(&self, lease: &Lease, now: Instant) -> bool {
        let mut shard = self.shard(&lease.id).lock();
        let Some(entry) = shard.get_mut(&lease.id) else { return false };
        if entry.run == lease.attempt_id {
            return false;
        }
        if entry.lease.attempt_id == lease.attempt_id {
            return true;
        }
        self.has_adopted.store(true, Ordering::SeqCst);
        entry.lease = *lease;
        if entry.stage == Stage::Lost {
            entry.stage = Stage::Running;
        }
        entry.try_again(Some(now));
        drop(shard);
        self.look_at(now);
        true
    }

    /// The lease of the run of this record, if it runs here.
    pub(crate) fn lease_of(&self, id: &RecordId) -> Option<Lease> {
        self.shard(id).lock().get(id).map(|entry| entry.lease)
    }

    /// The lease that a run has now, which began with `lease`.
    pub(crate) fn current(&self, lease: &Lease) -> Lease {
        if !self.has_adopted.load(Ordering::SeqCst) {
            return *lease;
        }
        let shard = self.shard(&lease.id).lock();
        let entry = shard.get(&lease.id).filter(|entry| entry.run == lease.attempt_id);
        entry.map_or(*lease, |entry| entry.lease)
    }

    /// Ends the entry of an answer that the store has refused for good: nothing waits for it any more.
    pub(crate) fn refused(&self, lease: &Lease) {
        let mut shard = self.shard(&lease.id).lock();
        let is_its = |entry: &Entry| {
            entry.stage == Stage::Answered
                && [entry.run, entry.lease.attempt_id].contains(&lease.attempt_id)
        };
        if shard.get(&lease.id).is_some_and(is_its) {
            self.count_out(shard.remove(&lease.id).as_ref());
        }
    }

    /// Keeps the lease of a run that ends alive until the store has its answer.
    pub(crate) fn answered(&self, lease: &Lease) {
        if self.answered.fetch_add(1, Ordering::Relaxed) >= ANSWERED_MAX {
            self.answered.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(
                record = lease.id.short(),
                "too many answers wait for the store: the lease of one is not renewed"
            );
            return;
        }
        let mut shard = self.shard(&lease.id).lock();
        let entry = shard.get_mut(&lease.id).filter(|entry| entry.run == lease.attempt_id);
        match entry {
            Some(entry) if entry.stage == Stage::Running => entry.stage = Stage::Answered,
            // One that is another's is not renewed any more: nothing would end it here.
            _ => drop(self.answered.fetch_sub(1, Ordering::Relaxed)),
        }
    }

    /// Takes the leases to be renewed now, the most urgent first and at most `most`. They are not due again until
    /// it is noted what came of them, or that took too long. From here on a run that must be renewed sooner than
    /// all others says so.
    pub(crate) fn take_due(&self, now: Instant, most: usize) -> Vec<Lease> {
        self.next_look.store(NEVER, Ordering::SeqCst);
        let mut due = Vec::new();
        for shard in &self.shards {
            let shard = shard.0.lock();
            // What is almost due goes along: so many are renewed by one call.
            let is_due = |entry: &&Entry| entry.due.is_some_and(|at| at <= now + entry.early);
            let entries = shard.values().filter(is_due);
            due.extend(entries.filter_map(|entry| Some((entry.due?, entry.lease))));
        }
        due.sort_by_key(|(at, lease)| (*at, lease.length));
        due.truncate(most);
        for (_, lease) in &due {
            let mut shard = self.shard(&lease.id).lock();
            if let Some(entry) = shard.get_mut(&lease.id).filter(|entry| entry.lease == *lease) {
                entry.try_again(Some(now + CALL_TIMEOUT * 2));
            }
        }
        due.into_iter().map(|(_, lease)| lease).collect()
    }

    /// Takes note of what came of a renewal that was sent at `sent` and answered at `now`. Tells whether the
    /// lease is lost, once.
    pub(crate) fn renewed(
        &self,
        lease: &Lease,
        outcome: &Result<Fenced, StoreError>,
        (sent, now): (Instant, Instant),
    ) -> bool {
        let mut shard = self.shard(&lease.id).lock();
        // It may have ended meanwhile.
        let entry =
            shard.get_mut(&lease.id).filter(|entry| entry.lease.attempt_id == lease.attempt_id);
        let Some(entry) = entry else { return false };
        let is_over = match outcome {
            Ok(Fenced::Lost) => true,
            Ok(Fenced::Applied) => false,
            Err(error) => error.is_damaged(),
        };
        match (outcome, entry.stage) {
            (_, Stage::Answered) if is_over => {
                // The store has its answer, or never will.
                let ended = shard.remove(&lease.id);
                self.count_out(ended.as_ref());
                false
            }
            (Ok(Fenced::Lost), Stage::Lost) => {
                entry.due = None;
                true
            }
            (Ok(Fenced::Lost), _) => {
                // Its own answer may have been recorded just now: that is seen at the second look.
                entry.stage = Stage::Lost;
                entry.try_again(now.checked_add(retry_pause_of(lease)));
                false
            }
            (Ok(Fenced::Applied), stage) => {
                if stage == Stage::Lost {
                    entry.stage = Stage::Running;
                }
                (entry.due, entry.early) = (sent.checked_add(pause_of(lease)), early_by(lease));
                false
            }
            (Err(_), _) => {
                entry.try_again(now.checked_add(retry_pause_of(lease)));
                false
            }
        }
    }

    /// Waits until something may be due.
    pub(crate) async fn until_due(&self) {
        let mut earliest: Option<Instant> = None;
        for shard in &self.shards {
            let next = shard.0.lock().values().filter_map(|entry| entry.due).min();
            earliest = [earliest, next].into_iter().flatten().min();
        }
        match earliest {
            Some(at) => {
                self.next_look.fetch_min(self.millis(at), Ordering::SeqCst);
                let _sooner = timeout_at(at, self.sooner.notified()).await;
            }
            None => self.sooner.notified().await,
        }
    }

    /// Ends the wait of [`Running::until_due`].
    pub(crate) fn wake(&self) {
        self.sooner.notify_one();
    }

    /// Lets the next run that begins ask for a look.
    pub(crate) fn forget_next_look(&self) {
        self.next_look.store(NEVER, Ordering::SeqCst);
    }

    /// Sees to a look by then. Tells whether that is sooner than the next one was.
    fn look_at(&self, due: Instant) -> bool {
        let due = self.millis(due);
        if self.next_look.load(Ordering::SeqCst) <= due {
            return false;
        }
        self.next_look.fetch_min(due, Ordering::SeqCst);
        self.wake();
        true
    }

    fn end(&self, lease: &Lease) {
        let mut shard = self.shard(&lease.id).lock();
        let is_over = shard
            .get(&lease.id)
            .is_some_and(|entry| entry.run == lease.attempt_id && entry.stage != Stage::Answered);
        if is_over {
            shard.remove(&lease.id);
        }
    }

    fn count_out(&self, entry: Option<&Entry>) {
        if entry.is_some_and(|entry| entry.stage == Stage::Answered) {
            self.answered.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ids are hashes: any byte spreads them.
    fn shard(&self, id: &RecordId) -> &Mutex<Shard> {
        &self.shards[usize::from(id.as_bytes()[0]) % SHARDS].0
    }

    fn millis(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.begun);
        since.as_secs().saturating_mul(1000) + u64::from(since.subsec_millis())
    }
}

impl Entry {
    /// Is renewed then, and no sooner.
    fn try_again(&mut self, at: Option<Instant>) {
        (self.due, self.early) = (at, Duration::ZERO);
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.running.end(self.lease);
    }
}

fn pause_of(lease: &Lease) -> Duration {
    (lease.length / RENEWALS_PER_LEASE).max(SHORTEST_PAUSE)
}

fn early_by(lease: &Lease) -> Duration {
    pause_of(lease) / EARLY
}

fn retry_pause_of(lease: &Lease) -> Duration {
    (lease.length / RETRIES_PER_LEASE).clamp(SHORTEST_PAUSE, RETRY_PAUSE)
}

#[cfg(test)]
mod tests {
    use selfsame_core::{Fence, StoreErrorKind};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease(byte: u8) -> Lease {
        Lease {
            id: RecordId::from_bytes([byte; RecordId::LEN]),
            fence: Fence::FIRST,
            attempt_id: AttemptId::from_bytes([byte; AttemptId::LEN]),
            length: Duration::from_secs(30),
        }
    }

    fn fingerprint() -> Fingerprint {
        Fingerprint::of_call("charge", b"null", None)
    }

    fn failed() -> Result<Fenced, StoreError> {
        Err(StoreError::new(StoreErrorKind::NotWritten, "the store is down"))
    }

    #[test]
    fn what_is_almost_due_is_renewed_together() {
        let (running, now) = (Running::new(), Instant::now());
        let leases = [lease(1), lease(2), lease(3)];
        let begun = [now, now + SECOND / 2, now + SECOND * 5];
        let runs = leases.iter().zip(begun);
        let runs: Vec<_> = runs.map(|(run, at)| running.begin(run, fingerprint(), at).0).collect();
        assert_eq!(running.take_due(now + SECOND * 8, 9), []);
        assert_eq!(running.take_due(now + SECOND * 10, 9), leases[..2]);
        assert_eq!(running.take_due(now + SECOND * 10, 9), [], "they are under way");
        drop(runs);
        assert_eq!(running.take_due(now + SECOND * 60, 9), []);
    }

    #[test]
    fn a_failed_renewal_is_tried_again_after_a_second_and_no_sooner() {
        let (running, now, lease) = (Running::new(), Instant::now(), lease(1));
        let _run = running.begin(&lease, fingerprint(), now);
        for second in 10..20 {
            let at = now + SECOND * second;
            assert_eq!(running.take_due(at, 9), [lease], "at {second}");
            assert!(!running.renewed(&lease, &failed(), (at, at)));
            assert_eq!(running.take_due(at + SECOND * 9 / 10, 9), []);
        }
    }

    #[test]
    fn a_lease_counts_as_lost_when_the_store_says_so_twice() {
        let (running, now, lease) = (Running::new(), Instant::now(), lease(1));
        let _run = running.begin(&lease, fingerprint(), now);
        let told = |at| running.renewed(&lease, &Ok(Fenced::Lost), (at, at));
        assert_eq!([told(now), told(now + SECOND)], [false, true]);
        assert_eq!(running.take_due(now + SECOND * 300, 9), []);
    }

    #[test]
    fn a_run_goes_on_under_a_lease_that_was_granted_beside_it() {
        let (running, now, first) = (Running::new(), Instant::now(), lease(1));
        let granted = Lease {
            fence: first.fence.next(),
            attempt_id: AttemptId::from_bytes([9; AttemptId::LEN]),
            ..first
        };
        assert!(!running.adopt(&granted, now), "nothing runs");
        let run = running.begin(&first, fingerprint(), now);
        assert!(!running.adopt(&first, now), "it is its own");
        for at in [now, now + SECOND] {
            running.renewed(&first, &Ok(Fenced::Lost), (at, at));
        }
        assert!(running.adopt(&granted, now));
        assert_eq!(running.current(&first), granted);
        assert_eq!(running.take_due(now, 9), [granted]);
        // What is still heard about the first one changes nothing.
        assert!(!running.renewed(&first, &Ok(Fenced::Lost), (now, now)));
        assert!(!running.renewed(&granted, &Ok(Fenced::Applied), (now, now)));
        assert_eq!(running.take_due(now + SECOND * 10, 9), [granted]);
        drop(run);
        assert_eq!(running.current(&first), first);
        assert!(running.shard(&first.id).lock().is_empty());
    }

    #[test]
    fn an_answer_that_the_store_refuses_keeps_no_lease() {
        let (running, now, lease) = (Running::new(), Instant::now(), lease(1));
        let run = running.begin(&lease, fingerprint(), now);
        running.refused(&lease);
        assert_eq!(running.take_due(now + SECOND * 10, 9), [lease], "it still runs");
        running.answered(&lease);
        drop(run);
        running.refused(&lease);
        assert!(running.shard(&lease.id).lock().is_empty());
        assert_eq!(running.answered.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn an_answer_of_a_run_that_lost_its_lease_leaves_nothing_behind() {
        let (running, now, lease) = (Running::new(), Instant::now(), lease(1));
        let run = running.begin(&lease, fingerprint(), now);
        for at in [now, now + SECOND] {
            running.renewed(&lease, &Ok(Fenced::Lost), (at, at));
        }
        running.answered(&lease);
        drop(run);
        assert!(running.shard(&lease.id).lock().is_empty());
        assert_eq!(running.answered.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_lease_is_kept_after_its_run_until_the_store_has_its_answer() {
        let (running, now, lease) = (Running::new(), Instant::now(), lease(1));
        let run = running.begin(&lease, fingerprint(), now);
        running.answered(&lease);
        drop(run);
        let at = now + SECOND * 10;
        assert_eq!(running.take_due(at, 9), [lease]);
        assert!(!running.renewed(&lease, &Ok(Fenced::Applied), (at, at)));
        assert_eq!(running.take_due(at + SECOND * 10, 9), [lease]);
        assert!(!running.renewed(&lease, &Ok(Fenced::Lost), (at, at)));
        assert_eq!(running.take_due(at + SECOND * 300, 9), []);
        assert_eq!(running.answered.load(Ordering::SeqCst), 0);
    }
}
