//! Reading the log at a start, from where the index has come to.
//!
//! Whatever was going on when the process died, at the end of the log there may be a batch that was
//! being written: nobody was told of it, and what of it cannot be read is left out. All before that
//! was durable once. Where it cannot be read now the disk has lost it, and that is told.
//!
//! What the system shows of the log may not be on the disk, if the process died before a sync, or if
//! that failed. So all of it that may not be is written again before anybody is told of it.

use std::io;
use std::mem;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::frame::{Head, Kind};
use super::index::{Entry, Index, Place};
use super::kept_time::KeptTime;
use super::note::{Note, NotedSegment, Position};
use super::open_records::OpenRecords;
use super::reading::Reading;
use super::records::Records;
use super::segment::{START, Segment};
use super::segments::Segments;
use super::store_clock::date;
use super::time_source::TimeSource;
use super::{Leases, OpenError};

/// The log, read to its end.
pub(super) struct Recovered {
    pub(super) records: Records,
    pub(super) active: Arc<Segment>,
    /// Where the next batch goes.
    pub(super) end: Position,
}

/// Reads what `segments`, of which there is at least one, say behind the index's position.
pub(super) fn recover(
    folder: &Path,
    segments: Vec<Segment>,
    time: &TimeSource,
    leases: Leases,
) -> Result<Recovered, OpenError> {
    let is_gap = |pair: &&[Segment]| pair[0].number + 1 != pair[1].number;
    if let Some(pair) = segments.windows(2).find(is_gap) {
        return Err(damaged(&pair[0], "the file after it is missing"));
    }
    let (index, note) = open_index(folder, &segments)?;
    let mut recovery = Recovery::new(index, note, segments, time, leases)?;
    recovery.read_all()?;
    recovery.start_clock(folder, time)?;
    recovery.finish()
}

/// Opens the index, and reads its note. One that cannot go with the log is made anew.
fn open_index(folder: &Path, segments: &[Segment]) -> Result<(Index, Option<Note>), OpenError> {
    let failed = |error: io::Error| OpenError::Folder { path: folder.to_owned(), source: error };
    let opened = Index::open(folder).map_err(failed)?;
    let Some(note) = opened.note else { return Ok((opened.index, None)) };
    let oldest = segments[0].number;
    if let Some(note) = Note::decode(&note).filter(|note| note.position.segment >= oldest) {
        return Ok((opened.index, Some(note)));
    }
    drop(opened.index);
    tracing::warn!("the index of the store does not fit its log; it is made anew from the log");
    Index::remove(folder).map_err(failed)?;
    Ok((Index::open(folder).map_err(failed)?.index, None))
}

/// A log that is being read.
struct Recovery {
    records: Records,
    /// Those that were not read yet, the next one last.
    unread: Vec<Arc<Segment>>,
    active: Arc<Segment>,
    /// Where the next frame is.
    position: Position,
    /// From where on the active segment was read and not written again.
    read_from: u64,
    /// The segment before the active one, if it was read, and the part that was.
    before: Option<(Arc<Segment>, Range<u64>)>,
    last: Last,
    /// What the index knew of segments before the position.
    noted: Vec<NotedSegment>,
    /// The oldest segment that is needed.
    floor: u32,
    /// The store's time that was kept last.
    time: Option<KeptTime>,
}

impl Recovery {
    fn new(
        index: Index,
        note: Option<Note>,
        segments: Vec<Segment>,
        time: &TimeSource,
        leases: Leases,
    ) -> Result<Self, OpenError> {
        let oldest = &segments[0];
        let oldest_known = if oldest.is_without_floor { oldest.number } else { 1 };
        let note = note.unwrap_or_else(|| Note::at_start_of(oldest.number));
        let Note { position, last_head, time: kept, segments: noted, open } = note;
        let floor = noted.first().map_or(oldest_known, |segment| segment.number);
        let open = OpenRecords::new(open);
        let clock = time.clock();
        let records =
            Records { index, segments: Segments::new(), open, clock, leases, boot: position };
        let mut unread = Vec::new();
        for segment in segments.into_iter().map(Arc::new) {
            match noted.iter().find(|noted| noted.number == segment.number) {
                Some(noted) => records.segments.add_noted(segment.clone(), noted),
                None if segment.number >= position.segment => {
                    records.segments.add(segment.clone());
                }
                None => {
                    // It was left behind before it could be removed.
                    segment.remove().map_err(|error| unreadable(&segment, error))?;
                    continue;
                }
            }
            if segment.number >= position.segment {
                unread.insert(0, segment);
            }
        }
        let Some(active) = unread.pop().filter(|active| active.number == position.segment) else {
            let newest = records.segments.all().pop();
            let newest = newest.expect("the position is not before the oldest segment");
            return Err(damaged(&newest, "the file after it is missing"));
        };
        check_frame_before(&active, &position, last_head)?;
        records.index.set_oldest_segment(records.segments.oldest());
        let last = Last { batch: position.batch - 1, is_closed: true };
        let read_from = position.offset;
        let (before, time) = (None, kept);
        Ok(Self { records, unread, active, position, read_from, before, last, noted, floor, time })
    }

