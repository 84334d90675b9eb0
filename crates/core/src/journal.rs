//! [`Phase`]: a finished part of a run's work, as a journal keeps it for the runs after.

use bytes::Bytes;

use crate::{Birth, RecordId};

/// A finished phase of a run. It belongs to one life of its key: once the key is new again, nothing
/// finds it any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// The record whose work it is part of.
    pub id: RecordId,
    /// The life of that record.
    pub birth: Birth,
    /// Which phase it is, counted from 1.
    pub ordinal: u32,
    /// Its name in the code.
    pub name: String,
    /// What it gave, for a run that finds it finished.
    pub output: Bytes,
}

impl Phase {
    /// The most bytes a phase's output may have.
    pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
    /// The most bytes a phase's name may have.
    pub const NAME_BYTES_MAX: usize = 255;
    /// The most phases a run may have.
    pub const COUNT_MAX: u32 = 256;
}
