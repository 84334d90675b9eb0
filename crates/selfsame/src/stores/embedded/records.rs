//! [`Records`]: the durable records, as everybody may read them beside the writer.

use std::io;
use std::ops::Bound;
use std::sync::Arc;

use selfsame_core::wire;
use selfsame_core::{Ask, Claimed, Clock, Count, Filter, Find, Record, RecordId, State, Timestamp};

use super::Leases;
use super::frame::{self, HEAD_LEN, Head, Kind};
use super::index::{Entry, Index, Place};
use super::reading::Reading;
use super::segment::{START, Segment};
use super::segments::Segments;
use super::trouble::{Failure, Trouble, damaged};
use crate::stores::durable::{CLAIMED, HELD, count_state, id_range};

/// How often a record is looked for that is moved meanwhile.
const LOOKS_MAX: usize = 8;

/// How much of a segment is looked through, and how much of it moved, at a time.
const SURVEY_FRAMES: usize = 4096;
const SURVEY_BYTES: u64 = 1024 * 1024;

/// The durable records.
pub(super) struct Records {
    pub(super) index: Index,
    pub(super) segments: Segments,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) leases: Leases,
}

/// A record as somebody saw it: whoever changes it looks whether it is still the same.
pub(super) struct Sighting {
    pub(super) id: RecordId,
    pub(super) entry: Entry,
    /// Absent where it was not worth reading, or is damaged.
    pub(super) record: Option<Record>,
}

/// A part of the store, looked through.
pub(super) struct Stretch<P> {
    pub(super) sightings: Vec<Sighting>,
    /// Where to go on, unless it came to the end.
    pub(super) next: Option<P>,
}

/// What was found in a part of the store.
pub(super) struct Bite {
    pub(super) found: Vec<Record>,
    /// Where to go on, unless it came to the end.
    pub(super) next: Option<RecordId>,
}

impl Records {
    /// The record as it was written last, unless there is none.
    pub(super) fn get(&self, id: &RecordId) -> Result<Option<Record>, Trouble> {
        for _ in 0..LOOKS_MAX {
            let Some(entry) = self.index.get(id) else { return Ok(None) };
            match self.read(id, &entry) {
                // It was moved since, and the file it was in is gone.
                Err(Trouble::Moved) => {}
                read => return read.map(Some),
            }
        }
        Err(Trouble::Failed(Failure::Refused(io::Error::other("the record is being moved"))))
    }

    /// What a claim comes to, where that needs no write, and by which record. That a key is free is
    /// never said here.
    pub(super) fn settled(&self, ask: &Ask) -> Result<Option<(Claimed, Record)>, Trouble> {
        let Some(record) = self.get(&ask.id)? else { return Ok(None) };
        match selfsame_core::claim(Some(&record), ask, self.clock.now()) {
            (claimed, None) => Ok(Some((claimed, record))),
            (_, Some(_)) => Ok(None),
        }
    }

    /// The record as a reader sees it.
    pub(super) fn seen(&self, id: &RecordId) -> Result<Option<Record>, Trouble> {
        Ok(self.get(id)?.and_then(|record| record.seen_at(self.clock.now())))
    }

