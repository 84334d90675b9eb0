//! A gate that holds the upstream, or anything else, until the test opens it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::PATIENCE;

/// Shut until it is opened. Clones are the same gate.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    inner: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    pub(crate) fn shut() -> Self {
        Self::default()
    }

    pub(crate) fn open(&self) {
        let (is_open, opened) = &*self.inner;
        *is_open.lock().expect("no panic holds it") = true;
        opened.notify_all();
    }

    /// Waits until the gate is open; a test that forgets to open it does not hang for ever.
    pub(crate) fn pass(&self) {
        self.pass_within(PATIENCE);
    }

    /// The same, for so long.
    pub(crate) fn pass_within(&self, patience: Duration) {
        let (is_open, opened) = &*self.inner;
        let is_open = is_open.lock().expect("no panic holds it");
        let waited = opened.wait_timeout_while(is_open, patience, |is_open| !*is_open);
        drop(waited.expect("no panic holds it"));
    }
}
