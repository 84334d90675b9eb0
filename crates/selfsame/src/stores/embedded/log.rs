//! [`Log`]: where changes are written, a batch at a time, each durable before the next.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use selfsame_core::RecordId;

use super::frame::{HEAD_LEN, Head, Kind, Marks};
use super::index::Place;
use super::kept_time::KeptTime;
use super::note::{Note, Position};
use super::records::Records;
use super::segment::{START, Segment};
use super::store_clock::StoreClock;
use super::tender::Tender;
use super::trouble::Failure;

/// From this size on a batch is written as it is: answers may be large, and there are many callers.
const BATCH_BYTES: usize = 32 * 1024 * 1024;

/// Whom frames are about that are about the log.
const NOBODY: RecordId = RecordId::from_bytes([0; RecordId::LEN]);

/// The writer's end of the log.
pub(super) struct Log {
    records: Arc<Records>,
    tender: Tender,
    /// Absent where the store is told the time.
    clock: Option<Arc<StoreClock>>,
    active: Arc<Segment>,
    /// Where the next batch goes.
    end: u64,
    /// The next batch's number.
    batch: u64,
    /// Where the last frame begins, if there is one in this segment.
    last_head: Option<u64>,
    /// The frames of a batch, with room for their heads.
    buffer: Vec<u8>,
    heads: Vec<(usize, Head)>,
    /// The store's time, if the batch says it.
    time: Option<KeptTime>,
    /// Why the last batch could not be written, though the disk may still be believed.
    refusal: Option<String>,
}

/// A frame of the batch that is being put together.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    frame: Range<usize>,
}

/// A segment, as far as the log came in it.
pub(super) struct LogPart {
    pub(super) segment: Arc<Segment>,
    /// The end of its last frame.
    pub(super) end: u64,
}

/// Where a batch was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base {
    segment: u32,
    offset: u64,
}

impl Base {
    pub(super) fn place(&self, draft: &Draft) -> Place {
        let number = |number: u64| u32::try_from(number).expect("a segment is far below 4 GiB");
        let Range { start, end } = draft.frame;
        let offset = number(self.offset + start as u64);
        Place { segment: self.segment, offset, len: number((end - start) as u64) }
    }
}

impl Log {
    /// Goes on in `active` behind its last batch.
    pub(super) fn new(
        records: Arc<Records>,
        tender: Tender,
        clock: Option<Arc<StoreClock>>,
        active: Arc<Segment>,
        Position { offset: end, batch, .. }: Position,
    ) -> Self {
        let (buffer, heads) = (Vec::new(), Vec::new());
        let (last_head, time, refusal) = (None, None, None);
        Self { records, tender, clock, active, end, batch, last_head, buffer, heads, time, refusal }
    }

    /// What the index is to know of the log as it is now.
    pub(super) fn note(&self) -> Note {
        let position =
            Position { segment: self.active.number, offset: self.end, batch: self.batch };
        let time = self.clock.as_ref().map(|clock| clock.to_keep());
        self.records.note_at(position, self.last_head, time)
    }

    /// All that is durable, the oldest segment first.
    pub(super) fn parts(&self) -> Vec<LogPart> {
        let ended = |sealed_at: Option<u64>| sealed_at.map(|at| at + HEAD_LEN as u64);
        let ends = self.records.segments.sealed();
        let part =
            |(segment, sealed_at)| LogPart { segment, end: ended(sealed_at).unwrap_or(self.end) };
        ends.into_iter().map(part).collect()
    }

    /// The frame that says behind all that is durable that it is the end, for a copy of the log.
    pub(super) fn encoded_rest(&self) -> [u8; HEAD_LEN] {
        self.closing(Kind::Rest).encode(self.active.salt)
    }

    /// The head of a frame that is a batch of its own, and the next one.
    fn closing(&self, kind: Kind) -> Head {
        Head {
            kind,
            closes: true,
            batch: self.batch,
            id: NOBODY,
            marks: Marks::NONE,
            payload_len: 0,
            payload_sum: crc32fast::hash(&[]),
        }
    }

    /// Adds a frame that says that the segments before this one are not needed any more.
    pub(super) fn draft_floor(&mut self, segment: u32) {
        self.draft(Kind::Floor, NOBODY, Marks::NONE, &[&segment.to_le_bytes()]);
        // The last one may be in a segment that goes.
        self.draft_time();
    }

    /// Adds a frame that keeps the store's time.
    pub(super) fn draft_time(&mut self) {
        if let Some(clock) = &self.clock
            && self.time.is_none()
        {
            let time = clock.to_keep();
            self.time = Some(time);
            self.draft(Kind::Time, NOBODY, Marks::NONE, &[&time.encode()]);
        }
    }

