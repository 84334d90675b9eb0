//! [`Entry`]: what the cache knows of a key, and what a claim comes to by it.
//!
//! | bytes | what |
//! |---|---|
//! | 2, 1 | `SC`, and the version of this layout |
//! | 1, 8 | the rank, and the fence: what the script goes by |
//! | 8 | from when on it counts no more, by the durable store's clock |
//! | 8 | when the lease ends, or the key expires |
//! | 16, 37 | the attempt id of who runs; the fingerprint |
//! | 32 | a MAC of the record's id, all this and all behind it: who else writes to Redis answers for nobody |
//!
//! Behind it is `wire`'s frame of the answer, if there is one.

use std::time::Duration;

use selfsame_core::{
    Answer, Ask, AttemptId, Claimed, Fence, Fingerprint, Lease, Record, RecordId, Replay, Secret,
    State, Timestamp, wire,
};

use super::LIFE_MAX;
use crate::stores::redis::Rank;

const MAGIC: &[u8; 2] = b"SC";
const VERSION: u8 = 1;
const FIELDS_LEN: usize = 2 + 1 + 1 + 8 + 8 + 8 + AttemptId::LEN + Fingerprint::LEN;
const MAC_LEN: usize = 32;

/// What the MAC is for.
const PURPOSE: &str = "cache entry";

/// What is known of a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    fence: Fence,
    /// From when on it counts no more, whenever it was put there.
    dies_at: Timestamp,
    fingerprint: Fingerprint,
    what: What,
}

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one of these at a time")]
enum What {
    Running { attempt_id: AttemptId, lease_until: Timestamp },
    Done { answer: Answer, expires_at: Timestamp },
}

/// That an entry counts no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) rank: Rank,
    pub(super) fence: Fence,
}

/// What is under a key.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one of these at a time")]
pub(super) enum Found {
    Entry(Entry),
    /// The durable store is to be asked.
    Mark,
}

impl Entry {
    /// Somebody runs since `since`, or later.
    pub(super) fn running(lease: &Lease, fingerprint: Fingerprint, since: Timestamp) -> Self {
        let lease_until = since + lease.length;
        Self {
            fence: lease.fence,
            dies_at: lease_until.min(since + LIFE_MAX),
            fingerprint,
            what: What::Running { attempt_id: lease.attempt_id, lease_until },
        }
    }

    /// The answer that was recorded, and that the durable store still had at `since` or later.
    pub(super) fn done(replay: Replay, fingerprint: Fingerprint, since: Timestamp) -> Self {
        let Replay { answer, expires_at } = replay;
        Self {
            // It is final: which claim it came from makes no difference.
            fence: Fence::FIRST,
            dies_at: expires_at.min(since + LIFE_MAX),
            fingerprint,
            what: What::Done { answer, expires_at },
        }
    }

    pub(super) fn rank(&self) -> Rank {
        match self.what {
            What::Running { .. } => Rank::Running,
            What::Done { .. } => Rank::Done,
        }
    }

    pub(super) fn fence(&self) -> Fence {
        self.fence
    }

    /// How long it has to live, if it is `now` at the earliest.
    pub(super) fn lives(&self, now: Timestamp) -> Duration {
        self.dies_at.since(now)
    }

    /// What core's rules make of it, if it is `now` at the latest and they come to something that the
    /// durable store would say too. Whatever changes a record is that store's, and so is what only a
    /// record without an answer could tell: it may be gone.
    pub(super) fn settles(self, ask: &Ask, now: Timestamp) -> Option<Claimed> {
        if now >= self.dies_at {
            return None;
        }
        let first = Record::first(ask, now);
        let (fingerprint, fence, rank) = (self.fingerprint, self.fence, self.rank());
        let record: Record = match self.what {
            What::Running { attempt_id, lease_until } => {
                let state = State::Claimed { lease_until };
                Record { fingerprint, fence, attempt_id, state, ..first }
            }
            What::Done { answer, expires_at } => {
                let state = State::Completed { at: now, answer };
                Record { fingerprint, fence, expires_at, state, ..first }
            }
        };
        match (selfsame_core::claim(Some(&record), ask, now).0, rank) {
            (claimed @ (Claimed::Replay(_) | Claimed::Busy { .. }), _) => Some(claimed),
            (Claimed::Reused, Rank::Done) => Some(Claimed::Reused),
            _ => None,
        }
    }