    pub(super) fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, Trouble> {
        let now = self.clock.now();
        let (low, high) = match find {
            Find::IdPrefix(prefix) => match id_range(prefix) {
                Some(range) => range,
                None => return Ok(Vec::new()),
            },
            _ => ([0; RecordId::LEN], [u8::MAX; RecordId::LEN]),
        };
        let may_be_meant = |entry: &Entry| match find {
            Find::Key(key) => entry.marks.key == frame::key_mark(key),
            Find::IdPrefix(_) | Find::Matching { .. } => true,
            Find::Held | Find::Abandoned { .. } => matches!(entry.marks.state, CLAIMED | HELD),
        };
        let is_meant = |record: &Record| match find {
            Find::Key(key) => record.label.key.as_str() == key,
            Find::IdPrefix(_) => true,
            Find::Held => record.is_held(now),
            Find::Abandoned { .. } => record.is_abandoned(now),
            Find::Matching { filter, .. } => filter.lets_through(record, now),
        };
        let mut found = Vec::new();
        let mut from = match find {
            Find::Abandoned { after: Some(after) } => Bound::Excluded(*after),
            _ => Bound::Included(RecordId::from_bytes(low)),
        };
        while found.len() < most {
            let mut ids = Vec::new();
            let last = self.index.walk(from, most.max(SURVEY_FRAMES), |id, entry| {
                if *id.as_bytes() <= high && may_be_meant(entry) {
                    ids.push(*id);
                }
            });
            for id in ids {
                if found.len() == most {
                    break;
                }
                match self.seen(&id) {
                    Ok(Some(record)) if is_meant(&record) => found.push(record.without_request()),
                    // A damaged one has raised its alarm, and does not stop whoever looks at many.
                    Ok(_) | Err(Trouble::Damaged(_)) => {}
                    Err(trouble) => return Err(trouble),
                }
            }
            match last.filter(|last| *last.as_bytes() < high) {
                Some(last) => from = Bound::Excluded(last),
                None => break,
            }
        }
        Ok(found)
    }

