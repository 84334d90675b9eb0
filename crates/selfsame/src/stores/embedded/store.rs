//! The traits of a store, each call handed to the thread that does it.

use std::ops::Bound;

use async_trait::async_trait;
use selfsame_core::{
    Answer, Ask, AttemptId, Checkpoint, Claimed, Count, Erased, Facts, Fence, Fenced, Find,
    Inspect, Lease, Record, RecordId, Recorded, Release, Replay, Resolution, Resolved, Store,
    StoreError, StoreErrorKind, Sweep, Swept, Timestamp,
};
use tokio::time::Instant;

use super::EmbeddedStore;
use super::frame;
use super::ledger::Ledger;
use super::note::NotedSegment;
use super::records::BITE_BYTES;
use super::scan::{DueScan, Sighting, States, Stretch};
use super::segment::START;
use crate::stores::durable::{CLAIMED, HELD, count_state};

/// How often a claim is made that was over before it was granted.
const CLAIMS_MAX: usize = 3;

/// Records that are erased in one turn of the writer: they may be large, and are read before.
const ERASED_AT_ONCE: usize = 16;

/// Records that a sweep changes in one turn of the writer, while claims wait.
const SWEPT_AT_ONCE: usize = 256;

/// Claims that are counted in one turn: they may keep large requests.
const COUNTED_AT_ONCE: usize = 256;

/// The error of an erasure that was cut off.
fn left_behind(error: StoreError) -> StoreError {
    let text = "records are erased, and parts of them may be left in the files";
    StoreError::new(StoreErrorKind::MayHaveLanded, text).caused_by(error)
}

/// Where the next sweep goes on.
#[derive(Clone, Copy)]
pub(super) enum Cursor {
    /// Records that are claimed or held.
    Open { after: Option<RecordId> },
    /// Closed records, segment by segment: the one that is being scanned, or the next from a number on.
    Closed { scan: Option<DueScan>, next: u32 },
    /// How far the oldest segment, by its number, was looked through.
    Oldest { surveyed: Option<(u32, u64)> },
}

impl Default for Cursor {
    fn default() -> Self {
        Self::Open { after: None }
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn name(&self) -> &'static str {
        "file"
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        for _ in 0..CLAIMS_MAX {
            let begun = Instant::now();
            let claimed = self.claim_once(ask).await?;
            match &claimed {
                // Whoever runs under it would be overtaken. Asking again renews it.
                Claimed::Run(grant) if begun.elapsed() >= grant.lease.length => {}
                _ => return Ok(claimed),
            }
        }
        let text = "the disk takes longer to write a claim than the claim would live";
        Err(StoreError::new(StoreErrorKind::MayHaveLanded, text))
    }

    fn answered(&self, ask: &Ask) -> Option<Replay> {
        let now = self.records.clock.now();
        selfsame_core::answered(&*self.near.find(&ask.id, now)?, ask, now)
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        let lease = *lease;
        // The leases of running work go before all else.
        self.writes.ask_first(move |ledger| ledger.renew(&lease)).await
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        let (lease, checkpoint) = (*lease, checkpoint.clone());
        self.writes.ask(move |ledger| ledger.checkpoint(&lease, checkpoint)).await
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        let (lease, frame) = (*lease, frame::encode_answer(answer, &lease.id));
        self.writes.ask(move |ledger| ledger.complete(&lease, &frame)).await
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        let lease = *lease;
        self.writes.ask(move |ledger| ledger.release(&lease, release)).await
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        let id = *id;
        self.writes.ask(move |ledger| ledger.cancel(&id, attempt_id)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        // Requests with new keys beyond a limit come by the thousands: they need no reading thread.
        if !self.records.index.may_have(id) {
            return Ok(None);
        }
        let id = *id;
        self.reads.ask(move |records| records.seen(&id)).await
    }
}

#[async_trait]
impl Sweep for EmbeddedStore {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        self.keep_time().await;
        self.closed.report();
        let mut swept = Swept::default();
        let mut left = most;
        // It goes on until it did something, as far as it may.
        while left > 0 && !swept.finished {
            let cursor = *self.cursor.lock();
            let Step { done, next } = match cursor {
                Cursor::Open { after } => self.sweep_open(after, left).await?,
                Cursor::Closed { scan, next } => self.sweep_closed(scan, next, left).await?,
                Cursor::Oldest { surveyed } => self.clear_oldest(surveyed).await?,
            };
            *self.cursor.lock() = next.unwrap_or_default();
            let is_part = matches!(
                (cursor, next),
                (
                    _,
                    Some(
                        Cursor::Closed { scan: Some(_), .. } | Cursor::Oldest { surveyed: Some(_) }
                    )
                )
            );
            left -= left.min(done.removed + done.buried + done.held.len());
            add(&mut swept, done);
            swept.finished = next.is_none();
            if is_part {
                break;
            }
        }
        Ok(swept)
    }
}

fn add(swept: &mut Swept, done: Swept) {
    swept.removed += done.removed;
    swept.buried += done.buried;
    swept.held.extend(done.held);
}

