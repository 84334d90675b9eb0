//! The one home of background tasks.

use std::future::Future;
use std::thread;
#[cfg(any(feature = "postgres", feature = "redis"))]
use std::time::Duration;

use tokio::runtime::{self, Handle};

#[cfg(any(feature = "postgres", feature = "redis"))]
const FIRST_PAUSE: Duration = Duration::from_millis(100);
#[cfg(any(feature = "postgres", feature = "redis"))]
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Starts a task that no request owns. Outside a runtime it gets a thread of its own.
#[expect(clippy::disallowed_methods, reason = "this is the one home of background tasks")]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    if Handle::try_current().is_ok() {
        tokio::spawn(task);
        return;
    }
    let started = thread::Builder::new().name("selfsame-background".into()).spawn(|| {
        match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(task),
            Err(error) => tracing::error!(%error, "a background task has no runtime"),
        }
    });
    if let Err(error) = started {
        tracing::error!(%error, "a background task has no thread");
    }
}

/// Pauses that double, up to a limit.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) struct Backoff {
    next: Duration,
}

#[cfg(any(feature = "postgres", feature = "redis"))]
impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST_PAUSE }
    }

    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }
}
