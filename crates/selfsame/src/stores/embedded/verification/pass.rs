//! Verification of a store that is open, a piece at a time: [`VerificationPass`].
//!
//! A pass reads the log as far as it came when the pass began, segment by segment, and then the
//! index. It begins at a random segment, so that a store that is opened often is still read as a whole.
//! Memory is taken for one frame at a time.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{Bound, Range};

use selfsame_core::{RecordId, StoreError};

use super::{DamagedPlace, is_expired};
use crate::stores::embedded::EmbeddedStore;
use crate::stores::embedded::frame::Kind;
use crate::stores::embedded::index::FOLDER;
use crate::stores::embedded::log::LogPart;
use crate::stores::embedded::reading::Reading;
use crate::stores::embedded::records::{BITE, CHECKSUM, Records};
use crate::stores::embedded::segment::{START, Segment};
use crate::stores::embedded::trouble::{Failure, Trouble};

/// Bytes of the log that are read before others get their turn.
const PIECE: u64 = 256 * 1024;

/// Length of an entry of the index in its files, about.
const ENTRY_BYTES: u64 = 70;

/// Damaged records that are known in a pass. More are told more than once, and counted so.
const KNOWN_MAX: usize = 10_000;

/// A pass through all records of a store that is open. Dropping it ends it.
#[derive(Debug, Default)]
pub struct VerificationPass {
    part: Part,
    damaged: BTreeSet<RecordId>,
}

/// What is read next.
#[derive(Debug, Default)]
enum Part {
    #[default]
    Start,
    /// Segments up to these places, and where to go on in the first of them.
    Log {
        left: VecDeque<(u32, u64)>,
        at: u64,
    },
    /// Frames that cannot be read, and the records that need them, from an id on.
    Lost {
        lost: Lost,
        from: Bound<RecordId>,
        left: VecDeque<(u32, u64)>,
        at: u64,
    },
    Index {
        from: Bound<RecordId>,
    },
}

/// A part of a segment that cannot be read.
#[derive(Debug, Clone, Copy)]
struct Lost {
    segment: u32,
    start: u64,
    end: u64,
}

/// Result of a piece of a pass.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct VerifiedPiece {
    /// Bytes that were read.
    pub bytes: u64,
    /// Damaged places of records that have not expired. No record is told twice in a pass.
    pub damage: Vec<DamagedPlace>,
    /// Whether the pass is over. The next piece begins another.
    pub is_last: bool,
}

/// A part of a segment that was read.
struct ReadFrames {
    bytes: u64,
    damage: Vec<DamagedPlace>,
    lost: Option<Lost>,
    /// Where to go on, unless it came to the end.
    next: Option<u64>,
}

impl EmbeddedStore {
    /// Reads the next piece of what the records need, some 256 KiB. It waits for no writer, and no writer
    /// waits for it.
    ///
    /// # Errors
    /// Where the disk cannot be read. The pass may go on.
    pub async fn verify_piece(
        &self,
        pass: &mut VerificationPass,
    ) -> Result<VerifiedPiece, StoreError> {
        let mut piece = VerifiedPiece::default();
        if let Part::Start = pass.part {
            pass.part = Part::Log { left: self.parts_to_verify().await?, at: START };
        }
        match std::mem::take(&mut pass.part) {
            Part::Start => {}
            Part::Log { left, at } => {
                pass.part = Part::Log { left: left.clone(), at };
                pass.part = self.verify_log(left, at, &mut piece).await?;
            }
            Part::Lost { lost, from, left, at } => {
                pass.part = Part::Lost { lost, from, left: left.clone(), at };
                let next = self.find_lost(lost, from, &mut piece).await?;
                pass.part = match next {
                    Some(last) => Part::Lost { lost, from: Bound::Excluded(last), left, at },
                    None => Part::Log { left, at },
                };
            }
            Part::Index { from } => {
                pass.part = Part::Index { from };
                match self.verify_index(from, &mut piece).await? {
                    Some(last) => pass.part = Part::Index { from: Bound::Excluded(last) },
                    None => piece.is_last = true,
                }
            }
        }
        piece.damage.retain(|place| match place.record {
            Some(_) if pass.damaged.len() >= KNOWN_MAX => true,
            Some(record) => pass.damaged.insert(record),
            None => true,
        });
        if piece.is_last {
            *pass = VerificationPass::default();
        }
        Ok(piece)
    }

    /// The log as far as it came, from a random segment on.
    async fn parts_to_verify(&self) -> Result<VecDeque<(u32, u64)>, StoreError> {
        let parts = self.writes.ask(|ledger| Ok(ledger.log_parts())).await?;
        let parts = parts.into_iter().map(|LogPart { segment, end }| (segment.number, end));
        let mut parts: VecDeque<_> = parts.collect();
        let first = getrandom::u32().expect("the system has random bytes") as usize;
        parts.rotate_left(first % parts.len().max(1));
        Ok(parts)
    }

    async fn verify_log(
        &self,
        mut left: VecDeque<(u32, u64)>,
        at: u64,
        piece: &mut VerifiedPiece,
    ) -> Result<Part, StoreError> {
        let Some((number, end)) = left.front().copied() else {
            return Ok(Part::Index { from: Bound::Unbounded });
        };
        let reading = self.looks.ask(move |records| match records.segments.get(number) {
            Some(segment) => records.verify_frames(&segment, at, end).map(Some),
            // Nothing of it was needed any more.
            None => Ok(None),
        });
        let Some(ReadFrames { bytes, damage, lost, next }) = reading.await? else {
            left.pop_front();
            return Ok(Part::Log { left, at: START });
        };
        (piece.bytes, piece.damage) = (bytes, damage);
        let at = next.unwrap_or_else(|| {
            left.pop_front();
            START
        });
        Ok(match lost {
            Some(lost) => Part::Lost { lost, from: Bound::Unbounded, left, at },
            None => Part::Log { left, at },
        })
    }

