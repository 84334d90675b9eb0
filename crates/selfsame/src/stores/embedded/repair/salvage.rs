//! [`Salvage`]: what can be read of a damaged log.
//!
//! The files are read in the order of the log. Where no frame can be read, the next head is looked for,
//! which the salt of its file tells from all else. The index of the store is not used: a new one is made
//! in a scratch folder, so that the memory does not grow with the number of keys.
//!
//! A frame that is older than the last one before it is left over from a batch that failed, and says
//! nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use selfsame_core::{Clock, Record, RecordId, State, Timestamp};

use crate::stores::durable::{CLAIMED, HELD};
use crate::stores::embedded::frame::{self, Head, Kind};
use crate::stores::embedded::index::{Entry, Index, Place};
use crate::stores::embedded::kept_time::KeptTime;
use crate::stores::embedded::note::Position;
use crate::stores::embedded::open_records::OpenRecords;
use crate::stores::embedded::reading::Reading;
use crate::stores::embedded::records::Records;
use crate::stores::embedded::segment::{START, Segment};
use crate::stores::embedded::segments::Segments;
use crate::stores::embedded::trouble::{Failure, Trouble};
use crate::stores::embedded::{Leases, OpenError};

/// Damaged places that are named one by one.
const PLACES_MAX: usize = 20;

/// The readable part of a damaged log.
pub(super) struct Salvage {
    pub(super) records: Records,
    /// The store's time that was kept last.
    pub(super) time: Option<KeptTime>,
    /// The latest moment that a record tells of.
    pub(super) latest: Timestamp,
    /// The longest time for which a record is known.
    pub(super) longest_life: Duration,
    pub(super) damaged_places: u64,
    pub(super) first_places: Vec<String>,
    /// End of the last damaged place: a segment, and an offset in it.
    last_damage: (u32, u64),
    /// The last batch that was read.
    batch: u64,
    /// The oldest segment that is needed.
    floor: u32,
    /// The last file that was read, if it has no end.
    without_end: Option<String>,
}

/// What becomes of a record.
pub(super) enum Fate {
    /// It stays as it is.
    Kept(Record),
    /// Whether its work was done is not known.
    Open(Record),
    /// It cannot be trusted.
    Damaged,
    /// It has expired.
    Expired,
}

impl Salvage {
    /// Reads the log in `folder`.
    pub(super) fn read(
        folder: &Path,
        scratch: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let failed =
            |error: io::Error| OpenError::Folder { path: folder.to_owned(), source: error };
        let index = Index::open(scratch).map_err(failed)?.index;
        let boot = Position { segment: 0, offset: 0, batch: 0 };
        let (segments, open, leases) = (Segments::new(), OpenRecords::new([]), Leases::Keep);
        let mut salvage = Self {
            records: Records { index, segments, open, clock, leases, boot },
            time: None,
            latest: Timestamp::default(),
            longest_life: Duration::ZERO,
            damaged_places: 0,
            first_places: Vec::new(),
            last_damage: (0, 0),
            batch: 0,
            floor: 1,
            without_end: None,
        };
        let mut expected = None;
        let found = Segment::list(folder).map_err(failed)?;
        let oldest = found.first().copied();
        for number in found {
            if expected.is_some_and(|expected| number > expected) {
                salvage.note_damage(
                    format!("the files before {} are missing", name(number)),
                    number,
                    START,
                );
            }
            expected = Some(number + 1);
            match Segment::open_damaged(folder, number)? {
                Some((segment, is_whole)) => {
                    if !is_whole {
                        let place = format!("{}, its beginning", name(number));
                        salvage.note_damage(place, number, START);
                    }
                    let segment = Arc::new(segment);
                    salvage.records.segments.add(segment.clone());
                    salvage.read_segment(&segment).map_err(failed)?;
                }
                None => {
                    salvage.note_damage(format!("{}, all of it", name(number)), number, START);
                }
            }
        }
        match oldest {
            None => salvage.note_damage("all files of the log are missing".to_owned(), 0, 0),
            Some(oldest) if oldest > salvage.floor => {
                let place = format!("the files before {} are missing", name(oldest));
                salvage.note_damage(place, 0, 0);
            }
            Some(_) => {}
        }
        Ok(salvage)
    }

    /// What becomes of a record.
    pub(super) fn fate(&self, id: &RecordId, now: Timestamp) -> Result<Fate, Failure> {
        let trouble = |trouble| match trouble {
            Trouble::Failed(failure) => failure,
            other => Failure::Refused(io::Error::other(format!("{other:?}"))),
        };
        let Some(entry) = self.records.entry(id).map_err(trouble)? else {
            return Ok(Fate::Expired);
        };
        let record = match self.records.read(id, &entry) {
            Ok(record) => record,
            Err(Trouble::Damaged(_)) => return self.fate_of_damaged(&entry, now),
            Err(other) => return Err(trouble(other)),
        };
        let is_open = matches!(record.state, State::Claimed { .. } | State::Failed);
        // Nothing is answered from a record that is only observed.
        if is_open && record.label.is_observed() {
            return Ok(Fate::Expired);
        }
        // One that may have become held later does not expire.
        let newest = entry.newest();
        let may_be_old = (newest.segment, u64::from(newest.offset)) < self.last_damage;
        if record.is_expired(now) && !(is_open && may_be_old) {
            return Ok(Fate::Expired);
        }
        Ok(if is_open { Fate::Open(record) } else { Fate::Kept(record) })
    }

