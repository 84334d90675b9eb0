//! The reaper: takes away what expired and buries what is only remembered, in small steps, and
//! counts what is there.

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, gauge};
use selfsame_core::{Count, FullStore, StoreError};
use tokio_util::sync::CancellationToken;

/// How many records one step looks at.
const STEP: usize = 1000;
/// The pause between steps while there is something to walk through.
const STEP_PAUSE: Duration = Duration::from_millis(20);
/// The pause between walks through the whole store.
const WALK_PAUSE: Duration = Duration::from_secs(30);

/// Walks through the store again and again until `stop`.
pub(crate) async fn run(store: Arc<dyn FullStore>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Err(error) = walk(&*store, &stop).await {
            tracing::warn!(%error, "the reaper could not clean");
        }
        tokio::select! {
            () = tokio::time::sleep(WALK_PAUSE) => {}
            () = stop.cancelled() => {}
        }
    }
}

async fn walk(store: &dyn FullStore, stop: &CancellationToken) -> Result<(), StoreError> {
    let (mut removed, mut buried, mut held) = (0, 0, 0);
    while !stop.is_cancelled() {
        let swept = store.sweep(STEP).await?;
        counter!("selfsame_reaped_total").increment(swept.removed as u64);
        counter!("selfsame_buried_total").increment(swept.buried as u64);
        removed += swept.removed;
        buried += swept.buried;
        held += swept.held;
        if swept.finished {
            break;
        }
        tokio::time::sleep(STEP_PAUSE).await;
    }
    if removed + buried + held > 0 {
        tracing::info!(removed, buried, held, "the reaper removed, buried and held records");
    }
    show(store.count().await?);
    Ok(())
}

fn show(count: Count) {
    let Count { claimed, completed, failed, held, tombstone } = count;
    let states = [
        ("claimed", claimed),
        ("completed", completed),
        ("failed", failed),
        ("held", held),
        ("tombstone", tombstone),
    ];
    for (state, number) in states {
        gauge!("selfsame_records", "state" => state).set(number as f64);
    }
}
