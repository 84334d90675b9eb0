//! One frame of the log: a head of fixed length, which says whom it is about, and what follows.
//!
//! Head and payload have a checksum each. Where only the payload is damaged it is still known whose
//! it was, and that key is refused instead of being taken for a new one.

use std::time::Duration;

use selfsame_core::wire::{self, WireError};
use selfsame_core::{Answer, Lease, Record, RecordId, Recorded, Timestamp};

use crate::stores::durable::{CLAIMED, COMPLETED, FAILED, TOMBSTONE};

/// How long a head is.
pub(super) const HEAD_LEN: usize = 68;

/// How a head begins, so that one can be looked for.
pub(super) const MAGIC: [u8; 2] = [0xf5, 0x5e];

const CLOSES: u8 = 0x80;
const REMEMBERED: u8 = 0x40;
const OLDER: u8 = 0x20;
const STATE: u8 = 0x0f;

/// Random, one for each segment. No two have the same heads then, and nobody can write a body that
/// contains one: what a crash leaves of a log is searched for heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Salt(pub(super) u64);

/// What a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The record as it is from now on.
    Record = 1,
    /// The record's claim ended with this answer.
    Ended = 2,
    /// There is no such record any more.
    Gone = 3,
    /// The record was found to be damaged, and its remains were left behind.
    Damaged = 4,
    /// The segment ends here, and the log goes on in the next.
    Seal = 5,
    /// The store was closed: all before was durable.
    Rest = 6,
    /// The segments before the one with this number are not needed any more.
    Floor = 7,
    /// The store's time, and what other clocks showed then.
    Time = 8,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Whether its batch ends with it.
    pub(super) closes: bool,
    /// Counts the batches: each was durable before the next one was written.
    pub(super) batch: u64,
    pub(super) id: RecordId,
    pub(super) marks: Marks,
    pub(super) payload_len: u32,
    pub(super) payload_sum: u32,
}

/// What is known of a record without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    /// Until when nothing becomes of it by itself.
    pub(super) settled_until: Timestamp,
    /// Stands for its key, more or less.
    pub(super) key: u32,
    /// The number of its state.
    pub(super) state: u8,
    /// Whether it is a tombstone for a while, when its answer expires.
    pub(super) remembered: bool,
    /// Whether the log may have older frames of the record than those that its entry has.
    pub(super) has_older: bool,
}

impl Marks {
    /// For frames that are about no record.
    pub(super) const NONE: Self = Self {
        settled_until: Timestamp::from_millis(0),
        key: 0,
        state: 0,
        remembered: false,
        has_older: false,
    };

    pub(super) fn of(record: &Record) -> Self {
        Self {
            settled_until: record.settled_until(),
            key: key_mark(record.label.key.as_str()),
            state: wire::state_code(&record.state).0,
            remembered: !record.remember.is_zero(),
            has_older: false,
        }
    }

    /// Whether the record is claimed, by somebody alive or not.
    pub(super) fn is_claimed(self) -> bool {
        self.state == CLAIMED
    }

    /// Whether the record, once its time is over, is gone without a trace.
    pub(super) fn leaves_at_once(self) -> bool {
        match self.state {
            COMPLETED => !self.remembered,
            FAILED | TOMBSTONE => true,
            _ => false,
        }
    }
}

/// What stands for a key in [`Marks`].
pub(super) fn key_mark(key: &str) -> u32 {
    crc32fast::hash(key.as_bytes())
}

