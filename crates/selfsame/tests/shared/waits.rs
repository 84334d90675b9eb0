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
/// Number of tries of which the soonest counts: a busy machine may delay one.
/// Without a bell all are late.
const TRIES: usize = 3;

fn waiting() -> Policy {
    Policy::new().on_conflict(OnConflict::Wait).wait_max(Duration::from_secs(20))
}

pub(crate) async fn node(store: impl FullStore) -> Idempotency {
    Idempotency::open(Arc::new(store)).await.expect("the store works")
}

fn key(text: &str) -> Key {
    Key::parse(text.as_bytes()).expect("a key")
}

/// The gate of some calls: a permit for each whose work has begun, and one for each that may end.
pub(crate) struct Gate {
    pub(crate) begun: Semaphore,
    pub(crate) open: Semaphore,
}

impl Gate {
    /// A gate that lets so many pass.
    pub(crate) fn for_so_many(count: usize) -> Arc<Self> {
        Arc::new(Self { begun: Semaphore::new(0), open: Semaphore::new(count) })
    }

    /// Waits until so many have begun: their claims are stored.
    pub(crate) async fn until_begun(&self, count: u32) {
        self.begun.acquire_many(count).await.expect("never closed").forget();
    }
}

/// A call on `node` that, if it runs, ends with `outcome` once the `gate` lets it pass; and when
/// its caller was told.
pub(crate) async fn call(
    node: &Idempotency,
    text: &str,
    gate: &Arc<Gate>,
    outcome: Result<&'static str, &'static str>,
) -> (Result<String, OnceError<&'static str>>, Instant) {
    let at_gate = gate.clone();
    let work = move |_| async move {
        at_gate.begun.add_permits(1);
        at_gate.open.acquire().await.expect("never closed").forget();
        outcome.map(str::to_owned)
    };
    let told = node.once("charge", key(text)).policy(waiting()).run(work).await;
    let at = Instant::now();
    // Nobody waits for ever for one that failed before its work began.
    gate.begun.add_permits(1);
    (told, at)
}

/// What the caller on the first node was told, what the one on the second was, and how long after
/// the first.
type Ended =
    (Result<String, OnceError<&'static str>>, Result<String, OnceError<&'static str>>, Duration);

/// Two nodes, one of which runs a key and ends so while the other waits.
pub(crate) async fn ended_elsewhere(
    first: &Idempotency,
    second: &Idempotency,
    outcome: Result<&'static str, &'static str>,
) -> Ended {
    ended_within(SOON, first, second, outcome).await
}

/// The same, tried again with another key where all was right, but not within `limit`.
pub(crate) async fn ended_within(
    limit: Duration,
    first: &Idempotency,
    second: &Idempotency,
    outcome: Result<&'static str, &'static str>,
) -> Ended {
    let mut tries = 1;
    loop {
        let ended = end_one(first, second, &format!("k-{tries}"), outcome).await;
        let (runs, waits, later) = &ended;
        let is_right = runs.as_deref().ok() == outcome.ok()
            && waits.as_deref().ok() == Some(outcome.unwrap_or(BY_THE_SECOND));
        if *later < limit || !is_right || tries == TRIES {
            return ended;
        }
        tries += 1;
    }
}

/// What a waiter on the second node ends with, if it runs.
const BY_THE_SECOND: &str = "by the second";

async fn end_one(
    first: &Idempotency,
    second: &Idempotency,
    text: &str,
    outcome: Result<&'static str, &'static str>,
) -> Ended {
    let (gate, open) = (Gate::for_so_many(0), Gate::for_so_many(1));
    let waits = async {
        gate.until_begun(1).await;
        let ends = async {
            sleep(BETWEEN_LOOKS).await;
            gate.open.add_permits(1);
        };
        join(call(second, text, &open, Ok(BY_THE_SECOND)), ends).await
    };
    let (runs, (waits, ())) = join(call(first, text, &gate, outcome), waits).await;
    (runs.0, waits.0, waits.1.saturating_duration_since(runs.1))
}
