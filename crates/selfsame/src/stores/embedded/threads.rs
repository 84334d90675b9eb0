//! [`Threads`]: awaited when dropped.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Threads that come to an end by themselves, and are awaited when this is dropped.
#[derive(Default)]
pub(super) struct Threads {
    running: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(super) fn start(
        &mut self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        self.running.push(Builder::new().name(name.to_owned()).spawn(run)?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for thread in self.running.drain(..) {
            // One that panicked has said so, and its callers have heard that it is gone.
            let _ = thread.join();
        }
    }
}