impl Head {
    /// The head as it is written in a segment with this salt; elsewhere it is none.
    pub(super) fn encode(&self, salt: Salt) -> [u8; HEAD_LEN] {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let bits = self.marks.state
            | flag(self.closes, CLOSES)
            | flag(self.marks.remembered, REMEMBERED)
            | flag(self.marks.has_older, OLDER);
        let mut bytes = [0; HEAD_LEN];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2..4].copy_from_slice(&[self.kind as u8, bits]);
        bytes[4..8].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload_sum.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.batch.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.marks.settled_until.as_millis().to_le_bytes());
        bytes[28..32].copy_from_slice(&self.marks.key.to_le_bytes());
        bytes[32..64].copy_from_slice(self.id.as_bytes());
        let sum = sum(salt, &bytes);
        bytes[64..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The head that `bytes` are in a segment with this salt, if they are one.
    pub(super) fn decode(bytes: &[u8; HEAD_LEN], salt: Salt) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if bytes[..2] != MAGIC || number(64) != sum(salt, bytes) {
            return None;
        }
        let kind = match bytes[2] {
            1 => Kind::Record,
            2 => Kind::Ended,
            3 => Kind::Gone,
            4 => Kind::Damaged,
            5 => Kind::Seal,
            6 => Kind::Rest,
            7 => Kind::Floor,
            8 => Kind::Time,
            _ => return None,
        };
        Some(Self {
            kind,
            closes: bytes[3] & CLOSES != 0,
            batch: long(12),
            id: RecordId::from_bytes(bytes[32..64].try_into().expect("an id's length")),
            marks: Marks {
                settled_until: Timestamp::from_millis(long(20)),
                key: number(28),
                state: bytes[3] & STATE,
                remembered: bytes[3] & REMEMBERED != 0,
                has_older: bytes[3] & OLDER != 0,
            },
            payload_len: number(4),
            payload_sum: number(8),
        })
    }

    /// How long the frame is.
    pub(super) fn frame_len(&self) -> u64 {
        HEAD_LEN as u64 + u64::from(self.payload_len)
    }
}

fn sum(salt: Salt, head: &[u8; HEAD_LEN]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.0.to_le_bytes());
    hasher.update(&head[..64]);
    hasher.finalize()
}

/// A record as it is written.
pub(super) fn encode_record(record: &Record) -> Vec<u8> {
    wire::compact(&wire::encode_record(record), &record.id)
}

/// Reads what [`encode_record`] wrote.
pub(super) fn record(payload: &[u8], id: &RecordId) -> Result<Record, WireError> {
    wire::decode_record(&wire::expand(payload, id)?)
}

/// An answer as it is written.
pub(super) fn encode_answer(answer: &Answer, id: &RecordId) -> Vec<u8> {
    wire::compact(&wire::encode_bare_answer(answer), id)
}

/// Reads what [`encode_answer`] wrote.
pub(super) fn answer(payload: &[u8], id: &RecordId) -> Result<Answer, WireError> {
    wire::decode_bare_answer(&wire::expand(payload, id)?)
}

/// What a claimed record is, once its end is put to it.
pub(super) fn ended(mut claimed: Record, payload: &[u8]) -> Result<Record, WireError> {
    let (at, answer) = payload.split_first_chunk::<8>().ok_or(WireError::NotAFrame)?;
    let at = Timestamp::from_millis(u64::from_le_bytes(*at));
    let Record { id, fence, attempt_id, .. } = claimed;
    let answer = self::answer(answer, &id)?;
    let lease = Lease { id, fence, attempt_id, length: Duration::ZERO };
    match claimed.complete(&lease, answer, at) {
        Recorded::Until(_) => Ok(claimed),
        Recorded::Lost => Err(WireError::Misplaced),
    }
}

#[cfg(test)]
mod tests {
    use selfsame_core::conformance::samples;

    use super::*;

    fn head() -> Head {
        let record = Record::first(&samples::remembered("k"), Timestamp::from_millis(1 << 40));
        Head {
            kind: Kind::Ended,
            closes: true,
            batch: u64::MAX - 7,
            id: record.id,
            marks: Marks::of(&record),
            payload_len: 77,
            payload_sum: 0xfeed_beef,
        }
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        assert_eq!(Head::decode(&head().encode(Salt(3)), Salt(3)), Some(head()));
    }

    #[test]
    fn a_head_with_any_bit_flipped_is_none() {
        let bytes = head().encode(Salt(3));
        for bit in 0..HEAD_LEN * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::decode(&bytes, Salt(3)), None, "bit {bit}");
        }
    }

    #[test]
    fn a_head_of_another_segment_is_none() {
        assert_eq!(Head::decode(&head().encode(Salt(3)), Salt(4)), None);
    }
}
