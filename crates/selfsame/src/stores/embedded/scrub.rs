//! Erasure: what older frames of the log say of a record is overwritten, where it lies.
//!
//! Their heads stay, so the log is read as before. A payload that was overwritten, or half of it if the
//! process dies meanwhile, does not fit its checksum, which would shut its key or look like the torn
//! end of the log. So tombstones are written twice before, each time durably: the last one is behind
//! all that is overwritten, in a batch of its own.

use std::collections::BTreeMap;
use std::ops::Range;

use selfsame_core::RecordId;

use super::frame::{HEAD_LEN, Kind};
use super::reading::Reading;
use super::records::Records;
use super::segment::Segment;
use super::trouble::{Failure, Trouble};
use crate::stores::durable::TOMBSTONE;

/// How much is overwritten at a time.
const STEP: usize = 64 * 1024;

/// Records that were erased, each with the batch of its last tombstone.
pub(super) type Erased = BTreeMap<RecordId, u64>;

impl Records {
    /// Those of `ids` that are tombstones, and since which batch.
    pub(super) fn erased(&self, ids: &[RecordId]) -> Result<Erased, Trouble> {
        let mut erased = Erased::new();
        for id in ids {
            let entry = self.entry(id)?.filter(|entry| entry.marks.state == TOMBSTONE);
            let Some(place) = entry.map(|entry| entry.record) else { continue };
            let Some(segment) = self.segments.get(place.segment) else { continue };
            let head = Reading::from(&segment, place.offset.into()).head();
            if let Some(head) = head.map_err(Failure::Refused)? {
                erased.insert(*id, head.batch);
            }
        }
        Ok(erased)
    }

    /// Where `segment` says anything of these records besides that they are tombstones.
    pub(super) fn words_about(
        &self,
        erased: &Erased,
        segment: &Segment,
    ) -> Result<Vec<Range<u64>>, Trouble> {
        let mut reading = Reading::new(segment);
        let mut words = Vec::new();
        while let Some(head) = reading.head().map_err(Failure::Refused)? {
            let is_older = erased.get(&head.id).is_some_and(|batch| head.batch < *batch);
            let next = reading.at + head.frame_len();
            if is_older && head.marks.state != TOMBSTONE {
                words.push(reading.at + HEAD_LEN as u64..next);
            }
            if head.kind == Kind::Seal {
                break;
            }
            reading.at = next;
        }
        Ok(words)
    }
}

/// Overwrites these parts of `segment`, durably. For the writer alone: whoever else took note of a disk
/// that fails would keep it from hearing of it.
pub(super) fn overwrite(segment: &Segment, words: &[Range<u64>]) -> Result<(), Failure> {
    let zeros = [0; STEP];
    for Range { start, end } in words {
        let mut at = *start;
        while at < *end {
            let step = zeros.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            segment.write(&zeros[..step], at).map_err(Failure::Disk)?;
            at += step as u64;
        }
    }
    segment.sync().map_err(Failure::Disk)
}
