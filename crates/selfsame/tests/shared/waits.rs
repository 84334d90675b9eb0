//! Those who wait on one node for a run on another.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use selfsame::{Idempotency, Key, OnConflict, OnceError, Policy};
use selfsame_core::FullStore;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// Time at which a waiter looks by itself only 2.7 s later, or 0.9 s later if it hears no bell: it looks after 0.1,
/// 0.3, 0.7, 1.5 and 3.1 s, or each second from 1.5 s on.
const BETWEEN_LOOKS: Duration = Duration::from_millis(3600);
/// Limit within which a bell wakes a waiter, also on a busy machine. No look of its own is so soon.
pub(crate) const SOON: Duration = Duration::from_millis(750);

fn waiting() -> Policy {
    Policy::new().on_conflict(OnConflict::Wait).wait_max(Duration::from_secs(20))
}

pub(crate) async fn node(store: impl FullStore) -> Idempotency {
    Idempotency::open(Arc::new(store)).await.expect("the store works")
}

fn key(text: &str) -> Key {
    Key::parse(text.as_bytes()).expect("a key")
}

/// A call on `node` that, if it runs, ends with `outcome` once there is a `gate` for it; and when
/// its caller was told.
pub(crate) async fn call(
    node: &Idempotency,
    text: &str,
    gate: &Arc<Semaphore>,
    outcome: Result<&'static str, &'static str>,
) -> (Result<String, OnceError<&'static str>>, Instant) {
    let gate = gate.clone();
    let work = move |_| async move {
        gate.acquire().await.expect("never closed").forget();
        outcome.map(str::to_owned)
    };
    let told = node.once("charge", key(text)).policy(waiting()).run(work).await;
    (told, Instant::now())
}

/// Two nodes, one of which runs `k` and ends so while the other waits; what each was told, and how
/// long after the first the second was.
pub(crate) async fn ended_elsewhere(
    first: &Idempotency,
    second: &Idempotency,
    outcome: Result<&'static str, &'static str>,
) -> (Result<String, OnceError<&'static str>>, Result<String, OnceError<&'static str>>, Duration) {
    let (gate, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(1)));
    let waits = async {
        sleep(Duration::from_millis(100)).await;
        call(second, "k", &open, Ok("by the second")).await
    };
    let ends = async {
        sleep(Duration::from_millis(100) + BETWEEN_LOOKS).await;
        gate.add_permits(1);
    };
    let (runs, (waits, ())) = join(call(first, "k", &gate, outcome), join(waits, ends)).await;
    (runs.0, waits.0, waits.1.saturating_duration_since(runs.1))
}