    /// Looks through a part of the index for records that need what cannot be read.
    async fn find_lost(
        &self,
        lost: Lost,
        from: Bound<RecordId>,
        piece: &mut VerifiedPiece,
    ) -> Result<Option<RecordId>, StoreError> {
        let looking = self.looks.ask(move |records| {
            let (mut damage, mut entries) = (Vec::new(), 0);
            let now = records.clock.now();
            let walked = records.index.walk(from, BITE, |id, entry| {
                entries += 1;
                let is_lost = entry.places().any(|place| {
                    let start = u64::from(place.offset);
                    place.segment == lost.segment && start < lost.end && start >= lost.start
                });
                if is_lost && !is_expired(entry, now) {
                    damage.push((*id, entry.newest()));
                }
            });
            Ok((damage, entries, walked.map_err(Failure::Refused)?))
        });
        let (damage, entries, next): (Vec<_>, u64, _) = looking.await?;
        piece.bytes = entries * ENTRY_BYTES;
        piece.damage = damage
            .into_iter()
            .map(|(id, place)| DamagedPlace {
                path: Segment::path(self.folder.path(), lost.segment),
                offset: Some(lost.start),
                len: place.len.into(),
                record: Some(id),
                what: "nothing can be read here".to_owned(),
            })
            .collect();
        Ok(next)
    }

    /// Reads a part of the index, which checks its own checksums.
    async fn verify_index(
        &self,
        from: Bound<RecordId>,
        piece: &mut VerifiedPiece,
    ) -> Result<Option<RecordId>, StoreError> {
        let folder = self.folder.path().join(FOLDER);
        let walking = self.looks.ask(move |records| {
            let mut entries = 0;
            match records.index.walk(from, BITE, |_, _| entries += 1) {
                Ok(next) => Ok((entries, next, None)),
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    Ok((entries, None, Some(error.to_string())))
                }
                Err(error) => Err(Failure::Refused(error).into()),
            }
        });
        let (entries, next, damage): (u64, _, _) = walking.await?;
        piece.bytes = entries * ENTRY_BYTES;
        piece.damage.extend(damage.map(|what| DamagedPlace::file(folder, what)));
        Ok(next)
    }
}

impl Records {
    /// Checks a part of `segment`, in which the log came as far as `end`.
    fn verify_frames(&self, segment: &Segment, from: u64, end: u64) -> Result<ReadFrames, Trouble> {
        let mut reading = Reading::from(segment, from);
        let mut damage = Vec::new();
        while reading.at < end && reading.at - from < PIECE {
            let start = reading.at;
            let read = reading.head().and_then(|head| match head {
                Some(head) => Ok(Some((head, reading.is_sound(&head)?))),
                None => Ok(None),
            });
            let (head, is_sound) = match read {
                Ok(Some(read)) => read,
                Ok(None) => {
                    // Where the rest cannot be read either, the next piece says so.
                    let is_found = reading.find_next_head().unwrap_or(false);
                    let lost_to = if is_found { reading.at } else { start + PIECE };
                    return Ok(ReadFrames::lost(
                        segment,
                        damage,
                        from,
                        start..lost_to.min(end),
                        end,
                    ));
                }
                Err(error) => {
                    damage.push(DamagedPlace {
                        path: segment.path.clone(),
                        offset: Some(start),
                        len: 0,
                        record: None,
                        what: format!("it cannot be read: {error}"),
                    });
                    let lost = start..(start + PIECE).min(end);
                    return Ok(ReadFrames::lost(segment, damage, from, lost, end));
                }
            };
            let place = reading.place(&head);
            let is_about_record = matches!(head.kind, Kind::Record | Kind::Ended | Kind::Damaged);
            if is_about_record && (!is_sound || head.kind == Kind::Damaged) {
                // Only now: what was erased meanwhile has another entry.
                let entry = self.entry(&head.id)?.filter(|entry| {
                    entry.places().any(|needed| needed == place)
                        && !is_expired(entry, self.clock.now())
                });
                damage.extend(entry.map(|entry| DamagedPlace {
                    path: segment.path.clone(),
                    offset: Some(start),
                    len: head.frame_len(),
                    record: Some(head.id),
                    what: match entry.is_damaged {
                        true => "it was found to be damaged before".to_owned(),
                        false => CHECKSUM.to_owned(),
                    },
                }));
            }
            reading.at += head.frame_len();
        }
        let next = Some(reading.at).filter(|at| *at < end);
        Ok(ReadFrames { bytes: reading.at - from, damage, lost: None, next })
    }
}

impl ReadFrames {
    /// A part of a segment that ends in one that cannot be read.
    fn lost(
        segment: &Segment,
        damage: Vec<DamagedPlace>,
        from: u64,
        lost: Range<u64>,
        end: u64,
    ) -> Self {
        let next = Some(lost.end).filter(|at| *at < end);
        let bytes = lost.end - from;
        let lost = Lost { segment: segment.number, start: lost.start, end: lost.end };
        Self { bytes, damage, lost: Some(lost), next }
    }
}