/// What the writer takes one after the other, with other work between.
fn parts(mut sightings: Vec<Sighting>) -> impl Iterator<Item = Vec<Sighting>> {
    std::iter::from_fn(move || {
        let length = sightings.len().min(SWEPT_AT_ONCE);
        let part: Vec<_> = sightings.drain(..length).collect();
        (!part.is_empty()).then_some(part)
    })
}

/// A part of a pass through the store.
struct Step {
    done: Swept,
    /// Where to go on, unless the pass is over.
    next: Option<Cursor>,
}

impl EmbeddedStore {
    /// Looks at the clocks, and keeps the time where it is long since, or one of them was set.
    async fn keep_time(&self) {
        let Some(clock) = &self.clock else { return };
        clock.check();
        // Where nothing can be written, this finds out whether it can be again.
        if clock.is_overdue() || self.health.is_short() {
            let keeping = |ledger: &mut Ledger| {
                ledger.keep_time();
                ledger.must_have_room()
            };
            if let Err(error) = self.writes.ask(keeping).await {
                tracing::debug!(%error, "the store's time is not kept yet");
            }
        }
    }

    /// Does what is due to some records that are claimed or held.
    async fn sweep_open(&self, after: Option<RecordId>, most: usize) -> Result<Step, StoreError> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let due = self.looks.ask(move |records| records.due_open(from, most)).await?;
        let Stretch { sightings, next } = due;
        let done = self.sweep_seen(sightings).await?;
        let next = match next {
            Some(last) => Cursor::Open { after: Some(last) },
            None => Cursor::Closed { scan: None, next: 0 },
        };
        Ok(Step { done, next: Some(next) })
    }

    /// Does what is due to some closed records of one segment.
    async fn sweep_closed(
        &self,
        scan: Option<DueScan>,
        next: u32,
        most: usize,
    ) -> Result<Step, StoreError> {
        let segments = &self.records.segments;
        let from = scan.map_or(next, |scan| scan.segment);
        let Some(segment) = segments.first_due(from, self.records.clock.now()) else {
            let next = Some(Cursor::Oldest { surveyed: None });
            return Ok(Step { done: Swept::default(), next });
        };
        let going_on = scan.filter(|scan| scan.segment == segment.number);
        let mut scan = going_on.unwrap_or_else(|| {
            segments.begin_scan(segment.number);
            DueScan::of(&segment)
        });
        let number = segment.number;
        let scanned = self.looks.ask(move |records| {
            let stretch = records.due_closed(&segment, &mut scan, most)?;
            Ok((scan, stretch))
        });
        let (scan, Stretch { sightings, next }) = scanned.await?;
        let done = self.sweep_seen(sightings).await?;
        let next = match next {
            Some(()) => Cursor::Closed { scan: Some(scan), next: number },
            None => {
                segments.end_scan(number, scan.due);
                Cursor::Closed { scan: None, next: number + 1 }
            }
        };
        Ok(Step { done, next: Some(next) })
    }

    /// Does what is due to records that somebody saw.
    async fn sweep_seen(&self, sightings: Vec<Sighting>) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        for part in parts(sightings) {
            add(&mut swept, self.writes.ask(move |ledger| Ok(ledger.sweep(part))).await?);
        }
        Ok(swept)
    }

    /// Takes old segments away, and writes a part of one anew of which little is needed.
    async fn clear_oldest(&self, surveyed: Option<(u32, u64)>) -> Result<Step, StoreError> {
        self.remove_unneeded().await?;
        let survey = self.looks.ask(move |records| {
            let Some(oldest) = records.segments.oldest_if_wasteful() else { return Ok(None) };
            let from = surveyed.filter(|(number, _)| *number == oldest.number).map(|(_, at)| at);
            Ok(Some((oldest.number, records.survey(&oldest, from)?)))
        });
        let mut next = None;
        if let Some((number, Stretch { sightings, next: at })) = survey.await? {
            for part in parts(sightings) {
                let rewriting = self.writes.ask(move |ledger| {
                    ledger.rewrite(part);
                    Ok(())
                });
                rewriting.await?;
            }
            next = Some(Cursor::Oldest { surveyed: at.map(|at| (number, at)) });
        }
        Ok(Step { done: Swept::default(), next })
    }

    /// Takes away the segments of which nothing is needed. The index has to know that durably before:
    /// a start must find no record in a file that is gone.
    async fn remove_unneeded(&self) -> Result<(), StoreError> {
        let first_needed = self.records.segments.first_needed();
        if first_needed == self.records.segments.oldest() {
            return Ok(());
        }
        let noting = self.writes.ask(|ledger| {
            ledger.rotate_index();
            Ok(())
        });
        noting.await?;
        if !self.looks.ask(|records| Ok(records.index.wait_until_durable())).await? {
            // The index tells that it cannot be written; the next pass tries again.
            return Ok(());
        }
        let leaving = self.writes.ask(move |ledger| {
            ledger.leave_behind(first_needed);
            Ok(())
        });
        leaving.await?;
        let removal = self.writes.ask(move |ledger| {
            ledger.remove_before(first_needed);
            Ok(())
        });
        removal.await
    }
}

