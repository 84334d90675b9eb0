//! Scans of segments: what is due to their records, how many are in which state, what is needed.

use std::ops::Bound;

use selfsame_core::{Record, RecordId, Timestamp, wire};

use super::frame::{Head, Kind};
use super::index::{Entry, Place};
use super::reading::Reading;
use super::records::{BITE_BYTES, Records};
use super::segment::{START, Segment};
use super::trouble::{Failure, Trouble};
use crate::stores::durable::{CLAIMED, HELD};

/// How much of a segment is looked through at a time.
const FRAMES_MAX: usize = 16_384;
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes of records that are written anew at a time.
const REWRITTEN_MAX: u64 = 1024 * 1024;

const NEVER: Timestamp = Timestamp::from_millis(u64::MAX);

/// A record as somebody saw it: whoever changes it looks whether it is still the same.
pub(super) struct Sighting {
    pub(super) id: RecordId,
    pub(super) entry: Entry,
    /// Absent where it was not worth reading, or is damaged.
    pub(super) record: Option<Record>,
    /// As many memtables had been written as tables before.
    pub(super) tables_made: u64,
}

/// A part of the store, looked through.
pub(super) struct Stretch<P> {
    pub(super) sightings: Vec<Sighting>,
    /// Where to go on, unless it came to the end.
    pub(super) next: Option<P>,
}

/// A scan of a segment for what is due to the closed records whose newest frames it holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct DueScan {
    pub(super) segment: u32,
    /// Where it goes on.
    at: u64,
    /// Nothing is due before to those that were seen and left alone.
    pub(super) due: Timestamp,
}

impl DueScan {
    pub(super) fn of(segment: &Segment) -> Self {
        Self { segment: segment.number, at: START, due: NEVER }
    }
}

/// Number of records in each state, as `wire::state_code` numbers them.
pub(super) type States = [u64; 6];

impl Records {
    /// Open records from an id on to which something is due, no more than `most`.
    pub(super) fn due_open(
        &self,
        from: Bound<RecordId>,
        most: usize,
    ) -> Result<Stretch<RecordId>, Trouble> {
        let (now, tables_made) = (self.clock.now(), self.index.tables_made());
        let due = self.open.due(from, now, most);
        let next = due.last().copied().filter(|_| due.len() == most);
        let (mut sightings, mut read, mut last) = (Vec::new(), 0, None);
        for id in due {
            if read >= BITE_BYTES {
                return Ok(Stretch { sightings, next: last });
            }
            last = Some(id);
            let Some(entry) = self.entry(&id)? else { continue };
            // Where it cannot be read it stays as it is.
            let record = self.read(&id, &entry).ok();
            read += entry.bytes();
            if let Some(record) = &record
                && record.due(now).is_none()
            {
                self.open.wait(&id, record.settled_until());
                continue;
            }
            sightings.push(Sighting { id, entry, record, tables_made });
        }
        Ok(Stretch { sightings, next })
    }

    /// Goes on with a scan until `most` records were found to which something is due.
    pub(super) fn due_closed(
        &self,
        segment: &Segment,
        scan: &mut DueScan,
        most: usize,
    ) -> Result<Stretch<()>, Trouble> {
        let (now, tables_made) = (self.clock.now(), self.index.tables_made());
        let (mut sightings, mut read) = (Vec::new(), 0);
        let mut due = scan.due;
        let next = self.scan_closed(segment, scan.at, |id, entry| {
            if self.is_settled(&entry, now) {
                due = due.min(entry.marks.settled_until);
                return Ok(true);
            }
            let record = match entry.marks.leaves_at_once() {
                true => None,
                // Where it cannot be read it stays as it is, and is looked at again.
                false => {
                    read += entry.bytes();
                    self.read(&id, &entry).inspect_err(|_| due = Timestamp::default()).ok()
                }
            };
            sightings.push(Sighting { id, entry, record, tables_made });
            Ok(sightings.len() < most && read < BITE_BYTES)
        })?;
        scan.due = due;
        scan.at = next.unwrap_or(scan.at);
        Ok(Stretch { sightings, next: next.map(|_| ()) })
    }

