//! [`Records`]: the durable records, as everybody may read them beside the writer.

use std::io;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use selfsame_core::{AnswerBody, Ask, Claimed, Clock, Find, Record, RecordId, State, Timestamp};

use super::Leases;
use super::frame::{self, HEAD_LEN, Head, Kind};
use super::index::{Entry, Found, Index, Place};
use super::kept_time::KeptTime;
use super::note::{Note, Position};
use super::open_records::OpenRecords;
use super::segment::Segment;
use super::segments::Segments;
use super::trouble::{Failure, Trouble, damaged};
use crate::stores::durable::id_range;

/// How often a record is looked for that is moved meanwhile.
const LOOKS_MAX: usize = 8;

/// Entries that are looked at before others get their turn.
pub(super) const BITE: usize = 4096;

/// Bytes of records that are read before others get their turn, and that are shown to somebody at a
/// time. Records may be large, and memory is not.
pub(super) const BITE_BYTES: u64 = 4 * 1024 * 1024;

/// The durable records.
pub(super) struct Records {
    pub(super) index: Index,
    pub(super) segments: Segments,
    pub(super) open: OpenRecords,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) leases: Leases,
    /// Where the log ended when the store was opened.
    pub(super) boot: Position,
}

/// What is known of a record.
pub(super) enum LookUp {
    /// As it was written last.
    Record(Entry, Box<Record>),
    /// It is gone, and frames of it are left in the log.
    Remains,
    Nothing,
}

/// What was found in a part of the store.
pub(super) struct Bite<T> {
    pub(super) found: Vec<T>,
    /// Where to go on, unless it came to the end.
    pub(super) next: Option<RecordId>,
}

impl Records {
    /// The record as it was written last, unless there is none.
    pub(super) fn get(&self, id: &RecordId) -> Result<Option<Record>, Trouble> {
        Ok(self.look_up(id)?.map(|(_, record)| record))
    }

    /// The record as it was written last, and its entry.
    pub(super) fn look_up(&self, id: &RecordId) -> Result<Option<(Entry, Record)>, Trouble> {
        Ok(match self.look_for(id)? {
            LookUp::Record(entry, record) => Some((entry, *record)),
            LookUp::Remains | LookUp::Nothing => None,
        })
    }

    /// What is known of a record.
    pub(super) fn look_for(&self, id: &RecordId) -> Result<LookUp, Trouble> {
        for _ in 0..LOOKS_MAX {
            let entry = match self.index.find(id).map_err(|error| unreadable(id, error))? {
                Found::Entry(entry) => entry,
                Found::Remains => return Ok(LookUp::Remains),
                Found::Nothing => return Ok(LookUp::Nothing),
            };
            match self.read(id, &entry) {
                // It was moved since, and the file it was in is gone.
                Err(Trouble::Moved) => {}
                read => return read.map(|record| LookUp::Record(entry, Box::new(record))),
            }
        }
        Err(Trouble::Failed(Failure::Refused(io::Error::other("the record is being moved"))))
    }

    /// The place of a record.
    pub(super) fn entry(&self, id: &RecordId) -> Result<Option<Entry>, Trouble> {
        self.index.get(id).map_err(|error| unreadable(id, error))
    }

    /// Puts what has become of a record into the index.
    pub(super) fn change(&self, id: RecordId, before: Option<Entry>, now: Option<Entry>) {
        match (before, now) {
            (_, Some(now)) => self.index.put(id, now),
            (Some(before), None) => self.index.remove_entry(id, &before),
            (None, None) => {}
        }
        self.open.note(&id, before.as_ref(), now.as_ref());
    }

