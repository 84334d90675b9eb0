//! Erasure: what older frames of the log say of a record is overwritten, where it lies.
//!
//! Their heads stay, so the log is read as before. A payload that was overwritten, or half of it if the
//! process dies meanwhile, does not fit its checksum, which would shut its key or look like the torn
//! end of the log. So tombstones are written twice before, each time durably: the last one is behind
//! all that is overwritten, in a batch of its own.
//!
//! Most records have a claim and an answer, and their entry has the places of both. Where there may
//! be other frames, of renewals and checkpoints, the log is read for them: once for all that wait
//! for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use selfsame_core::{RecordId, StoreError};

use super::EmbeddedStore;
use super::frame::{HEAD_LEN, Kind};
use super::index::Place;
use super::ledger::Ledger;
use super::reading::Reading;
use super::records::Records;
use super::segment::{START, Segment};
use super::trouble::{Failure, Trouble};
use crate::stores::durable::TOMBSTONE;

/// How much is overwritten at a time.
const STEP: usize = 64 * 1024;

/// Work of one turn of the writer: bytes and frames that are overwritten.
const TURN_BYTES: u64 = 4 * 1024 * 1024;
const TURN_FRAMES: usize = 256;

/// Records that get their second tombstone in one turn of the writer.
const TOMBSTONES_AT_ONCE: usize = 256;

/// How much of a segment is read for older frames at a time.
const READ_BYTES: u64 = 64 * 1024 * 1024;

/// Records that were erased, each with the batch of its last tombstone.
pub(super) type Erased = BTreeMap<RecordId, u64>;

/// Records that wait for the log to be read for their older frames.
#[derive(Default)]
pub(super) struct Scrubs {
    waiting: Mutex<BTreeSet<RecordId>>,
    /// Whose turn it is to read the log, for all that wait.
    turn: tokio::sync::Mutex<()>,
}

impl EmbeddedStore {
    /// Overwrites what the log says of records that are tombstones now: the frames at `places`, and
    /// whatever else there is about `others`.
    pub(super) async fn scrub(
        &self,
        ids: &[RecordId],
        places: Vec<Place>,
        others: &[RecordId],
    ) -> Result<(), StoreError> {
        for few in ids.chunks(TOMBSTONES_AT_ONCE) {
            let few: Vec<RecordId> = few.into();
            let _again = self.writes.ask(move |ledger| ledger.erase(&few)).await?;
        }
        let mut words = BTreeMap::<u32, Vec<Range<u64>>>::new();
        for Place { segment, offset, len } in places {
            let start = u64::from(offset);
            let payload = start + HEAD_LEN as u64..start + u64::from(len);
            words.entry(segment).or_default().push(payload);
        }
        for (number, words) in words {
            // One that is gone since had nothing else.
            if let Some(segment) = self.records.segments.get(number) {
                self.overwrite(&segment, words).await?;
            }
        }
        self.scrub_log(others).await
    }

    /// Reads the log for frames about these records, unless somebody did so meanwhile for all who
    /// waited.
    async fn scrub_log(&self, ids: &[RecordId]) -> Result<(), StoreError> {
        self.scrubs.waiting.lock().extend(ids);
        let _turn = self.scrubs.turn.lock().await;
        let all: Vec<RecordId> = {
            let waiting = self.scrubs.waiting.lock();
            if !ids.iter().any(|id| waiting.contains(id)) {
                return Ok(());
            }
            waiting.iter().copied().collect()
        };
        let scrubbed = self.read_and_overwrite(all.clone()).await;
        let served = if scrubbed.is_ok() { &all } else { ids };
        let mut waiting = self.scrubs.waiting.lock();
        for id in served {
            waiting.remove(id);
        }
        scrubbed
    }

    async fn read_and_overwrite(&self, ids: Vec<RecordId>) -> Result<(), StoreError> {
        let erased = self.looks.ask(move |records| records.erased(&ids)).await?;
        let erased = Arc::new(erased);
        for segment in self.records.segments.all() {
            let mut from = Some(START);
            while let Some(at) = from {
                let (erased, looked) = (erased.clone(), segment.clone());
                let looking =
                    move |records: &mut Arc<Records>| records.words_about(&erased, &looked, at);
                let words;
                (words, from) = self.looks.ask(looking).await?;
                self.overwrite(&segment, words).await?;
            }
        }
        Ok(())
    }

    /// Overwrites parts of a segment, a few in each turn of the writer.
    async fn overwrite(
        &self,
        segment: &Arc<Segment>,
        words: Vec<Range<u64>>,
    ) -> Result<(), StoreError> {
        let mut left = words.as_slice();
        while !left.is_empty() {
            let mut bytes = 0;
            let count = left.iter().take(TURN_FRAMES).take_while(|word| {
                let is_next = bytes < TURN_BYTES;
                bytes += word.end - word.start;
                is_next
            });
            let (few, rest) = left.split_at(count.count());
            let (few, segment) = (few.to_vec(), segment.clone());
            left = rest;
            let overwriting = move |_: &mut Ledger| Ok(overwrite(&segment, &few)?);
            // The last part of a backup has all tombstones behind what it has of erased records.
            let _not_meanwhile = self.backups.overwriting().await;
            self.writes.ask(overwriting).await?;
        }
        Ok(())
    }
}

impl Records {
    /// Those of `ids` that are tombstones, and since which batch.
    fn erased(&self, ids: &[RecordId]) -> Result<Erased, Trouble> {
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

    /// Where a part of `segment` says anything of these records besides that they are tombstones,
    /// and where to go on.
    fn words_about(
        &self,
        erased: &Erased,
        segment: &Segment,
        from: u64,
    ) -> Result<(Vec<Range<u64>>, Option<u64>), Trouble> {
        let mut reading = Reading::from(segment, from);
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
            if reading.at - from >= READ_BYTES {
                return Ok((words, Some(reading.at)));
            }
        }
        Ok((words, None))
    }
}

/// Overwrites these parts of `segment`, durably. For the writer alone: whoever else took note of a disk
/// that fails would keep it from hearing of it.
fn overwrite(segment: &Segment, words: &[Range<u64>]) -> Result<(), Failure> {
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
