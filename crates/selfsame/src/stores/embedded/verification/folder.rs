//! Verification of a folder that nobody serves. Nothing in it is changed.
//!
//! The log is read from its beginning, frame by frame, with the rules of a start ([`super::super::recover`]).
//! What comes behind the index's position is put over the index in memory. Then each record is read
//! where the index says that it is.

use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use selfsame_core::{Clock, RecordId, Timestamp};

use super::{DamagedPlace, Verified, is_expired};
use crate::stores::embedded::facts::FactsFile;
use crate::stores::embedded::folder::Folder;
use crate::stores::embedded::frame::{self, HEAD_LEN, Head, Kind};
use crate::stores::embedded::index::{DamagedTable, Entry, FOLDER, Index, Place};
use crate::stores::embedded::kept_time::KeptTime;
use crate::stores::embedded::note::{Note, Position};
use crate::stores::embedded::open_records::OpenRecords;
use crate::stores::embedded::reading::Reading;
use crate::stores::embedded::records::{
    BITE, CHECKSUM, FILE_TOO_SHORT, Records, UnreadFrame, frame_at,
};
use crate::stores::embedded::recover::{Last, entry_after};
use crate::stores::embedded::segment::Segment;
use crate::stores::embedded::segments::Segments;
use crate::stores::embedded::{Leases, OpenError};

/// Bytes that are read before whoever verifies is told.
const STEP: u64 = 256 * 1024;

/// Told how many bytes were read since. May take its time; an error ends the verification.
pub(in crate::stores::embedded) type See<'a> = &'a mut dyn FnMut(u64) -> io::Result<()>;

/// Verifies the store in `path`, which nobody may have open.
pub(in crate::stores::embedded) fn verify(
    path: &Path,
    see: See<'_>,
) -> Result<Verified, OpenError> {
    let folder = Folder::open_to_read(path)?;
    let failed = |source: io::Error| folder.failure(source);
    let mut verified = Verified::default();
    match FactsFile::check(path) {
        Ok(bytes) => verified.bytes += bytes,
        Err(OpenError::Damaged { path, what }) => verified.add(DamagedPlace::file(path, what)),
        Err(error) => return Err(error),
    }
    let segments = open_segments(path, &mut verified)?;
    let Some(oldest) = segments.first().map(|segment| segment.number) else {
        let what = "the log is missing";
        verified.add(DamagedPlace::file(Segment::path(path, 1), what));
        return Ok(verified);
    };
    let mut read = 0;
    let counted = &mut |bytes| {
        read += bytes;
        see(bytes)
    };
    let opened = Index::open_to_read(path, counted).map_err(failed)?;
    verified.bytes += read;
    for DamagedTable { path, offset, what } in opened.damage {
        verified.add(DamagedPlace { path, offset, len: 0, record: None, what });
    }
    let (index, note) = match opened.note.map(|note| Note::decode(&note)) {
        None => (opened.index, None),
        Some(Some(note)) if note.position.segment >= oldest => (opened.index, Some(note)),
        Some(_) => {
            let what = "the index does not fit the log";
            verified.add(DamagedPlace::file(path.join(FOLDER), what));
            (Index::empty_to_read(path), None)
        }
    };
    let mut verification = Verification::new(path, index, note, segments, verified, see);
    verification.read_log().map_err(failed)?;
    verification.read_records().map_err(failed)?;
    Ok(verification.verified)
}

