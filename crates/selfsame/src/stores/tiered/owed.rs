//! [`Owed`]: what the cache must still be told once it is there again.

use std::collections::HashMap;

use parking_lot::Mutex;
use selfsame_core::RecordId;
use tokio::time::Instant;

use super::LIFE_MAX;
use super::entry::Mark;

/// How many marks may be owed. One more is left to the entry's own end.
const OWED_MAX: usize = 64 * 1024;

/// Marks that the cache has not got yet, each until the entry that it is about is dead by itself.
#[derive(Default)]
pub(super) struct Owed(Mutex<HashMap<RecordId, (Mark, Instant)>>);

impl Owed {
    /// The cache is to be told. Of two marks of one record the one that says more stays.
    pub(super) fn add(&self, id: RecordId, mark: Mark) {
        let now = Instant::now();
        let mut owed = self.0.lock();
        if owed.len() >= OWED_MAX {
            owed.retain(|_, (_, until)| *until > now);
        }
        let says_more = |owed: &Mark| (owed.rank, owed.fence) > (mark.rank, mark.fence);
        if owed.len() >= OWED_MAX || owed.get(&id).is_some_and(|(owed, _)| says_more(owed)) {
            return;
        }
        owed.insert(id, (mark, now + LIFE_MAX));
    }

    /// Takes some of them, that are of use still, to be told.
    pub(super) fn take(&self, most: usize) -> Vec<(RecordId, Mark)> {
        let now = Instant::now();
        let mut owed = self.0.lock();
        owed.retain(|_, (_, until)| *until > now);
        let ids: Vec<_> = owed.keys().take(most).copied().collect();
        let taken = ids.into_iter().filter_map(|id| Some((id, owed.remove(&id)?.0)));
        taken.collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
