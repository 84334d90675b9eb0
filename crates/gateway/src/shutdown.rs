//! SIGTERM and SIGINT: stop accepting, let running work end.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::background;

/// A token that is cancelled by the first SIGTERM or SIGINT.
pub(crate) fn on_signal() -> Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = stop.clone();
    background::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop: draining");
        token.cancel();
    });
    Ok(stop)
}