    /// Looks through a part of `segment` for what is still needed of it.
    pub(super) fn survey(
        &self,
        segment: &Segment,
        from: Option<u64>,
    ) -> Result<Stretch<u64>, Trouble> {
        let tables_made = self.index.tables_made();
        let (mut sightings, mut bytes) = (Vec::new(), 0);
        let next = self.scan_frames(
            segment,
            from.unwrap_or(START),
            |_| true,
            |id, entry, here| {
                let record = match self.read(&id, &entry) {
                    Ok(record) => Some(Some(record)),
                    Err(Trouble::Damaged(_)) => Some(None),
                    // It has just become another: it lies elsewhere.
                    Err(Trouble::Moved) => None,
                    // That it cannot be read now says nothing of it.
                    Err(trouble) => return Err(trouble),
                };
                sightings.extend(record.map(|record| Sighting { id, entry, record, tables_made }));
                bytes += u64::from(here.len);
                Ok(bytes < REWRITTEN_MAX)
            },
        )?;
        Ok(Stretch { sightings, next })
    }

    /// Counts the closed records whose newest frames are in a part of `segment`, as a reader sees
    /// them. Returns where to go on.
    pub(super) fn count_closed(
        &self,
        segment: &Segment,
        from: Option<u64>,
        states: &mut States,
    ) -> Result<Option<u64>, Trouble> {
        let (now, mut read) = (self.clock.now(), 0);
        self.scan_closed(segment, from.unwrap_or(START), |id, entry| {
            if self.is_settled(&entry, now) {
                states[usize::from(entry.marks.state)] += 1;
            } else if !entry.marks.leaves_at_once() {
                read += entry.bytes();
                self.count_seen(&id, states)?;
            }
            Ok(read < BITE_BYTES)
        })
    }

    /// Counts an open record, as a reader sees it.
    pub(super) fn count_seen(&self, id: &RecordId, states: &mut States) -> Result<(), Trouble> {
        let now = self.clock.now();
        match self.seen(id) {
            Ok(Some(record)) if record.is_held(now) => states[usize::from(HELD)] += 1,
            Ok(Some(record)) => states[usize::from(wire::state_code(&record.state).0)] += 1,
            Ok(None) | Err(Trouble::Damaged(_)) => {}
            Err(trouble) => return Err(trouble),
        }
        Ok(())
    }

    /// Shows the closed entries whose newest frames are in `segment`, until `see` has enough. Returns
    /// where to go on, unless it came to the end.
    fn scan_closed(
        &self,
        segment: &Segment,
        from: u64,
        mut see: impl FnMut(RecordId, Entry) -> Result<bool, Trouble>,
    ) -> Result<Option<u64>, Trouble> {
        // Others need not be looked up.
        let may_close = |head: &Head| ![CLAIMED, HELD].contains(&head.marks.state);
        self.scan_frames(segment, from, may_close, |id, entry, here| {
            match entry.is_closed() && here == entry.newest() {
                true => see(id, entry),
                false => Ok(true),
            }
        })
    }

    /// Shows the frames of `segment` that are still needed, of those that `counts` takes.
    fn scan_frames(
        &self,
        segment: &Segment,
        from: u64,
        counts: impl Fn(&Head) -> bool,
        mut see: impl FnMut(RecordId, Entry, Place) -> Result<bool, Trouble>,
    ) -> Result<Option<u64>, Trouble> {
        let mut reading = Reading::from(segment, from);
        for _ in 0..FRAMES_MAX {
            let head = reading.head().map_err(Failure::Refused)?;
            let Some(head) = head.filter(|head| head.kind != Kind::Seal) else { return Ok(None) };
            let here = reading.place(&head);
            reading.at += head.frame_len();
            let entry = match head.kind {
                Kind::Record | Kind::Ended | Kind::Damaged => match counts(&head) {
                    true => self.entry(&head.id)?,
                    false => None,
                },
                Kind::Gone | Kind::Seal | Kind::Rest | Kind::Floor | Kind::Time => None,
            };
            if let Some(entry) = entry
                && entry.places().any(|place| place == here)
                && !see(head.id, entry, here)?
            {
                break;
            }
            if reading.at - from >= BYTES_MAX {
                break;
            }
        }
        Ok(Some(reading.at))
    }
}
