//! A record as a value: a head that scripts can change, then what core's `wire` made of the rest.
//!
//! | bytes | what |
//! |---|---|
//! | 2, 1 | `SR`, and the version of this layout |
//! | 1, 8 | the state, and the moment that belongs to it, as `wire::state_code` has them |
//! | 8, 8 | first use; expiry |
//! | 8, 8 | how long the key lives; how long after that it is a tombstone |
//! | 8, 16 | fence and attempt id of the last claim |
//! | 8 | random, of the last write: no two values of a record have the same head |
//! | 4, 4, 4 | of hashes of the key, the tenant's tag and its name, by which they are found |
//! | 4 | how long the record's frame is |
//! | 4 | the CRC-32 of all this |
//! | 8, 8 | seconds and microseconds after which the moments are, twice, for no sum covers them |
//!
//! Only Redis can tell when a key is claimed, so the script fills those in, unless Redis has told the time a moment
//! before; where moments were known they are whole, and there is nothing to add. Nothing else of a value is made by a script: Redis' language takes ten
//! times as long for a byte as Redis does.
//!
//! The frame is `wire`'s of the whole record, without its state, which the head tells, as it does
//! fence, attempt id and times. Behind it is the frame of its answer, if it is completed; else of its
//! keepsake, if that has a request, which so goes with the outcome.

use std::mem;
use std::time::Duration;

use selfsame_core::{
    Answer, AttemptId, Fence, Keepsake, Label, Lease, Record, RecordId, State, StoreError,
    Timestamp, wire,
};
use sha1_smol::Sha1;

use crate::stores::durable::{CLAIMED, COMPLETED, FAILED, HELD, TOMBSTONE, damaged};

const MAGIC: &[u8; 2] = b"SR";
const VERSION: u8 = 1;
const FIELDS_LEN: usize = 92;
const SUM_LEN: usize = 4;
const BASE_LEN: usize = 8;

const BASE_AT: usize = FIELDS_LEN + SUM_LEN;

/// How many bytes a head has.
pub(super) const HEAD_LEN: usize = BASE_AT + 2 * BASE_LEN;

/// How much longer than core's rules Redis keeps a record, so that it is never they who are late.
pub(super) const MARGIN: Duration = Duration::from_secs(60);

/// What a record looked like when it was read.
pub(super) type Seen = [u8; HEAD_LEN];

/// The part of a value that scripts can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) state: u8,
    pub(super) state_at: Timestamp,
    created_at: Timestamp,
    pub(super) expires_at: Timestamp,
    retention: Duration,
    pub(super) remember: Duration,
    fence: Fence,
    attempt_id: AttemptId,
    write: [u8; 8],
    pub(super) sums: Sums,
    record_len: u32,
}

/// By which records are found, or almost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) key: [u8; 4],
    pub(super) tenant: [u8; 4],
    pub(super) tenant_name: [u8; 4],
}

impl Sums {
    pub(super) fn of(label: &Label) -> Self {
        Self {
            key: short(label.key.as_str().as_bytes()),
            tenant: short(label.tenant.as_bytes()),
            tenant_name: label
                .tenant_name
                .as_deref()
                .map_or(NOTHING, |name| short(name.as_bytes())),
        }
    }

    pub(super) fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.key);
        bytes[4..8].copy_from_slice(&self.tenant);
        bytes[8..].copy_from_slice(&self.tenant_name);
        bytes
    }
}

/// The part of the hash of nothing.
const NOTHING: [u8; 4] = [0xda, 0x39, 0xa3, 0xee];

/// A part of a hash.
pub(super) fn short(bytes: &[u8]) -> [u8; 4] {
    let digest = Sha1::from(bytes).digest().bytes();
    *digest.first_chunk().expect("it is longer")
}

/// A record, and what it looked like.
pub(super) struct Found {
    pub(super) record: Record,
    pub(super) seen: Seen,
}

/// A moment by Redis' clock, as a script has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) seconds: u32,
    pub(super) micros: u32,
}

impl Moment {
    pub(super) fn from_millis(millis: u64) -> Self {
        let seconds = u32::try_from(millis / 1000).expect("Redis' clock tells a time of ours");
        Self { seconds, micros: (millis % 1000) as u32 * 1000 }
    }

    pub(super) fn as_millis(self) -> u64 {
        u64::from(self.seconds) * 1000 + u64::from(self.micros / 1000)
    }

