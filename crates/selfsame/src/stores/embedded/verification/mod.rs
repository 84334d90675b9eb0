//! Verification: all that the records need is read, and its checksums are checked.
//!
//! A folder that nobody serves is verified as a whole, and nothing in it is changed ([`folder`]). A
//! store that is open is verified a piece at a time, beside all else ([`pass`]).
//!
//! Payloads of frames that no record needs any more may not fit their checksums: erasure overwrites
//! them. So a frame counts as damaged only where the index says that a record needs it. Records that
//! have expired are needed by nobody.

mod folder;
mod pass;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use selfsame_core::{RecordId, Timestamp};

use super::index::Entry;

pub(super) use folder::verify;
pub use pass::{VerificationPass, VerifiedPiece};

/// Damaged places that are told one by one.
const TOLD_MAX: usize = 10_000;

/// Result of the verification of a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Records that have not expired.
    pub records: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Damaged places, as far as they are told one by one.
    pub damage: Vec<DamagedPlace>,
    /// Number of all damaged places.
    pub damaged_places: u64,
}

/// A place in a file that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedPlace {
    /// The file.
    pub path: PathBuf,
    /// Where the place begins in it; none where the whole file is meant.
    pub offset: Option<u64>,
    /// Length of the place, as far as it is known.
    pub(super) len: u64,
    /// The record, where it is known.
    pub record: Option<RecordId>,
    /// Description of the damage.
    pub what: String,
}

impl DamagedPlace {
    pub(super) fn file(path: PathBuf, what: impl Into<String>) -> Self {
        Self { path, offset: None, len: 0, record: None, what: what.into() }
    }
}

impl fmt::Display for DamagedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        if let Some(record) = &self.record {
            write!(f, ", record {}", record.short())?;
        }
        write!(f, ": {}", self.what)
    }
}

impl Verified {
    fn add(&mut self, place: DamagedPlace) {
        self.damaged_places += 1;
        if self.damage.len() < TOLD_MAX {
            self.damage.push(place);
        }
    }

    /// Whether everything is what was written.
    pub fn is_sound(&self) -> bool {
        self.damaged_places == 0
    }

    /// Damaged records, as far as they are known.
    pub fn damaged_records(&self) -> usize {
        self.damage.iter().filter_map(|place| place.record).collect::<BTreeSet<_>>().len()
    }
}

/// Whether nobody needs the record any more, damaged or not.
fn is_expired(entry: &Entry, now: Timestamp) -> bool {
    !entry.is_damaged && entry.marks.leaves_at_once() && entry.marks.settled_until <= now
}
