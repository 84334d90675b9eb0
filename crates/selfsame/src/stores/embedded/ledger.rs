//! [`Ledger`]: what the writer's thread does to records, in batches.
//!
//! Each change is one of core's pure ones, between a read of the record and a frame of the log. What
//! a batch changed is seen by the rest of the batch at once, and by everybody else when it is durable.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use selfsame_core::{
    Ask, AttemptId, Checkpoint, Claimed, Due, Erased, Fence, Fenced, Lease, Record, RecordId,
    Recorded, Release, Resolution, Resolved, State, Swept, Timestamp,
};

use super::closed::{self, CLOSED_UNTIL, Closed};
use super::facts::FactsFile;
use super::frame::{self, HEAD_LEN, Kind, Marks};
use super::index::{Entry, Place};
use super::log::{Base, Draft, Log, LogPart};
use super::records::{LookUp, Records};
use super::scan::Sighting;
use super::store_clock::StoreClock;
use super::trouble::{Failure, Trouble, damaged};
use crate::stores::durable::stand_in;
use crate::stores::transfer::Imported;

/// How many claims are kept at hand for the end of their runs; none that keeps its request, which is
/// large.
const RUNNING_MAX: usize = 16_384;

/// The writer's hand over the records.
pub(super) struct Ledger {
    records: Arc<Records>,
    log: Log,
    /// Absent where the store is told the time.
    clock: Option<Arc<StoreClock>>,
    facts: FactsFile,
    closed: Arc<Closed>,
    now: Timestamp,
    /// Claims as they were written, until anything else is written about them.
    running: HashMap<RecordId, (Entry, Record)>,
    /// Where the records of the batch lie.
    entries: HashMap<RecordId, Option<Entry>>,
    /// Those of the batch that are gone, and of which frames are left in the log.
    remains: HashSet<RecordId>,
    /// What the batch changed, in its order.
    changes: Vec<(RecordId, Change)>,
    /// What the batch made of each record.
    fresh: HashMap<RecordId, Fresh>,
    /// Whether the batch has set facts: those are written at once, whatever becomes of the rest.
    has_set_facts: bool,
}

/// What becomes of a record's place when the batch is durable.
enum Change {
    Saved { frame: Draft, marks: Marks },
    Ended { frame: Draft, marks: Marks },
    Damaged { frame: Draft },
    Gone,
}

/// What came of an erasure.
pub(super) struct Erasure {
    pub(super) outcome: Erased,
    /// Places of all frames that told of the record before; none where others may be in the log.
    pub(super) places: Option<Vec<Place>>,
}

/// A record that the batch has changed.
enum Fresh {
    Record(Record),
    /// Completed by the answer in this frame.
    Ended {
        record: Record,
        frame: Draft,
    },
    /// Found to be damaged: neither gone nor new.
    Damaged,
    Gone,
}

impl Ledger {
    pub(super) fn new(
        records: Arc<Records>,
        log: Log,
        clock: Option<Arc<StoreClock>>,
        facts: FactsFile,
        closed: Arc<Closed>,
    ) -> Self {
        let now = records.clock.now();
        let (running, entries, remains, fresh) = Default::default();
        Self {
            records,
            log,
            clock,
            facts,
            closed,
            now,
            running,
            entries,
            remains,
            changes: Vec::new(),
            fresh,
            has_set_facts: false,
        }
    }

    /// Begins a batch, at one time for all in it.
    pub(super) fn begin(&mut self) {
        if let Some(clock) = self.clock.as_ref().filter(|clock| clock.is_due()) {
            clock.check();
            if clock.is_behind() && !self.records.open.has_lease(self.records.clock.now()) {
                clock.catch_up();
            }
        }
        self.now = self.records.clock.now();
        self.has_set_facts = false;
    }

    /// Keeps the store's time, though nothing else is to be written.
    pub(super) fn keep_time(&mut self) {
        self.log.draft_time();
    }

    /// Whether something of the batch may be found though it failed as a whole.
    pub(super) fn may_have_landed(&self) -> bool {
        self.has_set_facts
    }