    /// The value of it.
    pub(super) fn write(&self, id: &RecordId, secret: &Secret) -> Vec<u8> {
        let (at, attempt_id, frame) = match &self.what {
            What::Running { attempt_id, lease_until } => {
                (*lease_until, *attempt_id.as_bytes(), Vec::new())
            }
            What::Done { answer, expires_at } => {
                (*expires_at, NOBODY, wire::encode_answer(id, answer))
            }
        };
        let fields = Fields {
            rank: self.rank(),
            fence: self.fence,
            dies_at: self.dies_at,
            at,
            attempt_id,
            fingerprint: self.fingerprint.to_bytes(),
        };
        fields.write(id, &frame, secret)
    }
}

impl Mark {
    /// The value of it.
    pub(super) fn write(self, id: &RecordId, secret: &Secret) -> Vec<u8> {
        let fields = Fields {
            rank: self.rank,
            fence: self.fence,
            dies_at: Timestamp::default(),
            at: Timestamp::default(),
            attempt_id: NOBODY,
            fingerprint: [0; Fingerprint::LEN],
        };
        fields.write(id, &[], secret)
    }
}

/// The attempt id of what nobody runs.
const NOBODY: [u8; AttemptId::LEN] = [0; AttemptId::LEN];

struct Fields {
    rank: Rank,
    fence: Fence,
    dies_at: Timestamp,
    at: Timestamp,
    attempt_id: [u8; AttemptId::LEN],
    fingerprint: [u8; Fingerprint::LEN],
}

impl Fields {
    fn write(&self, id: &RecordId, frame: &[u8], secret: &Secret) -> Vec<u8> {
        let mut value = Vec::with_capacity(FIELDS_LEN + MAC_LEN + frame.len());
        value.extend_from_slice(MAGIC);
        value.extend_from_slice(&[VERSION, self.rank as u8]);
        value.extend_from_slice(&self.fence.number().to_be_bytes());
        for time in [self.dies_at, self.at] {
            value.extend_from_slice(&time.as_millis().to_be_bytes());
        }
        value.extend_from_slice(&self.attempt_id);
        value.extend_from_slice(&self.fingerprint);
        let mac = secret.tag(PURPOSE, &[id.as_bytes(), &value, frame]);
        value.extend_from_slice(&mac);
        value.extend_from_slice(frame);
        value
    }
}

/// What a value under the key of `id` says.
pub(super) fn read(id: &RecordId, value: &[u8], secret: &Secret) -> Result<Found, &'static str> {
    let (fields, rest) = value.split_at_checked(FIELDS_LEN).ok_or("it is cut off")?;
    let (mac, frame) = rest.split_first_chunk::<MAC_LEN>().ok_or("it is cut off")?;
    if !secret.is_tag(PURPOSE, &[id.as_bytes(), fields, frame], mac) {
        return Err("it is damaged, or somebody else's");
    }
    let mut bytes = Bytes(fields);
    if bytes.take() != *MAGIC || bytes.take() != [VERSION] {
        return Err("it has a layout that this build does not know");
    }
    let [rank] = bytes.take();
    let fence = Fence::from_number(bytes.number());
    let dies_at = Timestamp::from_millis(bytes.number());
    let at = Timestamp::from_millis(bytes.number());
    let attempt_id = AttemptId::from_bytes(bytes.take());
    let fingerprint = Fingerprint::from_bytes(bytes.take());
    let what = match rank {
        _ if rank == Rank::Running as u8 => What::Running { attempt_id, lease_until: at },
        _ if rank == Rank::Done as u8 => {
            let answer = wire::decode_answer(id, frame).map_err(|_| "its answer is damaged")?;
            What::Done { answer, expires_at: at }
        }
        _ => return Ok(Found::Mark),
    };
    Ok(Found::Entry(Entry { fence, dies_at, fingerprint, what }))
}

/// Fields in their order; they are as long as they must be.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the fields are of one length");
        self.0 = rest;
        *field
    }

    fn number(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}
