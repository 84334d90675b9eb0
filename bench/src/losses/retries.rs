//! Retries: asks a store for every key again, and counts.

use std::time::Duration;

use anyhow::Result;
use selfsame_core::{Ask, Claimed, FullStore, State, StoreErrorKind};
use tokio::time::sleep;

use crate::store::work;

/// Number of a key that no caller uses.
const UNUSED: u64 = u64::MAX;

/// Numbers of the keys that a writer has used.
#[derive(Default)]
pub(super) struct Written {
    /// Keys whose answers were acknowledged.
    pub(super) recorded: Vec<u64>,
    /// Keys that were claimed, and whose work has not ended.
    pub(super) begun: Vec<u64>,
}

/// Counts of one process that was asked for all keys.
#[derive(Default)]
pub(super) struct Found {
    /// Recorded answers that are not known.
    pub(super) lost: usize,
    /// Recorded keys that ran again.
    pub(super) ran_again: usize,
    /// Keys under way that ran a second time.
    pub(super) ran_twice: usize,
    /// Whether new keys are refused because of a loss.
    pub(super) is_closed: bool,
}

/// Asks for all keys, as clients that retry at once.
pub(super) async fn ask_again(store: &dyn FullStore, written: &Written) -> Result<Found> {
    until_serving(store, &work::ask(written.recorded[0])).await?;
    let mut found = Found::default();
    for number in &written.begun {
        let claimed = store.claim(&work::ask(*number)).await;
        found.ran_twice += usize::from(matches!(claimed, Ok(Claimed::Run(_))));
    }
    for number in &written.recorded {
        let ask = work::ask(*number);
        let record = store.get(&ask.id).await?;
        let is_known = record.is_some_and(|it| matches!(it.state, State::Completed { .. }));
        found.lost += usize::from(!is_known);
        let claimed = store.claim(&ask).await;
        found.ran_again += usize::from(matches!(claimed, Ok(Claimed::Run(_))));
    }
    // Other errors are no notice: after a fail-over, `wait_replicas` finds no replica.
    let refused = store.claim(&work::ask(UNUSED)).await.err();
    found.is_closed = refused.is_some_and(|error| error.kind() == StoreErrorKind::RecordsLost);
    Ok(found)
}

/// Waits until the store can be read again.
async fn until_serving(store: &dyn FullStore, ask: &Ask) -> Result<()> {
    for _ in 0..50 {
        if store.get(&ask.id).await.is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(200)).await;
    }
    store.get(&ask.id).await?;
    Ok(())
}