    fn to_bytes(self) -> [u8; BASE_LEN] {
        (u64::from(self.seconds) << 32 | u64::from(self.micros)).to_be_bytes()
    }

    fn from_bytes(bytes: [u8; BASE_LEN]) -> Self {
        let both = u64::from_be_bytes(bytes);
        Self { seconds: (both >> 32) as u32, micros: both as u32 }
    }
}

/// What is known of a record by its head.
pub(super) fn read_head(value: &[u8]) -> Result<Head, &'static str> {
    let (head, _) = value.split_first_chunk::<HEAD_LEN>().ok_or("the head is cut off")?;
    let (fields, rest) = head.split_at(FIELDS_LEN);
    if fields[..2] != *MAGIC {
        return Err("not a record");
    }
    let mut rest = Fields { rest, base_ms: 0 };
    if rest.take() != crc32fast::hash(fields).to_be_bytes() {
        return Err("the head's checksum does not fit");
    }
    let base = rest.take();
    if base != rest.take() {
        return Err("the head tells two times");
    }
    if fields[2] != VERSION {
        return Err("written in a layout that this build does not know");
    }
    let base_ms = Moment::from_bytes(base).as_millis();
    let mut fields = Fields { rest: &fields[3..], base_ms };
    Ok(Head {
        state: fields.take::<1>()[0],
        state_at: fields.time(),
        created_at: fields.time(),
        expires_at: fields.time(),
        retention: Duration::from_millis(fields.number()),
        remember: Duration::from_millis(fields.number()),
        fence: Fence::from_number(fields.number()),
        attempt_id: AttemptId::from_bytes(fields.take()),
        write: fields.take(),
        sums: Sums { key: fields.take(), tenant: fields.take(), tenant_name: fields.take() },
        record_len: u32::from_be_bytes(fields.take()),
    })
}

/// The record of `id`. One that cannot be trusted raises the alarm.
pub(super) fn read(id: &RecordId, value: &[u8]) -> Result<Found, StoreError> {
    let head = read_head(value).map_err(|cause| damaged(id, cause))?;
    let (seen, frames) = value.split_first_chunk().expect("a head was read");
    let frames = frames.split_at_checked(head.record_len as usize);
    let (frame, behind) = frames.ok_or_else(|| damaged(id, "the record is cut off"))?;
    let mut record = wire::decode_record(frame).map_err(|cause| damaged(id, cause))?;
    if record.id != *id {
        return Err(damaged(id, wire::WireError::Misplaced));
    }
    record.fence = head.fence;
    record.attempt_id = head.attempt_id;
    record.created_at = head.created_at;
    let at = head.state_at;
    match head.state {
        COMPLETED => {
            let answer = wire::decode_answer(id, behind).map_err(|cause| damaged(id, cause))?;
            finish(&mut record, answer, at);
        }
        CLAIMED => record.state = State::Claimed { lease_until: at },
        FAILED => record.state = State::Failed,
        HELD => record.state = State::Held { since: at },
        TOMBSTONE => record.state = State::Tombstone,
        _ => return Err(damaged(id, "there is no such state")),
    }
    if head.state != COMPLETED && !behind.is_empty() {
        let keepsake = wire::decode_keepsake(id, behind).map_err(|cause| damaged(id, cause))?;
        record.keepsake = Some(Box::new(keepsake));
    }
    record.expires_at = head.expires_at;
    Ok(Found { record, seen: *seen })
}

/// What a script records is what core makes of it, whatever else comes with that.
fn finish(record: &mut Record, answer: Answer, at: Timestamp) {
    record.state = State::Claimed { lease_until: at };
    let (id, fence, attempt_id) = (record.id, record.fence, record.attempt_id);
    let own = Lease { id, fence, attempt_id, length: Duration::ZERO };
    let _finished = record.complete(&own, answer, at);
}

/// The value of a record, with a head that no other value has.
pub(super) fn write(record: &Record) -> Vec<u8> {
    let frame = frame(&mut record.clone());
    value(record, Sums::of(&record.label), &frame)
}

fn value(record: &Record, sums: Sums, frame: &[u8]) -> Vec<u8> {
    let behind = behind(record);
    let mut value = Vec::with_capacity(HEAD_LEN + frame.len() + behind.len());
    value.extend_from_slice(&fields(record, sums, write_id(), frame.len()));
    // Its moments are whole: nothing is to be added to them.
    value.resize(HEAD_LEN, 0);
    value.extend_from_slice(frame);
    value.extend_from_slice(&behind);
    value
}

