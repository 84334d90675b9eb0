//! The one home of background tasks: giving keys back, and landing answers late.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use selfsame_core::{Ask, Claimed, Lease, Release, Releaser, Store, StoreError};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How many keys may wait to be given back; one more is left to its lease.
const GIVE_BACK_MAX: usize = 4096;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Starts a task that no request owns.
#[expect(clippy::disallowed_methods, reason = "this is the one home of background tasks")]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

/// Where keys are handed in whose work provably never began.
pub(crate) struct GiveBack {
    queue: mpsc::Sender<(Unrun, Option<Instant>)>,
}

enum Unrun {
    Leased(Lease),
    /// The claim may have landed without our hearing of it.
    Asked(Box<Ask>),
}

impl GiveBack {
    /// Gives back the claim behind `ask`, should it turn out to have landed.
    pub(crate) fn unheard(&self, ask: Ask) {
        let lease = ask.lease;
        self.hand_in(Unrun::Asked(Box::new(ask)), lease);
    }

    /// It is tried until the lease is over by itself.
    fn hand_in(&self, unrun: Unrun, lease: Duration) {
        if self.queue.try_send((unrun, Instant::now().checked_add(lease))).is_err() {
            tracing::warn!("too many keys wait to be given back: one is left to its lease");
        }
    }
}

impl Releaser for GiveBack {
    fn give_back(&self, lease: Lease) {
        self.hand_in(Unrun::Leased(lease), lease.length);
    }
}

/// The task that gives keys back; it ends with the last [`GiveBack`].
pub(crate) fn releaser(store: Arc<dyn Store>) -> GiveBack {
    let (queue, mut unrun) = mpsc::channel::<(Unrun, Option<Instant>)>(GIVE_BACK_MAX);
    spawn(async move {
        // One after the other: a store that cannot take one key back takes no other.
        while let Some((unrun, until)) = unrun.recv().await {
            let mut pause = Backoff::new();
            while let Err(error) = give_back(&*store, &unrun).await {
                tracing::warn!(%error, "a key could not be given back yet");
                if error.is_damaged() || until.is_some_and(|until| Instant::now() >= until) {
                    break;
                }
                pause.wait().await;
            }
        }
    });
    GiveBack { queue }
}

async fn give_back(store: &dyn Store, unrun: &Unrun) -> Result<(), StoreError> {
    let lease = match unrun {
        Unrun::Leased(lease) => *lease,
        Unrun::Asked(ask) => match store.claim(ask).await? {
            Claimed::Run(grant) => grant.lease,
            _ => return Ok(()),
        },
    };
    // A lost lease is as good as one given back.
    store.release(&lease, Release::NeverRan).await.map(drop)
}

/// Pauses that double, up to a limit.
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST_PAUSE }
    }

    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }
}