    /// The records that `filter` lets through among the next few behind `after`.
    pub(super) fn matching(
        &self,
        filter: &Filter,
        after: Option<RecordId>,
    ) -> Result<Bite, Trouble> {
        let now = self.clock.now();
        let mut ids = Vec::new();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.index.walk(from, SURVEY_FRAMES, |id, _| ids.push(*id));
        let mut found = Vec::new();
        for id in ids {
            match self.seen(&id) {
                Ok(Some(record)) if filter.lets_through(&record, now) => {
                    found.push(record.without_request());
                }
                Ok(_) | Err(Trouble::Damaged(_)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(Bite { found, next })
    }

    /// The damaged records whose ids, in hexadecimal, begin so.
    pub(super) fn damaged(&self, prefix: &str) -> Result<Vec<RecordId>, Trouble> {
        let Some((low, high)) = id_range(prefix) else { return Ok(Vec::new()) };
        let mut ids = Vec::new();
        let from = Bound::Included(RecordId::from_bytes(low));
        self.index.walk(from, usize::MAX, |id, _| {
            if *id.as_bytes() <= high {
                ids.push(*id);
            }
        });
        let mut found = Vec::new();
        for id in ids {
            match self.get(&id) {
                Ok(_) => {}
                Err(Trouble::Damaged(_)) => found.push(id),
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(found)
    }

    pub(super) fn count(&self) -> Result<Count, Trouble> {
        let now = self.clock.now();
        let mut by_state = [0; 16];
        let mut unsettled = Vec::new();
        self.index.walk(Bound::Unbounded, usize::MAX, |id, entry| {
            match self.is_settled(entry, now) {
                true => by_state[usize::from(entry.marks.state)] += 1,
                false => unsettled.push(*id),
            }
        });
        for id in unsettled {
            let record = match self.seen(&id) {
                Ok(record) => record,
                Err(Trouble::Damaged(_)) => continue,
                Err(trouble) => return Err(trouble),
            };
            let state = record.map(|record| match record.is_held(now) {
                true => HELD,
                false => wire::state_code(&record.state).0,
            });
            state.into_iter().for_each(|state| by_state[usize::from(state)] += 1);
        }
        let mut count = Count::default();
        for (state, records) in (0_u8..).zip(by_state) {
            count_state(&mut count, state, records);
        }
        Ok(count)
    }

    /// Looks at no more than `most` records, and tells those with which a sweep has something to do.
    pub(super) fn due(&self, from: Bound<RecordId>, most: usize) -> Stretch<RecordId> {
        let now = self.clock.now();
        let mut sightings = Vec::new();
        let next = self.index.walk(from, most, |id, entry| {
            if !self.is_settled(entry, now) {
                sightings.push(Sighting { id: *id, entry: *entry, record: None });
            }
        });
        for sighting in &mut sightings {
            if !sighting.entry.marks.leaves_at_once() {
                // Where it cannot be read it stays as it is.
                sighting.record = self.read(&sighting.id, &sighting.entry).ok();
            }
        }
        Stretch { sightings, next }
    }

    /// Looks through a part of `segment` for what is still needed of it.
    pub(super) fn survey(
        &self,
        segment: &Segment,
        from: Option<u64>,
    ) -> Result<Stretch<u64>, Trouble> {
        let mut reading = Reading::from(segment, from.unwrap_or(START));
        let (mut sightings, mut bytes) = (Vec::new(), 0);
        for _ in 0..SURVEY_FRAMES {
            let head = reading.head().map_err(Failure::Refused)?;
            let Some(head) = head.filter(|head| head.kind != Kind::Seal) else {
                return Ok(Stretch { sightings, next: None });
            };
            let here = reading.place(&head);
            if let Some(entry) = self.index.get(&head.id)
                && entry.places().any(|place| place == here)
            {
                match self.read(&head.id, &entry) {
                    // It has just become another: it lies elsewhere.
                    Err(Trouble::Moved) => {}
                    Ok(record) => {
                        sightings.push(Sighting { id: head.id, entry, record: Some(record) });
                    }
                    Err(Trouble::Damaged(_)) => {
                        sightings.push(Sighting { id: head.id, entry, record: None });
                    }
                    // That it cannot be read now says nothing of it.
                    Err(trouble) => return Err(trouble),
                }
                bytes += head.frame_len();
            }
            reading.at += head.frame_len();
            if bytes >= SURVEY_BYTES {
                break;
            }
        }
        Ok(Stretch { sightings, next: Some(reading.at) })
    }

    /// Whether the record is what its marks say. A damaged one is left alone.
    fn is_settled(&self, entry: &Entry, now: Timestamp) -> bool {
        let is_dead = self.leases == Leases::EndAtBoot && entry.is_earlier;
        entry.is_damaged
            || now < entry.marks.settled_until && !(is_dead && entry.marks.is_claimed())
    }

    fn read(&self, id: &RecordId, entry: &Entry) -> Result<Record, Trouble> {
        if entry.is_damaged {
            return Err(damaged(id, "its frame was found to be damaged"));
        }
        let payload = self.payload(id, entry, Kind::Record, entry.record)?;
        let record = wire::decode_record(&payload).map_err(|error| damaged(id, error))?;
        let mut record = match entry.end {
            Some(end) => {
                let payload = self.payload(id, entry, Kind::Ended, end)?;
                frame::ended(record, &payload).map_err(|error| damaged(id, error))?
            }
            None => record,
        };
        if let State::Claimed { lease_until } = &mut record.state
            && entry.is_earlier
            && self.leases == Leases::EndAtBoot
        {
            *lease_until = Timestamp::default();
        }
        Ok(record)
    }

    /// What the frame at `place` says of the record `id`.
    fn payload(
        &self,
        id: &RecordId,
        entry: &Entry,
        kind: Kind,
        place: Place,
    ) -> Result<Vec<u8>, Trouble> {
        let segment = self.segments.get(place.segment).ok_or(Trouble::Moved)?;
        let mut frame = match segment.read(place.len as usize, place.offset.into()) {
            Ok(frame) => frame,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(damaged(id, "its file is too short"));
            }
            Err(error) => return Err(Trouble::Failed(Failure::Refused(error))),
        };
        let payload = frame.split_off(HEAD_LEN);
        let head = frame.as_slice().try_into().ok();
        let head = head.and_then(|head| Head::decode(head, segment.salt));
        let fits = head.is_some_and(|head| {
            head.id == *id && head.kind == kind && head.payload_sum == crc32fast::hash(&payload)
        });
        match fits {
            true => Ok(payload),
            // It was erased since, and what it said was overwritten.
            false if self.index.get(id) != Some(*entry) => Err(Trouble::Moved),
            false => Err(damaged(id, "the checksum does not fit")),
        }
    }
}