/// A first claim. The moment at which it is made is filled in, as a rule by a script: all of its record's are after that.
pub(super) struct Draft {
    head: Seen,
    frame: Vec<u8>,
    sums: Sums,
}

impl Draft {
    pub(super) fn of(mut record: Record) -> Self {
        let (frame, sums) = (frame(&mut record), Sums::of(&record.label));
        let write = *record.attempt_id.as_bytes().first_chunk().expect("it is longer");
        let mut head = [0; HEAD_LEN];
        head[..BASE_AT].copy_from_slice(&fields(&record, sums, write, frame.len()));
        Self { head, frame, sums }
    }

    /// What comes before the moment.
    pub(super) fn fields(&self) -> &[u8] {
        &self.head[..BASE_AT]
    }

    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// It was made at that moment.
    pub(super) fn made(&mut self, at: Moment) {
        for base in self.head[BASE_AT..].chunks_exact_mut(BASE_LEN) {
            base.copy_from_slice(&at.to_bytes());
        }
    }

    /// What it looks like since.
    pub(super) fn seen(&self) -> &Seen {
        &self.head
    }

    /// The value of its record as that is now. What a frame tells has not changed.
    pub(super) fn value(&self, record: &Record) -> Vec<u8> {
        value(record, self.sums, &self.frame)
    }
}

/// The fields of a head, and their sum.
fn fields(record: &Record, sums: Sums, write: [u8; 8], frame_len: usize) -> Vec<u8> {
    let (state, state_at) = wire::state_code(&record.state);
    let mut fields = Vec::with_capacity(BASE_AT);
    fields.extend_from_slice(MAGIC);
    fields.extend_from_slice(&[VERSION, state]);
    for time in [state_at, record.created_at, record.expires_at] {
        fields.extend_from_slice(&time.as_millis().to_be_bytes());
    }
    for length in [record.retention, record.remember] {
        fields.extend_from_slice(&millis(length).to_be_bytes());
    }
    fields.extend_from_slice(&record.fence.number().to_be_bytes());
    fields.extend_from_slice(record.attempt_id.as_bytes());
    fields.extend_from_slice(&write);
    fields.extend_from_slice(&sums.to_bytes());
    let record_len = u32::try_from(frame_len).expect("records are far below 4 GiB");
    fields.extend_from_slice(&record_len.to_be_bytes());
    let sum = crc32fast::hash(&fields);
    fields.extend_from_slice(&sum.to_be_bytes());
    fields
}

/// The record's frame, without what its head tells, and without a request, which lies behind it.
fn frame(record: &mut Record) -> Vec<u8> {
    record.keepsake = record.keepsake.take().and_then(Keepsake::without_request);
    let state = mem::replace(&mut record.state, State::Failed);
    let frame = wire::encode_record(record);
    record.state = state;
    frame
}

/// What lies behind the frame.
pub(super) fn behind(record: &Record) -> Vec<u8> {
    match (&record.state, &record.keepsake) {
        (State::Completed { answer, .. }, _) => wire::encode_answer(&record.id, answer),
        (_, Some(keepsake)) if keepsake.request.is_some() => {
            wire::encode_keepsake(&record.id, keepsake)
        }
        _ => Vec::new(),
    }
}

/// After how long Redis may let go of it by itself: never before core's rules would.
pub(super) fn lives(record: &Record, now: Timestamp) -> Option<Duration> {
    let until = match record.state {
        State::Claimed { lease_until } if record.is_resumable() => {
            lease_until.max(record.expires_at)
        }
        // It is, or will be, held.
        State::Claimed { .. } | State::Held { .. } => return None,
        State::Completed { .. } | State::Failed | State::Tombstone => record.known_until(),
    };
    Some(until.since(now) + MARGIN)
}

/// A name for one write.
fn write_id() -> [u8; 8] {
    *AttemptId::random().as_bytes().first_chunk().expect("it is longer")
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The fields of a head, in their order; they are as long as they must be.
struct Fields<'a> {
    rest: &'a [u8],
    base_ms: u64,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.rest.split_first_chunk().expect("a head is of one length");
        self.rest = rest;
        *field
    }

    fn number(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }

    fn time(&mut self) -> Timestamp {
        Timestamp::from_millis(self.number().saturating_add(self.base_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_nothing_is_known() {
        assert_eq!(short(b""), NOTHING);
    }
}