    /// What becomes of a record that cannot be read, by the head of its newest frame.
    fn fate_of_damaged(&self, entry: &Entry, now: Timestamp) -> Result<Fate, Failure> {
        let Place { segment, offset, .. } = entry.newest();
        let segment = self.records.segments.get(segment).expect("it was read from there");
        let head = Reading::from(&segment, offset.into()).head().map_err(Failure::Refused)?;
        let has_expired = head.is_some_and(|Head { kind, marks, .. }| {
            kind != Kind::Damaged && marks.leaves_at_once() && marks.settled_until <= now
        });
        Ok(if has_expired { Fate::Expired } else { Fate::Damaged })
    }

    fn note_damage(&mut self, place: String, segment: u32, offset: u64) {
        self.last_damage = self.last_damage.max((segment, offset));
        self.damaged_places += 1;
        if self.first_places.len() < PLACES_MAX {
            self.first_places.push(place);
        }
    }

    fn read_segment(&mut self, segment: &Segment) -> io::Result<()> {
        let mut reading = Reading::new(segment);
        let file = name(segment.number);
        loop {
            let head = reading.head()?.filter(|head| head.batch >= self.batch);
            let Some(head) = head else {
                let Some(next) = reading.next_head(reading.at + 1, self.batch)? else { break };
                let place = format!("{file}, bytes {} to {next}", reading.at);
                self.note_damage(place, segment.number, next);
                reading.at = next;
                continue;
            };
            if let Some(before) = self.without_end.take() {
                self.note_damage(format!("{before}, its end"), segment.number, START);
            }
            self.batch = head.batch;
            if head.kind == Kind::Seal {
                return Ok(());
            }
            // Where it is not, it is known whose it was. What was erased looks so, too.
            let is_sound = reading.is_sound(&head)?;
            let payload = if is_sound { reading.payload(&head)? } else { &[] };
            match head.kind {
                Kind::Floor if is_sound => {
                    let floor = payload.try_into().map(u32::from_le_bytes);
                    self.floor = self.floor.max(floor.unwrap_or_default());
                }
                Kind::Time if is_sound => self.note_time(KeptTime::decode(payload)),
                Kind::Rest | Kind::Seal | Kind::Floor | Kind::Time => {}
                _ => {
                    let payload = is_sound.then(|| payload.to_vec());
                    self.note(&head, reading.place(&head), payload.as_deref())?;
                }
            }
            reading.at += head.frame_len();
            self.make_room()?;
        }
        self.without_end = Some(file);
        Ok(())
    }

    fn note_time(&mut self, time: Option<KeptTime>) {
        let newest =
            |known: KeptTime| time.filter(|time| time.store >= known.store).or(Some(known));
        self.time = self.time.map_or(time, newest);
    }

    /// What a frame makes of the records.
    fn note(&mut self, head: &Head, place: Place, payload: Option<&[u8]>) -> io::Result<()> {
        let before = self.records.index.get(&head.id)?;
        let now = match (head.kind, payload, before) {
            (Kind::Gone, Some(_), Some(before)) => {
                self.records.index.remove_entry(head.id, &before);
                return Ok(());
            }
            (Kind::Gone, ..) => return Ok(()),
            (Kind::Record, Some(payload), _) => match frame::record(payload, &head.id) {
                Ok(record) => {
                    self.learn(&record);
                    Entry::new(place, head.marks)
                }
                Err(_) => Entry::damaged(place),
            },
            (Kind::Ended, Some(payload), Some(before)) => {
                if let Some((at, _)) = payload.split_first_chunk::<8>() {
                    self.latest = self.latest.max(Timestamp::from_millis(u64::from_le_bytes(*at)));
                }
                match self.is_end_of(&before, head) {
                    true => Entry { end: Some(place), marks: head.marks, ..before },
                    false => Entry::damaged(place),
                }
            }
            // It was found to be damaged, or is, or its claim cannot be read.
            _ => Entry::damaged(place),
        };
        self.records.index.put(head.id, now);
        Ok(())
    }

    /// Whether an answer is that of this claim. Where a part of the log between them is damaged, it may be
    /// that of a later claim, of another request under the key: that is told by the time of the expiry.
    fn is_end_of(&self, claim: &Entry, end: &Head) -> bool {
        let is_open = matches!(claim.marks.state, CLAIMED | HELD) && claim.end.is_none();
        if !is_open || claim.is_damaged || claim.marks.key != end.marks.key {
            return false;
        }
        let Place { segment, offset, .. } = claim.record;
        let is_sure = (segment, u64::from(offset)) >= self.last_damage;
        is_sure
            || self
                .records
                .read(&end.id, claim)
                .is_ok_and(|record| record.expires_at == end.marks.settled_until)
    }

    fn learn(&mut self, record: &Record) {
        let moment = match &record.state {
            State::Completed { at, .. } => *at,
            State::Held { since } => *since,
            State::Claimed { .. } | State::Failed | State::Tombstone => record.created_at,
        };
        self.latest = self.latest.max(moment).max(record.created_at);
        let life = record.retention.saturating_add(record.remember);
        self.longest_life = self.longest_life.max(life);
    }

    /// Has the memtable written once it is full. The log may be larger than the memory.
    fn make_room(&self) -> io::Result<()> {
        if self.records.index.is_full() {
            self.records.index.rotate(Vec::new());
            if !self.records.index.wait_at_start() {
                return Err(io::Error::other("the scratch index cannot be written"));
            }
        }
        Ok(())
    }
}

fn name(segment: u32) -> String {
    let path = Segment::path(Path::new(""), segment);
    path.display().to_string()
}