    /// What is known of the log at this place.
    pub(super) fn note_at(
        &self,
        position: Position,
        last_head: Option<u64>,
        time: Option<KeptTime>,
    ) -> Note {
        let (segments, open) = (self.segments.noted(), self.open.all());
        Note { position, last_head, time, segments, open }
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

    /// The record as a reader sees it, and the bytes that were read.
    fn seen_with_len(&self, id: &RecordId) -> Result<Option<(Record, u64)>, Trouble> {
        let Some((entry, record)) = self.look_up(id)? else { return Ok(None) };
        Ok(record.seen_at(self.clock.now()).map(|record| (record, entry.bytes())))
    }

    /// The record as a reader sees it.
    pub(super) fn seen(&self, id: &RecordId) -> Result<Option<Record>, Trouble> {
        Ok(self.get(id)?.and_then(|record| record.seen_at(self.clock.now())))
    }

    /// The records that are meant among the next few from an id on, no more than `most`, without
    /// the requests they keep. Of those beyond `room`, which it takes from, only what is short.
    pub(super) fn find(
        &self,
        find: &Find,
        from: Bound<RecordId>,
        most: usize,
        room: &mut u64,
    ) -> Result<Bite<Record>, Trouble> {
        let now = self.clock.now();
        let is_meant = |record: &Record| match find {
            Find::Key(key) => record.label.key.as_str() == key,
            Find::IdPrefix(_) => true,
            Find::Held => record.is_held(now),
            Find::Abandoned { .. } => record.is_abandoned(now),
            Find::Matching { filter, .. } => filter.lets_through(record, now),
        };
        let Bite { found: ids, next } = self.candidates(find, from)?;
        let (mut found, mut read) = (Vec::new(), 0);
        for id in ids {
            match self.seen_with_len(&id) {
                Ok(Some((record, len))) => {
                    read += len;
                    if is_meant(&record) {
                        let record = record.without_request();
                        let fits = *room >= len;
                        *room -= if fits { len } else { 0 };
                        found.push(if fits { record } else { shortened(record) });
                    }
                }
                // A damaged one has raised its alarm, and does not stop whoever looks at many.
                Ok(None) | Err(Trouble::Damaged(_)) => {}
                Err(trouble) => return Err(trouble),
            }
            if found.len() >= most || read >= BITE_BYTES {
                return Ok(Bite { found, next: Some(id) });
            }
        }
        Ok(Bite { found, next })
    }

    /// Ids of records that may be meant, among the next few from an id on, or from the first.
    fn candidates(&self, find: &Find, from: Bound<RecordId>) -> Result<Bite<RecordId>, Trouble> {
        if let Find::Held | Find::Abandoned { .. } = find {
            let found = self.open.from(from, BITE);
            let next = found.last().copied().filter(|_| found.len() == BITE);
            return Ok(Bite { found, next });
        }
        let range = match find {
            Find::IdPrefix(prefix) => id_range(prefix),
            _ => Some(([0; RecordId::LEN], [u8::MAX; RecordId::LEN])),
        };
        let Some((first, last)) = range else { return Ok(Bite { found: Vec::new(), next: None }) };
        let from = match from {
            Bound::Unbounded => Bound::Included(RecordId::from_bytes(first)),
            _ => from,
        };
        let (mut found, mut is_over) = (Vec::new(), false);
        let key_mark = match find {
            Find::Key(key) => Some(frame::key_mark(key)),
            _ => None,
        };
        let next = self.walk(from, |id, entry| {
            is_over |= *id.as_bytes() > last;
            if !is_over && key_mark.is_none_or(|mark| entry.marks.key == mark) {
                found.push(*id);
            }
        })?;
        Ok(Bite { found, next: next.filter(|_| !is_over) })
    }

    /// Ids of the damaged records among the next few from an id on.
    pub(super) fn damaged(
        &self,
        prefix: &str,
        from: Bound<RecordId>,
    ) -> Result<Bite<RecordId>, Trouble> {
        let find = Find::IdPrefix(prefix.to_owned());
        let Bite { found: ids, next } = self.candidates(&find, from)?;
        let (mut found, mut read) = (Vec::new(), 0);
        for id in ids {
            match self.look_up(&id) {
                Ok(known) => read += known.map_or(0, |(entry, _)| entry.bytes()),
                Err(Trouble::Damaged(_)) => found.push(id),
                Err(trouble) => return Err(trouble),
            }
            if read >= BITE_BYTES {
                return Ok(Bite { found, next: Some(id) });
            }
        }
        Ok(Bite { found, next })
    }

    /// Claims that may be dead.
    pub(super) fn unsettled_claims(&self) -> Vec<RecordId> {
        self.open.due(Bound::Unbounded, self.clock.now(), usize::MAX)
    }

    /// The next few ids from one on.
    pub(super) fn ids(&self, from: Bound<RecordId>) -> Result<Bite<RecordId>, Trouble> {
        self.candidates(&Find::IdPrefix(String::new()), from)
    }

    fn walk(
        &self,
        from: Bound<RecordId>,
        see: impl FnMut(&RecordId, &Entry),
    ) -> Result<Option<RecordId>, Trouble> {
        Ok(self.index.walk(from, BITE, see).map_err(Failure::Refused)?)
    }

    /// Whether the record is what its marks say. A damaged one is left alone.
    pub(super) fn is_settled(&self, entry: &Entry, now: Timestamp) -> bool {
        entry.is_damaged
            || now < entry.marks.settled_until
                && !(entry.marks.is_claimed() && self.is_ended(entry))
    }

    /// Whether a claim ended with the process that held it.
    fn is_ended(&self, entry: &Entry) -> bool {
        let Place { segment, offset, .. } = entry.record;
        let boot = (self.boot.segment, self.boot.offset);
        self.leases == Leases::EndAtBoot && (segment, u64::from(offset)) < boot
    }

    pub(super) fn read(&self, id: &RecordId, entry: &Entry) -> Result<Record, Trouble> {
        if entry.is_damaged {
            return Err(damaged(id, "its frame was found to be damaged"));
        }
        let payload = self.payload(id, entry, Kind::Record, entry.record)?;
        let record = frame::record(&payload, id).map_err(|error| damaged(id, error))?;
        let mut record = match entry.end {
            Some(end) => {
                let payload = self.payload(id, entry, Kind::Ended, end)?;
                frame::ended(record, &payload).map_err(|error| damaged(id, error))?
            }
            None => record,
        };
        if let State::Claimed { lease_until } = &mut record.state
            && self.is_ended(entry)
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
        match frame_at(&segment, id, kind, place) {
            Ok(payload) => Ok(payload),
            Err(UnreadFrame::TooShort) => Err(damaged(id, FILE_TOO_SHORT)),
            Err(UnreadFrame::Failed(error)) => Err(Trouble::Failed(Failure::Refused(error))),
            // It was erased since, and what it said was overwritten.
            Err(UnreadFrame::Damaged) if self.entry(id)? != Some(*entry) => Err(Trouble::Moved),
            Err(UnreadFrame::Damaged) => Err(damaged(id, CHECKSUM)),
        }
    }
}

pub(super) const FILE_TOO_SHORT: &str = "its file is too short";
pub(super) const CHECKSUM: &str = "the checksum does not fit";

/// Why a frame could not be read.
pub(super) enum UnreadFrame {
    TooShort,
    /// It is not what was written.
    Damaged,
    Failed(io::Error),
}

/// The payload of a record's frame.
pub(super) fn frame_at(
    segment: &Segment,
    id: &RecordId,
    kind: Kind,
    place: Place,
) -> Result<Vec<u8>, UnreadFrame> {
    let frame = segment.read(place.len as usize, place.offset.into());
    let mut frame = frame.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => UnreadFrame::TooShort,
        _ => UnreadFrame::Failed(error),
    })?;
    let payload = frame.split_off(HEAD_LEN);
    let head = frame.as_slice().try_into().ok();
    let head = head.and_then(|head| Head::decode(head, segment.salt));
    let fits = head.is_some_and(|head| {
        head.id == *id && head.kind == kind && head.payload_sum == crc32fast::hash(&payload)
    });
    if fits { Ok(payload) } else { Err(UnreadFrame::Damaged) }
}

/// A record without what may be large in it.
fn shortened(mut record: Record) -> Record {
    if let State::Completed { answer, .. } = &mut record.state {
        answer.body = AnswerBody::NotKept;
        answer.headers = HeaderMap::new();
        answer.trailers = HeaderMap::new();
    }
    if let Some(checkpoint) = &mut record.checkpoint {
        (checkpoint.data, checkpoint.is_sealed) = (Bytes::new(), false);
    }
    record
}

/// The error of an index that cannot be read.
fn unreadable(id: &RecordId, error: io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::InvalidData => damaged(id, error),
        _ => Trouble::Failed(Failure::Refused(error)),
    }
}
