//! The one home of background tasks: giving keys back, and landing answers late.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use selfsame_core::{Ask, Claimed, Lease, Release, Releaser, Store, StoreError};
use tokio::sync::mpsc;

/// How many keys may wait to be given back; one more is left to its lease.
const GIVE_BACK_MAX: usize = 4096;
/// How often a key is tried to be given back before it is left to its lease.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Starts a task that no request owns.
#[expect(clippy::disallowed_methods, reason = "this is the one home of background tasks")]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

/// Where keys are handed in whose work provably never began.
pub(crate) struct GiveBack {
    queue: mpsc::Sender<Unrun>,
}

enum Unrun {
    Leased(Lease),
    /// The claim may have landed without our hearing of it.
    Asked(Box<Ask>),
}

impl GiveBack {
    /// Gives back the claim behind `ask`, should it turn out to have landed.
    pub(crate) fn unheard(&self, ask: Ask) {
        self.hand_in(Unrun::Asked(Box::new(ask)));
    }

    fn hand_in(&self, unrun: Unrun) {
        if self.queue.try_send(unrun).is_err() {
            tracing::warn!("too many keys wait to be given back: one is left to its lease");
        }
    }
}

impl Releaser for GiveBack {
    fn give_back(&self, lease: Lease) {
        self.hand_in(Unrun::Leased(lease));
    }
}

/// The task that gives keys back; it ends with the last [`GiveBack`].
pub(crate) fn releaser(store: Arc<dyn Store>) -> GiveBack {
    let (queue, mut unrun) = mpsc::channel(GIVE_BACK_MAX);
    spawn(async move {
        while let Some(unrun) = unrun.recv().await {
            let mut pause = Backoff::new();
            for _ in 0..TRIES {
                match give_back(&*store, &unrun).await {
                    Ok(()) => break,
                    Err(error) => tracing::warn!(%error, "a key could not be given back yet"),
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