    fn read_all(&mut self) -> Result<(), OpenError> {
        while self.read_segment()? {
            let Some(next) = self.unread.pop() else {
                return Err(damaged(&self.active, "the file after it is missing"));
            };
            let sealed = mem::replace(&mut self.active, next);
            self.before = Some((sealed, self.read_from..self.position.offset));
            self.position.segment = self.active.number;
            (self.position.offset, self.read_from) = (START, START);
        }
        Ok(())
    }

    /// Reads the active segment up to the end of what was written. Whether that is a seal.
    fn read_segment(&mut self) -> Result<bool, OpenError> {
        let active = self.active.clone();
        let failed = |error: io::Error| unreadable(&active, error);
        let mut reading = Reading::from(&active, self.position.offset);
        loop {
            let head = reading.head().map_err(failed)?;
            let Some(head) = head.filter(|head| self.last.goes_on_with(head)) else {
                let unread = self.last.batch + u64::from(self.last.is_closed);
                return match reading.is_followed(unread).map_err(failed)? {
                    true => {
                        let what = format!("nothing can be read at byte {}", reading.at);
                        Err(damaged(&active, &what))
                    }
                    false => Ok(false),
                };
            };
            let is_sound = reading.is_sound(&head).map_err(failed)?;
            if !is_sound && !reading.is_followed(head.batch).map_err(failed)? {
                return Ok(false);
            }
            self.last = Last { batch: head.batch, is_closed: head.closes };
            let place = reading.place(&head);
            match head.kind {
                Kind::Seal => {
                    self.records.segments.seal(active.number, reading.at);
                    self.position.offset = reading.at + head.frame_len();
                    return Ok(true);
                }
                Kind::Floor if is_sound => {
                    let segment = reading.payload(&head).map_err(failed)?;
                    let segment = segment.try_into().map(u32::from_le_bytes);
                    self.floor = self.floor.max(segment.unwrap_or_default());
                }
                Kind::Time if is_sound => {
                    let time = KeptTime::decode(reading.payload(&head).map_err(failed)?);
                    self.time = time.or(self.time);
                }
                Kind::Rest | Kind::Floor | Kind::Time => {}
                _ => self.note(head, place, is_sound).map_err(failed)?,
            }
            reading.at += head.frame_len();
            self.position.offset = reading.at;
            if head.closes {
                self.position.batch = head.batch + 1;
                self.make_room(reading.at - head.frame_len())?;
            }
        }
    }

    /// What a frame makes of the records.
    fn note(&self, head: Head, place: Place, is_sound: bool) -> io::Result<()> {
        let before = self.records.index.get(&head.id)?;
        let now = entry_after(before, &head, place, is_sound);
        self.records.change(head.id, before, now);
        self.records.segments.account([(before, now)]);
        Ok(())
    }

    /// Has the memtable written once it is full. A whole log may be larger than the memory.
    fn make_room(&mut self, last_head: u64) -> Result<(), OpenError> {
        if self.records.index.is_full() {
            // A table must not say more than the log on the disk.
            self.make_durable()?;
            let records = &self.records;
            records
                .index
                .rotate(records.note_at(self.position, Some(last_head), self.time).encode());
            if !records.index.wait_at_start() {
                let error = io::Error::other("the index of the store cannot be written");
                return Err(unreadable(&self.active, error));
            }
        }
        Ok(())
    }

    /// Writes again what was read, and may not be on the disk.
    fn make_durable(&mut self) -> Result<(), OpenError> {
        let write_again = |segment: &Segment, part| {
            segment.write_again(part).map_err(|error| unreadable(segment, error))
        };
        // A segment that holds anything says that the one before was durable.
        let before = self.before.as_ref().filter(|_| self.position.offset == START);
        if let Some((before, part)) = before {
            write_again(before, part.clone())?;
        }
        write_again(&self.active, self.read_from..self.position.offset)?;
        self.read_from = self.position.offset;
        Ok(())
    }

