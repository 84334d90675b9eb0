//! [`Load`]: how many calls a server has to answer.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many calls are under way to a server.
#[derive(Default)]
pub(super) struct Load {
    calls: AtomicUsize,
}

/// A call, until it is answered or given up.
pub(super) struct UnderWay<'a> {
    load: &'a Load,
}

impl Load {
    pub(super) fn begin(&self) -> UnderWay<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        UnderWay { load: self }
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.load.calls.fetch_sub(1, Ordering::Relaxed);
    }
}
