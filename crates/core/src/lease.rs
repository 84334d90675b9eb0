//! [`Lease`], [`Fence`], [`AttemptId`] and [`Birth`]: the right to run, and the proof that it is
//! still ours.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use crate::scope::hex;
use crate::{RecordId, Timestamp};

/// A number that grows with each claim of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The fence of a record's first claim.
    pub const FIRST: Self = Self(1);

    /// The fence a store kept.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number a store keeps.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The fence of the claim after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Random, one per claim. A reaped record's fence begins again at 1; its attempt id does not
/// come back, so the late owner of a reaped record still loses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptId([u8; AttemptId::LEN]);

impl AttemptId {
    /// How many bytes an attempt id has.
    pub const LEN: usize = 16;

    /// A new attempt id.
    pub fn random() -> Self {
        thread_local! {
            static POOL: RefCell<Pool> = const { RefCell::new(Pool { ids: [[0; AttemptId::LEN]; POOL_IDS], left: 0 }) };
        }
        POOL.with_borrow_mut(|pool| Self(pool.next()))
    }

    /// The attempt id a store kept.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes a store keeps.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

/// How many ids are asked of the system at once: each request to it costs as much as hashing does.
const POOL_IDS: usize = 64;

/// Random bytes that nobody has had yet.
struct Pool {
    ids: [[u8; AttemptId::LEN]; POOL_IDS],
    left: usize,
}

impl Pool {
    fn next(&mut self) -> [u8; AttemptId::LEN] {
        if self.left == 0 {
            getrandom::fill(self.ids.as_flattened_mut()).expect("the system has random bytes");
            self.left = POOL_IDS;
        }
        self.left -= 1;
        self.ids[self.left]
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}{:02x}…", self.0[0], self.0[1], self.0[2])
    }
}

/// Random, one per life of a key: the same through all its claims, another once the key is new
/// again. What is derived from it, such as a key for a call downstream, is the same for each
/// attempt at the same work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Birth(AttemptId);

impl Birth {
    /// How many bytes a birth has.
    pub const LEN: usize = AttemptId::LEN;

    /// The birth of a record whose first claim has this attempt id.
    pub fn by(first: AttemptId) -> Self {
        Self(first)
    }

    /// The birth a store kept.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(AttemptId::from_bytes(bytes))
    }

    /// The bytes a store keeps.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        self.0.as_bytes()
    }
}

/// The right to run, for a time. Every write after the claim shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The record it is for.
    pub id: RecordId,
    /// The fence of this claim.
    pub fence: Fence,
    /// The attempt id of this claim.
    pub attempt_id: AttemptId,
    /// How long it lives without renewal.
    pub length: Duration,
}

/// Whether an answer was recorded under a [`Lease`].
#[must_use = "a lost lease means that another claim decides now"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// The lease was good and the answer is durable; its key expires then.
    Until(Timestamp),
    /// Another claim, or nobody, holds the record now; nothing was changed.
    Lost,
}

/// Whether any other write under a [`Lease`] was made.
#[must_use = "a lost lease means that another claim decides now"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fenced {
    /// The lease was good and the write is durable.
    Applied,
    /// Another claim, or nobody, holds the record now; nothing was changed.
    Lost,
}
