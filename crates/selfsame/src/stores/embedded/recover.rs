//! What an opened log comes to.
//!
//! Whatever was going on when the process died, at the end of the log there may be a batch that was
//! being written: nobody was told of it, and what of it cannot be read is left out. All before that
//! was durable once. Where it cannot be read now the disk has lost it, and that is told.

use std::io;
use std::sync::Arc;

use selfsame_core::Clock;

use super::frame::{Head, Kind};
use super::index::{Entry, Index, Place};
use super::reading::Reading;
use super::records::Records;
use super::segment::Segment;
use super::segments::Segments;
use super::{Leases, OpenError};

/// The log, read to its end.
pub(super) struct Recovered {
    pub(super) records: Records,
    pub(super) active: Arc<Segment>,
    /// Where the next batch goes, and its number.
    pub(super) end: u64,
    pub(super) batch: u64,
}

/// Reads `segments`, of which there is at least one, from the oldest on.
pub(super) fn recover(
    segments: Vec<Segment>,
    clock: Arc<dyn Clock>,
    leases: Leases,
) -> Result<Recovered, OpenError> {
    let records = Records { index: Index::new(), segments: Segments::new(), clock, leases };
    let mut last = Last { batch: 0, is_closed: true };
    let mut segments = segments.into_iter();
    loop {
        let segment = Arc::new(segments.next().expect("it goes on only where there is another"));
        records.segments.add(segment.clone());
        let mut reading = Reading::new(&segment);
        let see = |head, place, is_sound| note(&records, head, place, is_sound);
        if !read(&mut reading, &mut last, see)? {
            let (end, batch) = (reading.at, last.batch + 1);
            segments.try_for_each(|unused| remove_unused(&unused))?;
            // What was read may be in the system's memory alone, and is about to be told.
            segment.sync().map_err(|error| unreadable(&segment, error))?;
            return Ok(Recovered { records, active: segment, end, batch });
        }
        if segments.as_slice().is_empty() {
            return Err(damaged(&segment, "the file after it is missing".to_owned()));
        }
    }
}

/// What a frame makes of the records.
fn note(records: &Records, head: Head, place: Place, is_sound: bool) {
    if matches!(head.kind, Kind::Seal | Kind::Rest) {
        return;
    }
    let changed = records.index.change(head.id, |before| match (head.kind, before) {
        (Kind::Gone, _) if is_sound => None,
        (Kind::Record, _) if is_sound => {
            Some(Entry { is_earlier: true, ..Entry::new(place, head.marks) })
        }
        (Kind::Ended, Some(before)) if is_sound && !before.is_damaged => {
            Some(Entry { end: Some(place), marks: head.marks, ..before })
        }
        // Its claim was in a segment that is gone, so nobody needs it: it has expired, or a later
        // frame says more.
        (Kind::Ended, None) => None,
        // A claim that is damaged is not made whole by its end.
        _ => Some(Entry::damaged(place)),
    });
    records.segments.account([changed]);
}

/// A segment that was made beforehand is made again when it is needed.
fn remove_unused(segment: &Segment) -> Result<(), OpenError> {
    let mut reading = Reading::new(segment);
    match reading.head() {
        Ok(None) => segment.remove().map_err(|error| unreadable(segment, error)),
        Ok(Some(_)) => Err(damaged(
            segment,
            "the log goes on in it, and the file before has no end".to_owned(),
        )),
        Err(error) => Err(unreadable(segment, error)),
    }
}

/// The last batch that was read.
struct Last {
    batch: u64,
    /// Whether it was read to its end.
    is_closed: bool,
}

impl Last {
    /// Whether `head` may follow. What does not is left over from an attempt that failed.
    fn goes_on_with(&self, head: &Head) -> bool {
        head.batch == self.batch + u64::from(self.is_closed)
            || head.batch == self.batch + 1
            || self.batch == 0
    }
}

/// Shows the frames to `see`, and whether each is sound, up to the end of what was written.
/// Whether that is a seal.
fn read(
    reading: &mut Reading<'_>,
    last: &mut Last,
    mut see: impl FnMut(Head, Place, bool),
) -> Result<bool, OpenError> {
    let segment = reading.segment;
    let failed = |error: io::Error| unreadable(segment, error);
    loop {
        let head = reading.head().map_err(failed)?.filter(|head| last.goes_on_with(head));
        let Some(head) = head else {
            let unread = last.batch + u64::from(last.is_closed);
            return match reading.is_followed(unread).map_err(failed)? {
                true => {
                    Err(damaged(segment, format!("nothing can be read at byte {}", reading.at)))
                }
                false => Ok(false),
            };
        };
        let is_sound = reading.is_sound(&head).map_err(failed)?;
        if !is_sound && !reading.is_followed(head.batch).map_err(failed)? {
            return Ok(false);
        }
        (last.batch, last.is_closed) = (head.batch, head.closes);
        see(head, reading.place(&head), is_sound);
        reading.at += head.frame_len();
        if head.kind == Kind::Seal {
            return Ok(true);
        }
    }
}

fn damaged(segment: &Segment, what: String) -> OpenError {
    OpenError::Damaged { path: segment.path.clone(), what }
}

fn unreadable(segment: &Segment, error: io::Error) -> OpenError {
    OpenError::File { path: segment.path.clone(), source: error.into() }
}