impl EmbeddedStore {
    async fn claim_once(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        let now = self.records.clock.now();
        if let Some(record) = self.near.find(&ask.id, now)
            && let (claimed, None) = selfsame_core::claim(Some(&*record), ask, now)
        {
            return Ok(claimed);
        }
        if self.records.index.may_have(&ask.id)
            && let Some(claimed) = self.settled(ask).await?
        {
            return Ok(claimed);
        }
        let written = ask.clone();
        match self.writes.ask(move |ledger| ledger.claim(&written)).await {
            // What needs no write is answered even while nothing can be written.
            Err(error) if !error.is_damaged() => {
                self.settled(ask).await.ok().flatten().ok_or(error)
            }
            written => written,
        }
    }

    /// Counts records segment by segment, where what is known of a segment may have changed by itself.
    async fn count_states(&self) -> Result<States, StoreError> {
        let now = self.records.clock.now();
        let mut states = States::default();
        for NotedSegment { number, needs, .. } in self.records.segments.noted() {
            let is_due = needs.due <= now;
            for (state, count) in needs.states.iter().enumerate() {
                let is_counted = [CLAIMED, HELD].contains(&(state as u8)) || !is_due;
                states[state] += if is_counted { *count } else { 0 };
            }
            let Some(segment) = self.records.segments.get(number).filter(|_| is_due) else {
                continue;
            };
            let mut from = Some(START);
            while from.is_some() {
                let segment = segment.clone();
                let counting = self.looks.ask(move |records| {
                    let next = records.count_closed(&segment, from, &mut states)?;
                    Ok((states, next))
                });
                (states, from) = counting.await?;
            }
        }
        Ok(states)
    }
}

#[async_trait]
impl Inspect for EmbeddedStore {
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        let after = match find {
            Find::Abandoned { after } | Find::Matching { after, .. } => *after,
            Find::Key(_) | Find::IdPrefix(_) | Find::Held => None,
        };
        let mut from = after.map_or(Bound::Unbounded, Bound::Excluded);
        if most == 0 {
            return Ok(Vec::new());
        }
        // In bites: nobody waits for long, and no time runs out.
        let (mut found, mut room) = (Vec::new(), BITE_BYTES);
        loop {
            let (meant, left) = (find.clone(), most - found.len());
            let finding = self.looks.ask(move |records| {
                let bite = records.find(&meant, from, left, &mut room)?;
                Ok((bite, room))
            });
            let bite;
            (bite, room) = finding.await?;
            found.extend(bite.found);
            match bite.next {
                Some(last) if found.len() < most => from = Bound::Excluded(last),
                _ => break,
            }
        }
        Ok(found)
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        let (id, resolution) = (*id, resolution.clone());
        self.writes.ask(move |ledger| ledger.resolve(&id, fence, resolution)).await
    }

    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError> {
        let (mut outcomes, mut done) = (Vec::with_capacity(ids.len()), Vec::new());
        let (mut places, mut others) = (Vec::new(), Vec::new());
        for few in ids.chunks(ERASED_AT_ONCE) {
            let erasing: Vec<RecordId> = few.into();
            let erased = self.writes.ask(move |ledger| ledger.erase(&erasing)).await;
            let erased = erased.map_err(|error| match done.is_empty() {
                true => error,
                false => left_behind(error),
            })?;
            for (id, erasure) in few.iter().zip(erased) {
                self.near.forget(id);
                outcomes.push(erasure.outcome);
                if erasure.outcome == Erased::Done {
                    done.push(*id);
                    match erasure.places {
                        Some(all) => places.extend(all),
                        None => others.push(*id),
                    }
                }
            }
        }
        // They are tombstones already.
        self.scrub(&done, places, &others).await.map_err(left_behind)?;
        Ok(outcomes)
    }

    async fn count(&self) -> Result<Count, StoreError> {
        let mut states = self.count_states().await?;
        // A claim may be dead by now, and its key held.
        let unsettled = self.looks.ask(|records| Ok(records.unsettled_claims())).await?;
        for bite in unsettled.chunks(COUNTED_AT_ONCE) {
            let bite = bite.to_vec();
            let counting = self.looks.ask(move |records| {
                for id in &bite {
                    states[usize::from(CLAIMED)] = states[usize::from(CLAIMED)].saturating_sub(1);
                    records.count_seen(id, &mut states)?;
                }
                Ok(states)
            });
            states = counting.await?;
        }
        let mut count = Count::default();
        for (state, records) in (0_u8..).zip(states) {
            count_state(&mut count, state, records);
        }
        Ok(count)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.records.clock.now())
    }
}

#[async_trait]
impl Facts for EmbeddedStore {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.writes.ask(move |ledger| ledger.fact_or(&name, value)).await
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.writes.ask(move |ledger| ledger.set_fact(&name, value)).await
    }
}