/// The segments that can be opened, the oldest first.
fn open_segments(path: &Path, verified: &mut Verified) -> Result<Vec<Arc<Segment>>, OpenError> {
    let names = Segment::names_in(path)
        .map_err(|source| OpenError::Folder { path: path.to_owned(), source })?;
    let mut segments = Vec::<Arc<Segment>>::new();
    let mut before = None;
    for (number, path) in names {
        if before.is_some_and(|before| before + 1 != number) {
            verified.add(DamagedPlace::file(path.clone(), "the file before it is missing"));
        }
        before = Some(number);
        match Segment::open_to_read(path, number) {
            Ok(segment) => segments.push(Arc::new(segment)),
            Err(OpenError::Damaged { path, what }) => verified.add(DamagedPlace::file(path, what)),
            Err(OpenError::Foreign { path }) => {
                verified.add(DamagedPlace::file(path, "its beginning is not what was written"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(segments)
}

struct Verification<'a> {
    folder: PathBuf,
    records: Records,
    segments: Vec<Arc<Segment>>,
    /// Where the index ends.
    position: Position,
    is_without_index: bool,
    last: Last,
    /// The oldest segment that is needed.
    floor: u32,
    /// The store's time that was kept last.
    time: Option<KeptTime>,
    verified: Verified,
    see: See<'a>,
    /// Bytes that were read and not told.
    untold: u64,
}

/// How the reading of a segment ended.
#[derive(PartialEq, Eq)]
enum End {
    Sealed,
    /// The log ends there, or the rest cannot be read.
    Open {
        is_used: bool,
    },
}

impl<'a> Verification<'a> {
    fn new(
        folder: &Path,
        index: Index,
        note: Option<Note>,
        segments: Vec<Arc<Segment>>,
        verified: Verified,
        see: See<'a>,
    ) -> Self {
        let oldest = &segments[0];
        let oldest_known = if oldest.is_without_floor { oldest.number } else { 1 };
        let is_without_index = note.is_none();
        let note = note.unwrap_or_else(|| Note::at_start_of(oldest.number));
        let floor = note.segments.first().map_or(oldest_known, |segment| segment.number);
        let Note { position, time, .. } = note;
        let records = Records {
            index,
            segments: Segments::new(),
            open: OpenRecords::default(),
            clock: Arc::new(Standing),
            leases: Leases::Keep,
            boot: position,
        };
        for segment in &segments {
            records.segments.add(segment.clone());
        }
        let last = Last { batch: 0, is_closed: true };
        let folder = folder.to_owned();
        Self {
            folder,
            records,
            segments,
            position,
            is_without_index,
            last,
            floor,
            time,
            verified,
            see,
            untold: 0,
        }
    }

    /// Reads the log from its beginning.
    fn read_log(&mut self) -> io::Result<()> {
        let mut before: Option<(Arc<Segment>, End)> = None;
        for segment in std::mem::take(&mut self.segments) {
            // One that was left behind before it could be removed.
            if !self.is_without_index && segment.number < self.floor {
                continue;
            }
            let end = match self.read_segment(&segment) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    self.damaged_file(&segment, &format!("it cannot be read: {error}"));
                    self.last = Last { batch: 0, is_closed: true };
                    End::Sealed
                }
                end => end?,
            };
            if let Some((before, ended)) = &before
                && *ended != End::Sealed
                && end != (End::Open { is_used: false })
            {
                self.damaged_file(before, "its end is missing");
            }
            before = Some((segment, end));
        }
        let Some((newest, end)) = before else { return Ok(()) };
        if end == End::Sealed || self.position.segment > newest.number {
            self.damaged_file(&newest, "the file after it is missing");
        }
        let oldest = self.records.segments.oldest();
        if oldest > self.floor {
            let oldest = self.records.segments.get(oldest).expect("it is there");
            self.damaged_file(&oldest, "the file before it is missing");
        }
        self.records.index.set_oldest_segment(self.floor.max(oldest));
        Ok(())
    }

    fn damaged_file(&mut self, segment: &Segment, what: &str) {
        self.verified.add(DamagedPlace::file(segment.path.clone(), what));
    }

    fn read_segment(&mut self, segment: &Segment) -> io::Result<End> {
        let mut reading = Reading::new(segment);
        let mut is_used = false;
        loop {
            let head = reading.head()?;
            let Some(head) = head.filter(|head| self.last.goes_on_with(head)) else {
                let unread = self.last.batch + u64::from(self.last.is_closed);
                if !reading.is_followed(unread)? {
                    return self.end_of_log(&reading, is_used);
                }
                self.skip_lost(&mut reading)?;
                continue;
            };
            is_used = true;
            let is_sound = reading.is_sound(&head)?;
            if !is_sound && !reading.is_followed(head.batch)? {
                return self.end_of_log(&reading, is_used);
            }
            self.last = Last { batch: head.batch, is_closed: head.closes };
            self.read(head.frame_len())?;
            self.note(&mut reading, &head, is_sound)?;
            reading.at += head.frame_len();
            if head.kind == Kind::Seal {
                return Ok(End::Sealed);
            }
        }
    }

    /// Where nothing more was written to the log.
    fn end_of_log(&mut self, reading: &Reading<'_>, is_used: bool) -> io::Result<End> {
        let Position { segment, offset, .. } = self.position;
        if reading.segment.number == segment && reading.at < offset {
            self.verified.add(DamagedPlace {
                path: reading.segment.path.clone(),
                offset: Some(reading.at),
                len: offset - reading.at,
                record: None,
                what: "the log ends before the index does".to_owned(),
            });
        }
        Ok(End::Open { is_used })
    }

    /// Goes on behind frames whose heads cannot be read.
    fn skip_lost(&mut self, reading: &mut Reading<'_>) -> io::Result<()> {
        let lost = reading.at;
        if !reading.find_next_head()? {
            reading.at = lost + HEAD_LEN as u64;
        }
        let len = reading.at - lost;
        self.verified.add(DamagedPlace {
            path: reading.segment.path.clone(),
            offset: Some(lost),
            len,
            record: None,
            what: "nothing can be read here, and the log goes on behind it".to_owned(),
        });
        self.last = Last { batch: 0, is_closed: true };
        self.read(len)
    }

    /// What a frame says of the log, and behind the index's position of the records.
    fn note(&mut self, reading: &mut Reading<'_>, head: &Head, is_sound: bool) -> io::Result<()> {
        let place = reading.place(head);
        match head.kind {
            Kind::Seal | Kind::Rest => {}
            Kind::Floor | Kind::Time if !is_sound => self.verified.add(DamagedPlace {
                path: reading.segment.path.clone(),
                offset: Some(reading.at),
                len: head.frame_len(),
                record: None,
                what: CHECKSUM.to_owned(),
            }),
            Kind::Floor => {
                let segment = reading.payload(head)?.try_into().map(u32::from_le_bytes);
                self.floor = self.floor.max(segment.unwrap_or_default());
            }
            Kind::Time => self.time = KeptTime::decode(reading.payload(head)?).or(self.time),
            Kind::Record | Kind::Ended | Kind::Gone | Kind::Damaged => {
                let behind = (place.segment, reading.at);
                if behind >= (self.position.segment, self.position.offset) {
                    let before = self.records.index.get(&head.id)?;
                    let now = entry_after(before, head, place, is_sound);
                    self.records.change(head.id, before, now);
                }
            }
        }
        Ok(())
    }

    /// Reads each record that has not expired.
    fn read_records(&mut self) -> io::Result<()> {
        let now = self.time.map_or(Timestamp::default(), |time| time.store);
        let mut from = Bound::Unbounded;
        loop {
            let mut bite = Vec::with_capacity(BITE);
            let last = self.records.index.walk(from, BITE, |id, entry| bite.push((*id, *entry)))?;
            for (id, entry) in bite {
                if !is_expired(&entry, now) {
                    self.verified.records += 1;
                    self.read_record(&id, &entry)?;
                }
            }
            match last {
                Some(last) => from = Bound::Excluded(last),
                None => return Ok(()),
            }
        }
    }

    fn read_record(&mut self, id: &RecordId, entry: &Entry) -> io::Result<()> {
        if entry.is_damaged {
            self.damaged_record(id, entry.record, "it was found to be damaged before");
            return Ok(());
        }
        let mut payloads = Vec::new();
        for (kind, place) in [(Kind::Record, Some(entry.record)), (Kind::Ended, entry.end)] {
            let Some(place) = place else { continue };
            self.read(place.len.into())?;
            let Some(segment) = self.records.segments.get(place.segment) else {
                self.damaged_record(id, place, "its file is missing");
                continue;
            };
            match frame_at(&segment, id, kind, place) {
                Ok(payload) => payloads.push(payload),
                Err(UnreadFrame::TooShort) => self.damaged_record(id, place, FILE_TOO_SHORT),
                Err(UnreadFrame::Damaged) => self.damaged_record(id, place, CHECKSUM),
                Err(UnreadFrame::Failed(error)) => {
                    self.damaged_record(id, place, &format!("it cannot be read: {error}"));
                }
            }
        }
        let decoded = match (&*payloads, entry.end) {
            ([record], None) => frame::record(record, id).map(drop),
            ([record, end], Some(_)) => {
                frame::record(record, id).and_then(|record| frame::ended(record, end)).map(drop)
            }
            _ => return Ok(()),
        };
        if let Err(error) = decoded {
            let what = format!("it cannot be decoded: {error}");
            self.damaged_record(id, entry.newest(), &what);
        }
        Ok(())
    }

    fn damaged_record(&mut self, id: &RecordId, place: Place, what: &str) {
        self.verified.add(DamagedPlace {
            path: Segment::path(&self.folder, place.segment),
            offset: Some(place.offset.into()),
            len: place.len.into(),
            record: Some(*id),
            what: what.to_owned(),
        });
    }

    /// Counts what was read.
    fn read(&mut self, bytes: u64) -> io::Result<()> {
        self.verified.bytes += bytes;
        self.untold += bytes;
        match self.untold >= STEP {
            true => (self.see)(std::mem::take(&mut self.untold)),
            false => Ok(()),
        }
    }
}

/// Time plays no part in reading what is written.
struct Standing;

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
}