    /// Adds a frame to the batch.
    pub(super) fn draft(
        &mut self,
        kind: Kind,
        id: RecordId,
        marks: Marks,
        payload: &[&[u8]],
    ) -> Draft {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; HEAD_LEN]);
        for part in payload {
            self.buffer.extend_from_slice(part);
        }
        let payload = &self.buffer[start + HEAD_LEN..];
        let payload_len = u32::try_from(payload.len()).expect("bodies are capped far below 4 GiB");
        let payload_sum = crc32fast::hash(payload);
        let head = Head { kind, closes: false, batch: 0, id, marks, payload_len, payload_sum };
        self.heads.push((start, head));
        Draft { frame: start..self.buffer.len() }
    }

    /// The payload of a frame of this batch.
    pub(super) fn payload(&self, draft: &Draft) -> &[u8] {
        &self.buffer[draft.frame.start + HEAD_LEN..draft.frame.end]
    }

    /// Whether the batch is large enough to be written.
    pub(super) fn is_full(&self) -> bool {
        self.buffer.len() >= BATCH_BYTES
    }

    /// Makes the batch durable. A batch without frames costs nothing.
    pub(super) fn commit(&mut self) -> Result<Option<Base>, Failure> {
        if self.heads.is_empty() {
            return Ok(None);
        }
        let written = self.write_batch();
        self.refusal = match &written {
            Err(Failure::Refused(error)) => Some(format!("the store cannot be written: {error}")),
            _ => None,
        };
        written.map(Some)
    }

    fn write_batch(&mut self) -> Result<Base, Failure> {
        if self.clock.as_ref().is_some_and(|clock| clock.is_due()) {
            self.draft_time();
        }
        if !self.has_room_for(self.buffer.len()) {
            self.roll()?;
        }
        let last = self.heads.len() - 1;
        let last_start = self.heads.last().map(|(start, _)| *start);
        for (at, (start, mut head)) in self.heads.drain(..).enumerate() {
            (head.batch, head.closes) = (self.batch, at == last);
            let head = head.encode(self.active.salt);
            self.buffer[start..start + HEAD_LEN].copy_from_slice(&head);
        }
        self.active.write(&self.buffer, self.end).map_err(Failure::of_write)?;
        self.active.sync().map_err(Failure::Disk)?;
        let base = Base { segment: self.active.number, offset: self.end };
        self.last_head = last_start.map(|start| self.end + start as u64);
        self.end += self.buffer.len() as u64;
        self.batch += 1;
        if let (Some(clock), Some(time)) = (&self.clock, &self.time) {
            clock.kept(time);
        }
        self.abandon();
        self.prepare();
        Ok(base)
    }

    /// Whether room is so short that it is kept for those that run already: half a segment, if there
    /// is no room for another.
    pub(super) fn is_short_of_room(&mut self) -> bool {
        self.prepare() && self.tender.is_short()
    }

    /// Why new keys are refused, if they are.
    pub(super) fn shortage(&self) -> Option<&str> {
        self.refusal.as_deref().or(self.tender.shortage())
    }

    /// Says at the end of the log that it is its end, and not what a crash has left of it.
    pub(super) fn rest(&mut self) -> Result<(), Failure> {
        self.abandon();
        self.draft_time();
        self.draft(Kind::Rest, NOBODY, Marks::NONE, &[]);
        self.commit()?;
        self.tender.forget_prepared();
        Ok(())
    }

    /// Forgets the batch.
    pub(super) fn abandon(&mut self) {
        self.buffer.clear();
        // What one large answer took is not kept for ever.
        self.buffer.shrink_to(BATCH_BYTES);
        self.heads.clear();
        self.time = None;
    }

    /// Has a segment taken away that nobody needs.
    pub(super) fn remove(&self, segment: Arc<Segment>) {
        self.tender.remove(segment);
    }

    /// Has the next segment made in time. Whether it is time.
    fn prepare(&mut self) -> bool {
        let is_time = self.end > self.active.capacity / 2;
        if is_time {
            self.tender.prepare(self.active.number + 1, self.records.segments.next_size());
        }
        is_time
    }

    /// Behind each batch there is room for a seal. What is larger than a segment makes its own
    /// longer.
    fn has_room_for(&self, len: usize) -> bool {
        let needed = (len + HEAD_LEN) as u64;
        self.end + needed <= self.active.capacity || self.end == START
    }

    /// Goes on in the next segment. That there is one is made sure of first, because nothing can be
    /// written behind a seal; and the seal is durable before anything is written behind it.
    fn roll(&mut self) -> Result<(), Failure> {
        let size = self.records.segments.next_size();
        let next = self.tender.take(self.active.number + 1, size).map_err(Failure::Refused)?;
        let seal = self.closing(Kind::Seal);
        let sealed = self.active.write(&seal.encode(self.active.salt), self.end);
        sealed.and_then(|()| self.active.sync()).map_err(Failure::Disk)?;
        self.records.segments.seal(self.active.number, self.end);
        self.batch += 1;
        self.active = Arc::new(next);
        (self.end, self.last_head) = (START, None);
        self.records.segments.add(self.active.clone());
        Ok(())
    }
}

impl Failure {
    /// What it means that the log could not be written.
    fn of_write(error: io::Error) -> Self {
        match error.kind() {
            // What a part of it has left is written over by the next batch.
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem => Self::Refused(error),
            _ => Self::Disk(error),
        }
    }
}
