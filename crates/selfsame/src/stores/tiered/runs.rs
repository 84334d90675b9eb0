//! [`Runs`]: what is known of the claims of this process until they end.

use std::collections::HashMap;

use parking_lot::Mutex;
use selfsame_core::{AttemptId, Fingerprint};

/// How many are known, twice over. Those that never end make room by their age.
const RUNS_MAX: usize = 32 * 1024;

/// A run of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) fingerprint: Fingerprint,
    /// Whether the cache may know that it runs.
    pub(super) is_told: bool,
}

/// The runs of this process. A lease does not tell which request it is for.
#[derive(Default)]
pub(super) struct Runs(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    new: HashMap<AttemptId, Run>,
    old: HashMap<AttemptId, Run>,
}

impl Runs {
    pub(super) fn begin(&self, attempt_id: AttemptId, run: Run) {
        let mut known = self.0.lock();
        if known.new.len() >= RUNS_MAX {
            known.old = std::mem::take(&mut known.new);
        }
        known.new.insert(attempt_id, run);
    }

    pub(super) fn get(&self, attempt_id: &AttemptId) -> Option<Run> {
        let known = self.0.lock();
        known.new.get(attempt_id).or_else(|| known.old.get(attempt_id)).copied()
    }

    pub(super) fn end(&self, attempt_id: &AttemptId) {
        let mut known = self.0.lock();
        // Both: it may have begun twice, when its first acknowledgement was lost.
        known.new.remove(attempt_id);
        known.old.remove(attempt_id);
    }
}
