//! [`Renewals`]: keeps the leases of this process' runs alive, on a thread of its own.
//!
//! Neither a handler that blocks its thread nor a runtime that is busy delays a renewal. What is due is
//! renewed together; what failed is tried again about every second, for as long as its run goes on.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use selfsame_core::{
    Claim, Fenced, Fingerprint, Lease, Started, Store, StoreError, StoreErrorKind,
};
use tokio::runtime::Builder;
use tokio::time::{Instant, timeout};

use crate::running::{Alive, CALL_TIMEOUT, Running};
use crate::telemetry;

/// Limit of leases that are renewed by one call.
const BATCH_MAX: usize = 500;
/// Limit of calls at the same time.
const CALLS_MAX: usize = 32;

/// Keeps the leases of this process' runs alive.
pub(crate) struct Renewals {
    store: Arc<dyn Store>,
    running: Arc<Running>,
    is_started: AtomicBool,
}

impl Renewals {
    /// Renews what is listed in `running`. Nothing is started before the first run.
    pub(crate) fn new(store: Arc<dyn Store>, running: Arc<Running>) -> Arc<Self> {
        Arc::new(Self { store, running, is_started: AtomicBool::new(false) })
    }

    /// Keeps `claim` alive until what this returns is dropped. The run begins `now`.
    pub(crate) fn begin<'a>(
        self: &'a Arc<Self>,
        claim: &'a Claim<Started>,
        fingerprint: Fingerprint,
        now: Instant,
    ) -> Alive<'a> {
        let (alive, is_next) = self.running.begin(&claim.grant().lease, fingerprint, now);
        if is_next && !self.is_started.swap(true, Ordering::Relaxed) {
            self.start();
        }
        alive
    }

    /// Keeps the lease of a run that ends alive until the store has its answer.
    pub(crate) fn answered(&self, lease: &Lease) {
        self.running.answered(lease);
    }

    /// Lets a run go on under a lease that was granted beside it; see [`Running::adopt`].
    pub(crate) fn adopt(&self, lease: &Lease) -> bool {
        self.running.adopt(lease, Instant::now())
    }

    /// The lease that a run has now, which began with `lease`.
    pub(crate) fn current(&self, lease: &Lease) -> Lease {
        self.running.current(lease)
    }

    fn start(self: &Arc<Self>) {
        let (renewals, running) = (Arc::downgrade(self), self.running.clone());
        let run = move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(keep_alive(&renewals, &running)),
            Err(error) => failed(&renewals, &error),
        };
        if let Err(error) = thread::Builder::new().name("selfsame-renew".to_owned()).spawn(run) {
            failed(&Arc::downgrade(self), &error);
        }
    }

    /// Renews these leases, and takes note of what came of them.
    async fn renew(self: Arc<Self>, leases: Vec<Lease>) {
        let sent = Instant::now();
        let call = AssertUnwindSafe(self.store.renew_all(&leases)).catch_unwind();
        let outcomes = match timeout(CALL_TIMEOUT, call).await {
            Ok(Ok(outcomes)) => outcomes,
            Ok(Err(_)) => failures(&leases, "the store panicked at a renewal"),
            Err(_) => failures(&leases, "the store did not answer a renewal"),
        };
        let now = Instant::now();
        for (lease, outcome) in leases.iter().zip(&outcomes) {
            if self.running.renewed(lease, outcome, (sent, now)) {
                telemetry::fenced_write();
                tracing::warn!(record = lease.id.short(), "a run has lost its claim");
            }
        }
        let mut errors = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        if let Some(error) = errors.next() {
            let failed = 1 + errors.count();
            tracing::warn!(%error, failed, "leases could not be renewed; they are tried again");
        }
    }
}

impl Drop for Renewals {
    fn drop(&mut self) {
        // Its thread ends.
        self.running.wake();
    }
}

/// Renews leases until nobody can begin another run. The store is not held while nothing is due.
async fn keep_alive(renewals: &Weak<Renewals>, running: &Running) {
    let mut calls = FuturesUnordered::new();
    while let Some(renewals) = renewals.upgrade() {
        // A call that the store leaves unanswered for a while delays no other.
        let most = BATCH_MAX * (CALLS_MAX - calls.len());
        for leases in running.take_due(Instant::now(), most).chunks(BATCH_MAX) {
            calls.push(renewals.clone().renew(leases.to_vec()));
        }
        drop(renewals);
        if calls.len() == CALLS_MAX {
            calls.next().await;
            continue;
        }
        tokio::select! {
            Some(()) = calls.next() => {}
            () = running.until_due() => {}
        }
    }
}

/// Another run tries to start the thread again.
fn failed(renewals: &Weak<Renewals>, error: &std::io::Error) {
    tracing::error!(%error, "the thread that renews leases could not be started");
    if let Some(renewals) = renewals.upgrade() {
        renewals.is_started.store(false, Ordering::Relaxed);
        renewals.running.forget_next_look();
    }
}

fn failures(leases: &[Lease], message: &str) -> Vec<Result<Fenced, StoreError>> {
    let failure = |_| Err(StoreError::new(StoreErrorKind::MayHaveLanded, message));
    leases.iter().map(failure).collect()
}
