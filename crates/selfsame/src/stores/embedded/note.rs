//! [`Note`]: how far the log had come, and what was known of it, when a table of the index was made.

use selfsame_core::{RecordId, Timestamp};

use super::kept_time::{KEPT_TIME_LEN, KeptTime};
use super::segment::START;
use super::segments::Needs;

/// A place between two batches of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) segment: u32,
    pub(super) offset: u64,
    /// Number of the next batch.
    pub(super) batch: u64,
}

/// What the tables of the index do not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    /// Where the log goes on behind what the index knows.
    pub(super) position: Position,
    /// Where the last frame before begins, if it is in the same segment.
    pub(super) last_head: Option<u64>,
    /// The store's time then, where the store keeps it.
    pub(super) time: Option<KeptTime>,
    /// The segments up to there, the oldest first.
    pub(super) segments: Vec<NotedSegment>,
    /// Records that were claimed or held, and until when nothing was due to them.
    pub(super) open: Vec<(RecordId, Timestamp)>,
}

/// What is known of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotedSegment {
    pub(super) number: u32,
    /// Where its last frame begins, if the log goes on in the next.
    pub(super) sealed_at: Option<u64>,
    pub(super) needs: Needs,
}

const NUMBER_LEN: usize = 8;
const SEGMENT_LEN: usize = 2 * NUMBER_LEN + Needs::LEN;
const OPEN_LEN: usize = RecordId::LEN + NUMBER_LEN;

impl Note {
    /// Nothing is known: the log is read from its beginning.
    pub(super) fn at_start_of(segment: u32) -> Self {
        let position = Position { segment, offset: START, batch: 1 };
        Self { position, last_head: None, time: None, segments: Vec::new(), open: Vec::new() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Position { segment, offset, batch } = self.position;
        let last_head = self.last_head.unwrap_or(0);
        let segments = self.segments.len() as u64;
        let mut bytes = Vec::new();
        for number in [segment.into(), offset, batch, last_head, segments] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.time.map_or([0; KEPT_TIME_LEN], |time| time.encode()));
        for NotedSegment { number, sealed_at, needs } in &self.segments {
            bytes.extend(u64::from(*number).to_le_bytes());
            bytes.extend(sealed_at.unwrap_or(0).to_le_bytes());
            bytes.extend(needs.encode());
        }
        for (id, due) in &self.open {
            bytes.extend(id.as_bytes());
            bytes.extend(due.as_millis().to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Note::encode`] wrote.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<{ 5 * NUMBER_LEN }>()?;
        let [segment, offset, batch, last_head, segments] =
            std::array::from_fn(|at| number(&head[at * NUMBER_LEN..]));
        let position = Position { segment: u32::try_from(segment).ok()?, offset, batch };
        let (time, rest) = rest.split_first_chunk::<KEPT_TIME_LEN>()?;
        let time = Some(time).filter(|time| **time != [0; KEPT_TIME_LEN]);
        let time = time.and_then(|time| KeptTime::decode(time));
        let segments_len = usize::try_from(segments).ok()?.checked_mul(SEGMENT_LEN)?;
        let (segments, open) = rest.split_at_checked(segments_len)?;
        let segments = segments.as_chunks::<SEGMENT_LEN>().0.iter().map(|bytes| {
            let needs = bytes.last_chunk().expect("a segment ends with what is needed of it");
            Some(NotedSegment {
                number: u32::try_from(number(bytes)).ok()?,
                sealed_at: Some(number(&bytes[NUMBER_LEN..])).filter(|at| *at > 0),
                needs: Needs::decode(needs),
            })
        });
        let segments = segments.collect::<Option<Vec<_>>>()?;
        let (open, rest) = open.as_chunks::<OPEN_LEN>();
        let open = open.iter().map(|bytes| {
            let id = bytes[..RecordId::LEN].try_into().expect("an id's length");
            let due = Timestamp::from_millis(number(&bytes[RecordId::LEN..]));
            (RecordId::from_bytes(id), due)
        });
        let open = open.collect();
        let last_head = Some(last_head).filter(|at| *at > 0);
        rest.is_empty().then_some(Self { position, last_head, time, segments, open })
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..NUMBER_LEN].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let needs = Needs { bytes: 1, states: [2, 3, 4, 5, 6, 7], due: Timestamp::from_millis(8) };
        let note = Note {
            position: Position { segment: 9, offset: 10, batch: 11 },
            last_head: Some(7),
            time: Some(KeptTime {
                store: Timestamp::from_millis(14),
                wall: Timestamp::from_millis(15),
                behind: Duration::from_secs(16),
                since_boot: None,
            }),
            segments: vec![
                NotedSegment { number: 1, sealed_at: Some(5), needs },
                NotedSegment { number: 2, sealed_at: None, needs: Needs::NONE },
            ],
            open: vec![(RecordId::from_bytes([12; 32]), Timestamp::from_millis(13))],
        };
        let bytes = note.encode();
        assert_eq!(Note::decode(&bytes), Some(note));
        assert_eq!(Note::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Note::decode(&[]), None);
    }
}