    /// Whether the batch is to be made durable before anything is added to it.
    pub(super) fn is_full(&self) -> bool {
        self.log.is_full()
    }

    /// Makes the batch durable, then known. A batch that only read costs nothing here.
    pub(super) fn commit(&mut self) -> Result<(), Failure> {
        let base = self.log.commit()?;
        let mut accounts = Vec::with_capacity(self.changes.len());
        for (id, change) in self.changes.drain(..) {
            let entry = self.entries.get_mut(&id).expect("it was looked for before it was changed");
            let before = *entry;
            *entry = change.entry(before, base);
            self.records.change(id, before, *entry);
            accounts.push((before, *entry));
        }
        self.records.segments.account(accounts);
        for (id, fresh) in self.fresh.drain() {
            match (fresh, self.entries.get(&id)) {
                (Fresh::Record(record), Some(Some(entry)))
                    if matches!(record.state, State::Claimed { .. })
                        && record.kept_request().is_none()
                        && self.running.len() < RUNNING_MAX =>
                {
                    self.running.insert(id, (*entry, record));
                }
                _ => drop(self.running.remove(&id)),
            }
        }
        self.entries.clear();
        self.remains.clear();
        if self.records.index.is_full() {
            self.rotate_index();
        }
        Ok(())
    }

    /// Has all that the index knows written to the disk.
    pub(super) fn rotate_index(&mut self) {
        self.records.index.rotate(self.log.note().encode());
    }

    /// Forgets the batch.
    pub(super) fn roll_back(&mut self) {
        self.log.abandon();
        self.changes.clear();
        self.fresh.clear();
        self.entries.clear();
        self.remains.clear();
        self.running.clear();
    }

    /// Says that the store was closed.
    pub(super) fn rest(&mut self) -> Result<(), Failure> {
        self.log.rest()?;
        self.records.index.close(self.log.note().encode());
        Ok(())
    }

    /// Refuses new keys where there may be no room for what follows them.
    pub(super) fn must_have_room(&mut self) -> Result<(), Trouble> {
        if self.log.is_short_of_room() {
            let cause = self.log.shortage().unwrap_or("the store cannot make its next file");
            return Err(Trouble::Full(cause.to_owned()));
        }
        match self.records.index.is_behind() {
            true => Err(Trouble::Full("the store's index cannot be written".to_owned())),
            false => Ok(()),
        }
    }

    /// Refuses keys that may be among those that were lost. An expired one may have been used again
    /// since.
    fn must_be_open(&self) -> Result<(), Trouble> {
        match self.closed.time_left() {
            Some(left) => Err(Trouble::Closed(left)),
            None => Ok(()),
        }
    }

    /// Why new keys are refused, if they are.
    pub(super) fn shortage(&self) -> Option<&str> {
        self.log.shortage()
    }

    pub(super) fn claim(&mut self, ask: &Ask) -> Result<Claimed, Trouble> {
        let found = self.find(&ask.id)?;
        let (claimed, next) = selfsame_core::claim(found.as_ref(), ask, self.now);
        if let Some(next) = next {
            if found.is_none_or(|record| record.is_expired(self.now)) {
                self.must_be_open()?;
            }
            self.must_have_room()?;
            self.save(next);
        }
        Ok(claimed)
    }

    /// Stores a record of another store, unless its id is known here.
    pub(super) fn import(&mut self, record: Record) -> Result<Imported, Trouble> {
        if self.find(&record.id)?.is_some_and(|known| !known.is_expired(self.now)) {
            return Ok(Imported::Known);
        }
        self.must_have_room()?;
        self.save(record);
        Ok(Imported::Done)
    }

    /// Notes that there is a record which cannot be trusted, unless its id is known here.
    pub(super) fn import_damaged(&mut self, id: RecordId) -> Result<(), Trouble> {
        if self.find(&id)?.is_none() {
            self.must_have_room()?;
            self.save_damaged(id);
        }
        Ok(())
    }

