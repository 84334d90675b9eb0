//! [`Runs`]: what is known of the claims of this process until they end.

use std::collections::HashMap;

use parking_lot::Mutex;
use selfsame_core::AttemptId;

/// How many are known, twice over. Those that never end make room by their age.
const RUNS_MAX: usize = 32 * 1024;

/// The runs of this process. A lease does not tell which request it is for.
pub(super) struct Runs<T>(Mutex<Generations<T>>);

struct Generations<T> {
    new: HashMap<AttemptId, T>,
    old: HashMap<AttemptId, T>,
}

impl<T: Clone> Runs<T> {
    pub(super) fn begin(&self, attempt_id: AttemptId, run: T) {
        let mut known = self.0.lock();
        if known.new.len() >= RUNS_MAX {
            known.old = std::mem::take(&mut known.new);
        }
        known.new.insert(attempt_id, run);
    }

    pub(super) fn get(&self, attempt_id: &AttemptId) -> Option<T> {
        let known = self.0.lock();
        known.new.get(attempt_id).or_else(|| known.old.get(attempt_id)).cloned()
    }

    pub(super) fn end(&self, attempt_id: &AttemptId) {
        let mut known = self.0.lock();
        // Both: it may have begun twice, when its first acknowledgement was lost.
        known.new.remove(attempt_id);
        known.old.remove(attempt_id);
    }
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self(Mutex::new(Generations { new: HashMap::new(), old: HashMap::new() }))
    }
}