    /// Has the store's time go on from what was kept of it.
    fn start_clock(&self, folder: &Path, time: &TimeSource) -> Result<(), OpenError> {
        time.start(self.time).map_err(|gap| OpenError::ClockGap {
            path: folder.to_owned(),
            kept: date(gap.kept),
            wall_clock: date(gap.wall),
        })
    }

    fn finish(mut self) -> Result<Recovered, OpenError> {
        self.position.batch = self.last.batch + 1;
        for unused in mem::take(&mut self.unread) {
            remove_unused(&unused)?;
            self.records.segments.remove(unused.number);
        }
        // What says that older segments are not needed must be durable before they go.
        self.make_durable()?;
        self.check_older()?;
        let (active, end) = (self.active, self.position);
        let mut records = self.records;
        records.boot = end;
        if records.leases == Leases::EndAtBoot {
            records.open.end_claims();
        }
        Ok(Recovered { records, active, end })
    }

    /// Makes sure that all segments that are needed are there, and whole.
    fn check_older(&mut self) -> Result<(), OpenError> {
        for segment in self.records.segments.all() {
            if segment.number < self.floor {
                segment.remove().map_err(|error| unreadable(&segment, error))?;
                self.records.segments.remove(segment.number);
            }
        }
        let oldest = self.records.segments.oldest();
        if oldest > self.floor {
            let oldest = self.records.segments.get(oldest).expect("it is there");
            return Err(damaged(&oldest, "the file before it is missing"));
        }
        self.records.index.set_oldest_segment(oldest);
        for NotedSegment { number, sealed_at, .. } in &self.noted {
            let (Some(segment), Some(sealed_at)) = (self.records.segments.get(*number), sealed_at)
            else {
                continue;
            };
            let head = Reading::from(&segment, *sealed_at).head();
            let head = head.map_err(|error| unreadable(&segment, error))?;
            if !head.is_some_and(|head| head.kind == Kind::Seal) {
                return Err(damaged(&segment, "its end is missing"));
            }
        }
        Ok(())
    }
}

/// The entry of a record behind a frame about it.
pub(super) fn entry_after(
    before: Option<Entry>,
    head: &Head,
    place: Place,
    is_sound: bool,
) -> Option<Entry> {
    match (head.kind, before) {
        (Kind::Gone, _) if is_sound => None,
        (Kind::Record, _) if is_sound => Some(Entry::new(place, head.marks)),
        (Kind::Ended, Some(before)) if is_sound && !before.is_damaged => {
            Some(Entry { end: Some(place), marks: head.marks, ..before })
        }
        // Its claim was in a segment that is gone, so nobody needs it: it has expired, or a
        // later frame says more.
        (Kind::Ended, None) => None,
        // A claim that is damaged is not made whole by its end.
        _ => Some(Entry::damaged(place)),
    }
}

/// Makes sure that the log reaches as far as the index does.
fn check_frame_before(
    segment: &Segment,
    position: &Position,
    last_head: Option<u64>,
) -> Result<(), OpenError> {
    let Some(at) = last_head else { return Ok(()) };
    let head = Reading::from(segment, at).head().map_err(|error| unreadable(segment, error))?;
    let is_there = head.is_some_and(|head| {
        head.batch + 1 == position.batch && at + head.frame_len() == position.offset
    });
    match is_there {
        true => Ok(()),
        false => Err(damaged(segment, &format!("nothing can be read at byte {at}"))),
    }
}

/// A segment that was made beforehand is made again when it is needed.
fn remove_unused(segment: &Segment) -> Result<(), OpenError> {
    let mut reading = Reading::new(segment);
    match reading.head() {
        Ok(None) => segment.remove().map_err(|error| unreadable(segment, error)),
        Ok(Some(_)) => {
            Err(damaged(segment, "the log goes on in it, and the file before has no end"))
        }
        Err(error) => Err(unreadable(segment, error)),
    }
}

/// The last batch that was read.
pub(super) struct Last {
    pub(super) batch: u64,
    /// Whether it was read to its end.
    pub(super) is_closed: bool,
}

impl Last {
    /// Whether `head` may follow. What does not is left over from an attempt that failed.
    pub(super) fn goes_on_with(&self, head: &Head) -> bool {
        head.batch == self.batch + u64::from(self.is_closed)
            || head.batch == self.batch + 1
            || self.batch == 0
    }
}

fn damaged(segment: &Segment, what: &str) -> OpenError {
    OpenError::Damaged { path: segment.path.clone(), what: what.to_owned() }
}

fn unreadable(segment: &Segment, error: io::Error) -> OpenError {
    OpenError::File { path: segment.path.clone(), source: error.into() }
}