    pub(super) fn renew(&mut self, lease: &Lease) -> Result<Fenced, Trouble> {
        let now = self.now;
        self.change(&lease.id, |record| record.renew(lease, now))
    }

    pub(super) fn checkpoint(
        &mut self,
        lease: &Lease,
        checkpoint: Checkpoint,
    ) -> Result<Fenced, Trouble> {
        self.change(&lease.id, |record| record.checkpoint(lease, checkpoint))
    }

    /// `answer` was encoded by the caller: the writer's thread has enough to do.
    pub(super) fn complete(&mut self, lease: &Lease, answer: &[u8]) -> Result<Recorded, Trouble> {
        let Some(mut record) = self.find(&lease.id)? else { return Ok(Recorded::Lost) };
        let was_complete = matches!(record.state, State::Completed { .. });
        let kept_request = record.kept_request().is_some();
        let recorded = record.complete(lease, stand_in(), self.now);
        if recorded == Recorded::Lost || was_complete {
            return Ok(recorded);
        }
        if kept_request {
            // The short frame would need that of the claim, and with it the request, for as long as
            // the record lives.
            let answer = frame::answer(answer, &record.id).expect("it was just encoded");
            record.state = State::Completed { at: self.now, answer };
            self.save(record);
        } else {
            let at = self.now.as_millis().to_le_bytes();
            let id = record.id;
            let before = self.entries.get(&id).copied().flatten();
            let has_older =
                self.fresh.contains_key(&id) || before.is_some_and(|before| before.marks.has_older);
            let marks = Marks { has_older, ..Marks::of(&record) };
            let frame = self.log.draft(Kind::Ended, id, marks, &[&at, answer]);
            self.changes.push((id, Change::Ended { frame: frame.clone(), marks }));
            self.fresh.insert(id, Fresh::Ended { record, frame });
        }
        Ok(recorded)
    }

    pub(super) fn release(&mut self, lease: &Lease, release: Release) -> Result<Fenced, Trouble> {
        let now = self.now;
        if self.find(&lease.id)?.is_some_and(|record| record.is_forgotten_by(lease, release)) {
            self.forget(lease.id)?;
            return Ok(Fenced::Applied);
        }
        self.change(&lease.id, |record| record.release(lease, release, now))
    }

    pub(super) fn cancel(
        &mut self,
        id: &RecordId,
        attempt_id: AttemptId,
    ) -> Result<Fenced, Trouble> {
        self.change(id, |record| record.cancel(attempt_id))
    }

    pub(super) fn resolve(
        &mut self,
        id: &RecordId,
        fence: Fence,
        resolution: Resolution,
    ) -> Result<Resolved, Trouble> {
        let found = self.find(id)?.filter(|record| !record.is_expired(self.now));
        let Some(mut record) = found else { return Ok(Resolved::Missing) };
        let resolved = record.resolve(fence, resolution, self.now);
        if resolved == Resolved::Done {
            self.save(record);
        }
        Ok(resolved)
    }

    /// Leaves tombstones of these records, and tells what they took the place of. They are written
    /// also where they are there already, so that a batch is behind all that was ever said of them.
    pub(super) fn erase(&mut self, ids: &[RecordId]) -> Result<Vec<Erasure>, Trouble> {
        let mut outcomes = Vec::with_capacity(ids.len());
        for id in ids {
            let found = self.find(id)?.filter(|record| !record.is_expired(self.now));
            let before = self.entries.get(id).copied().flatten();
            let before = before.filter(|_| !self.fresh.contains_key(id));
            let outcome = match found {
                Some(mut record) => {
                    let erased = record.erase(self.now);
                    if erased == Erased::Done {
                        self.save(record);
                    }
                    erased
                }
                None => Erased::Missing,
            };
            outcomes.push(Erasure { outcome, places: before.and_then(|at| self.all_places(&at)) });
        }
        Ok(outcomes)
    }

