//! [`Entry`]: the place of a record in the log, and its form in a table.
//!
//! A record that was removed leaves a mark in its place, which hides older entries of its id. Entries
//! and marks of segments that are gone count for nothing.

use selfsame_core::{RecordId, Timestamp};

use crate::stores::durable::{CLAIMED, HELD};
use crate::stores::embedded::frame::Marks;

/// Length of an entry in a table, with its id.
pub(super) const ENTRY_LEN: usize = RecordId::LEN + 2 * PLACE_LEN + 14;

const PLACE_LEN: usize = 12;

const STATE: u8 = 0x0f;
const REMEMBERED: u8 = 0x10;
const DAMAGED: u8 = 0x20;
const REMOVED: u8 = 0x40;
const OLDER: u8 = 0x80;

/// A frame's place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::embedded) struct Place {
    pub(in crate::stores::embedded) segment: u32,
    pub(in crate::stores::embedded) offset: u32,
    /// Length of the whole frame.
    pub(in crate::stores::embedded) len: u32,
}

/// The place of a record in the log, and what is known of it without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::embedded) struct Entry {
    pub(in crate::stores::embedded) record: Place,
    /// Place of its outcome, where that is a frame of its own.
    pub(in crate::stores::embedded) end: Option<Place>,
    pub(in crate::stores::embedded) marks: Marks,
    pub(in crate::stores::embedded) is_damaged: bool,
}

impl Entry {
    pub(in crate::stores::embedded) fn new(record: Place, marks: Marks) -> Self {
        Self { record, end: None, marks, is_damaged: false }
    }

    pub(in crate::stores::embedded) fn damaged(at: Place) -> Self {
        Self { is_damaged: true, ..Self::new(at, Marks::NONE) }
    }

    /// Places of its frames.
    pub(in crate::stores::embedded) fn places(self) -> impl Iterator<Item = Place> {
        [Some(self.record), self.end].into_iter().flatten()
    }

    /// Bytes of its frames.
    pub(in crate::stores::embedded) fn bytes(self) -> u64 {
        self.places().map(|place| u64::from(place.len)).sum()
    }

    /// Whether the record is claimed or held.
    pub(in crate::stores::embedded) fn is_open(&self) -> bool {
        !self.is_damaged && matches!(self.marks.state, CLAIMED | HELD)
    }

    /// Whether something becomes of the record by itself, and not before a time that is known.
    pub(in crate::stores::embedded) fn is_closed(&self) -> bool {
        !self.is_damaged && !self.is_open()
    }

    /// Place of its newest frame.
    pub(in crate::stores::embedded) fn newest(&self) -> Place {
        self.end.unwrap_or(self.record)
    }
}

/// What the index knows of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Present(Entry),
    Removed {
        /// The segment of the record that was removed.
        segment: u32,
    },
}

impl Slot {
    /// The last segment of the log that has a frame of the record.
    pub(super) fn last_segment(&self) -> u32 {
        match self {
            Self::Present(entry) => entry.newest().segment,
            Self::Removed { segment } => *segment,
        }
    }

    /// Segment of the log without which this slot counts for nothing.
    pub(super) fn segment(&self) -> u32 {
        match self {
            Self::Present(entry) => entry.record.segment,
            Self::Removed { segment } => *segment,
        }
    }
}

/// A slot as a table has it.
pub(super) fn encode(id: &RecordId, slot: &Slot) -> [u8; ENTRY_LEN] {
    let mut bytes = [0; ENTRY_LEN];
    bytes[..32].copy_from_slice(id.as_bytes());
    let entry = match slot {
        Slot::Present(entry) => entry,
        Slot::Removed { segment } => {
            bytes[32..36].copy_from_slice(&segment.to_le_bytes());
            bytes[68] = REMOVED;
            return bytes;
        }
    };
    write_place(&mut bytes[32..44], entry.record);
    if let Some(end) = entry.end {
        write_place(&mut bytes[44..56], end);
    }
    bytes[56..64].copy_from_slice(&entry.marks.settled_until.as_millis().to_le_bytes());
    bytes[64..68].copy_from_slice(&entry.marks.key.to_le_bytes());
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    bytes[68] = entry.marks.state
        | flag(entry.marks.remembered, REMEMBERED)
        | flag(entry.marks.has_older, OLDER)
        | flag(entry.is_damaged, DAMAGED);
    bytes
}

/// Reads what [`encode`] wrote.
pub(super) fn decode(bytes: &[u8; ENTRY_LEN]) -> (RecordId, Slot) {
    let id = RecordId::from_bytes(bytes[..32].try_into().expect("an id's length"));
    if bytes[68] & REMOVED != 0 {
        return (id, Slot::Removed { segment: number(&bytes[32..36]) });
    }
    let settled_until = u64::from_le_bytes(bytes[56..64].try_into().expect("8 bytes"));
    let marks = Marks {
        settled_until: Timestamp::from_millis(settled_until),
        key: number(&bytes[64..68]),
        state: bytes[68] & STATE,
        remembered: bytes[68] & REMEMBERED != 0,
        has_older: bytes[68] & OLDER != 0,
    };
    let end = read_place(&bytes[44..56]);
    let entry = Entry {
        record: read_place(&bytes[32..44]),
        // Segments are counted from 1.
        end: (end.segment != 0).then_some(end),
        marks,
        is_damaged: bytes[68] & DAMAGED != 0,
    };
    (id, Slot::Present(entry))
}

fn write_place(bytes: &mut [u8], place: Place) {
    bytes[..4].copy_from_slice(&place.segment.to_le_bytes());
    bytes[4..8].copy_from_slice(&place.offset.to_le_bytes());
    bytes[8..].copy_from_slice(&place.len.to_le_bytes());
}

fn read_place(bytes: &[u8]) -> Place {
    Place { segment: number(&bytes[..4]), offset: number(&bytes[4..8]), len: number(&bytes[8..12]) }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("4 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let id = RecordId::from_bytes([7; 32]);
        let place = |segment| Place { segment, offset: 28, len: u32::MAX };
        let marks = Marks {
            settled_until: Timestamp::from_millis(u64::MAX - 1),
            key: 0xfeed_beef,
            state: 5,
            remembered: true,
            has_older: true,
        };
        let claimed = Entry::new(place(1), marks);
        let completed = Entry { end: Some(place(2)), ..claimed };
        let entries = [claimed, completed, Entry::damaged(place(3))];
        for slot in [Slot::Removed { segment: 9 }].into_iter().chain(entries.map(Slot::Present)) {
            assert_eq!(decode(&encode(&id, &slot)), (id, slot));
        }
    }
}
