//! SIGTERM and SIGINT: stop accepting, let running work end.

use std::time::Duration;

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::background;

/// The shutdown that signals ask for, in two steps.
#[derive(Clone, Default)]
pub(crate) struct Shutdown {
    /// Cancelled by the first signal: the gateway is not ready any more.
    pub(crate) announced: CancellationToken,
    /// Cancelled by the second: nobody waits any longer for others to notice.
    hurried: CancellationToken,
}

impl Shutdown {
    /// Listens for SIGTERM and SIGINT.
    pub(crate) fn on_signal() -> Result<Self> {
        let shutdown = Self::default();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let Self { announced, hurried } = shutdown.clone();
        background::spawn(async move {
            for token in [announced, hurried] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                token.cancel();
            }
        });
        Ok(shutdown)
    }

    /// Waits for the first signal and then for `delay`, or for a second signal.
    pub(crate) async fn begun(&self, delay: impl Fn() -> Duration) {
        self.announced.cancelled().await;
        let delay = delay();
        if !delay.is_zero() {
            let seconds = delay.as_secs_f64();
            tracing::info!(seconds, "told to stop: requests are taken until the delay is over");
            let _hurried = tokio::time::timeout(delay, self.hurried.cancelled()).await;
        }
        tracing::info!("told to stop: draining");
    }
}