    /// Places of all frames of a record, where its entry has them all.
    fn all_places(&self, entry: &Entry) -> Option<Vec<Place>> {
        // Earlier formats did not mark older frames.
        let is_marked = |place: &Place| {
            let segment = self.records.segments.get(place.segment);
            segment.is_some_and(|segment| !segment.is_without_floor)
        };
        let has_all = !entry.marks.has_older && entry.places().all(|place| is_marked(&place));
        has_all.then(|| entry.places().collect())
    }

    /// Does what is due to records that somebody saw. One that has changed since is left alone.
    /// What expired needs no frame: after a restart it is found, and has expired again.
    pub(super) fn sweep(&mut self, sightings: Vec<Sighting>) -> Swept {
        let mut swept = Swept::default();
        for sighting in sightings {
            if !self.is_still(&sighting) {
                continue;
            }
            let Sighting { id, entry, record, .. } = sighting;
            let due = match &record {
                Some(record) => record.due(self.now),
                None if entry.marks.leaves_at_once() => Some(Due::Removal),
                None => None,
            };
            match (due, record) {
                (Some(Due::Removal), _) => {
                    self.remove(id);
                    swept.removed += 1;
                }
                (Some(Due::Burial), Some(mut record)) => {
                    record.bury(self.now);
                    self.save(record);
                    swept.buried += 1;
                }
                (Some(Due::Hold), Some(mut record)) => {
                    record.settle(self.now);
                    swept.held.push(record.clone().without_request());
                    self.save(record);
                }
                _ => {}
            }
        }
        swept
    }

    /// Writes records anew that somebody saw in an old segment, which is to go.
    pub(super) fn rewrite(&mut self, sightings: Vec<Sighting>) {
        for sighting in sightings {
            if !self.is_still(&sighting) {
                continue;
            }
            match sighting.record {
                Some(record) => self.save(record),
                None => self.save_damaged(sighting.id),
            }
        }
    }

    /// Notes that nothing is needed of the segments before this one. Only then may they go.
    pub(super) fn leave_behind(&mut self, segment: u32) {
        self.log.draft_floor(segment);
    }

    /// Has the segments before this one taken away.
    pub(super) fn remove_before(&mut self, segment: u32) {
        self.records.index.set_oldest_segment(segment);
        for unneeded in self.records.segments.take_before(segment) {
            self.log.remove(unneeded);
        }
    }

    pub(super) fn fact_or(&mut self, name: &str, value: Vec<u8>) -> Result<Vec<u8>, Trouble> {
        match self.facts.get(name) {
            Some(known) => Ok(known.clone()),
            None => {
                self.set_fact(name, value.clone())?;
                Ok(value)
            }
        }
    }

    pub(super) fn facts(&self) -> Vec<(String, Vec<u8>)> {
        self.facts.all()
    }

    pub(super) fn set_fact(&mut self, name: &str, value: Vec<u8>) -> Result<(), Trouble> {
        self.has_set_facts = true;
        self.facts.set(name, value.clone())?;
        if name == CLOSED_UNTIL {
            self.closed.note(&value);
        }
        Ok(())
    }

    /// Refuses unknown keys for this time, or longer where that was decided before.
    pub(super) fn close_for_unknown_keys(&mut self, time: Duration) -> Result<(), Trouble> {
        let before = self.facts.get(CLOSED_UNTIL).map(|fact| closed::decode(fact));
        let until = (self.now + time).max(before.unwrap_or_default());
        self.set_fact(CLOSED_UNTIL, closed::encode(until))
    }

    /// All of the log that is durable, the oldest segment first.
    pub(super) fn log_parts(&self) -> Vec<LogPart> {
        self.log.parts()
    }

    /// The frame that ends a copy of the log.
    pub(super) fn encoded_rest(&self) -> [u8; HEAD_LEN] {
        self.log.encoded_rest()
    }

    /// The bytes of the file of facts.
    pub(super) fn encoded_facts(&self) -> Vec<u8> {
        self.facts.encoded()
    }

