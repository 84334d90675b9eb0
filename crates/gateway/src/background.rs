//! The one home of the gateway's tasks.

use std::future::Future;

use tokio::task::JoinHandle;

/// Starts a task beside the others.
#[expect(clippy::disallowed_methods, reason = "this is the one home of the gateway's tasks")]
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(task)
}
