//! What is left of a record that a person has had erased.

use super::{Record, State};
use crate::Timestamp;

/// What came of an erasure.
#[must_use = "a key that runs is not erased"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erased {
    /// Its answer and its checkpoint are gone, and its key is refused as used.
    Done,
    /// Somebody runs: nothing was changed.
    Running,
    /// There is no such record.
    Missing,
}

impl<A> Record<A> {
    /// Takes away what it keeps and leaves a tombstone, for as long as the key would have lived: what
    /// was done is not done again. Once more, it changes nothing.
    pub fn erase(&mut self, now: Timestamp) -> Erased {
        match self.state {
            State::Claimed { .. } if self.is_leased(now) => return Erased::Running,
            State::Completed { .. } | State::Tombstone => {}
            // Whoever erases what has no outcome yet decides about it: no retry runs.
            State::Claimed { .. } | State::Failed | State::Held { .. } => {
                self.keep_after_outcome(now);
            }
        }
        self.state = State::Tombstone;
        self.checkpoint = None;
        self.keepsake = None;
        Erased::Done
    }
}