    /// There is no such record any more, nor will there be one after a restart.
    pub(super) fn forget(&mut self, id: RecordId) -> Result<(), Trouble> {
        if let Slot::Vacant(vacant) = self.entries.entry(id) {
            vacant.insert(self.records.entry(&id)?);
        }
        self.log.draft(Kind::Gone, id, Marks::NONE, &[]);
        self.remove(id);
        Ok(())
    }

    fn change(
        &mut self,
        id: &RecordId,
        change: impl FnOnce(&mut Record) -> Fenced,
    ) -> Result<Fenced, Trouble> {
        let Some(mut record) = self.find(id)? else { return Ok(Fenced::Lost) };
        let fenced = change(&mut record);
        if fenced == Fenced::Applied {
            self.save(record);
        }
        Ok(fenced)
    }

    /// The record as it is now, within the batch.
    fn find(&mut self, id: &RecordId) -> Result<Option<Record>, Trouble> {
        match self.fresh.get(id) {
            Some(Fresh::Record(record)) => Ok(Some(record.clone())),
            Some(Fresh::Gone) => Ok(None),
            Some(Fresh::Damaged) => Err(damaged(id, "its frame was found to be damaged")),
            Some(Fresh::Ended { record, frame }) => {
                let answer = &self.log.payload(frame)[size_of::<u64>()..];
                let answer = frame::answer(answer, id).expect("it was just encoded");
                let mut record = record.clone();
                record.state = State::Completed { at: self.now, answer };
                Ok(Some(record))
            }
            None => {
                let found = match self.running.get(id) {
                    Some(running) => Some(running.clone()),
                    None => match self.records.look_for(id)? {
                        LookUp::Record(entry, record) => Some((entry, *record)),
                        LookUp::Remains => {
                            self.remains.insert(*id);
                            None
                        }
                        LookUp::Nothing => None,
                    },
                };
                self.entries.insert(*id, found.as_ref().map(|(entry, _)| *entry));
                Ok(found.map(|(_, record)| record))
            }
        }
    }

    /// Whether the record is still as somebody saw it.
    fn is_still(&mut self, sighting: &Sighting) -> bool {
        let Sighting { id, entry, tables_made, .. } = sighting;
        let index = &self.records.index;
        let is_still = !self.fresh.contains_key(id)
            && index.is_still(id, entry, *tables_made).is_ok_and(|is_still| is_still);
        if is_still {
            self.entries.insert(*id, Some(*entry));
        }
        is_still
    }

    fn save(&mut self, record: Record) {
        let id = record.id;
        let is_known = self.entries.get(&id).is_some_and(Option::is_some);
        let has_older = is_known || self.fresh.contains_key(&id) || self.remains.contains(&id);
        let marks = Marks { has_older, ..Marks::of(&record) };
        let frame = self.log.draft(Kind::Record, id, marks, &[&frame::encode_record(&record)]);
        self.changes.push((id, Change::Saved { frame, marks }));
        self.fresh.insert(id, Fresh::Record(record));
    }

    fn save_damaged(&mut self, id: RecordId) {
        let frame = self.log.draft(Kind::Damaged, id, Marks::NONE, &[]);
        self.changes.push((id, Change::Damaged { frame }));
        self.fresh.insert(id, Fresh::Damaged);
    }

    fn remove(&mut self, id: RecordId) {
        self.changes.push((id, Change::Gone));
        self.fresh.insert(id, Fresh::Gone);
    }
}

impl Change {
    /// Where the record lies from now on.
    fn entry(self, before: Option<Entry>, base: Option<Base>) -> Option<Entry> {
        let place = |frame: Draft| base.expect("it has a frame").place(&frame);
        match self {
            Self::Saved { frame, marks } => Some(Entry::new(place(frame), marks)),
            Self::Ended { frame, marks } => {
                let claimed = before.expect("what ends was claimed");
                Some(Entry { end: Some(place(frame)), marks, ..claimed })
            }
            Self::Damaged { frame } => Some(Entry::damaged(place(frame))),
            Self::Gone => None,
        }
    }
}
