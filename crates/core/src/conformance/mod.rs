//! The laws every store obeys, to be stamped out over a store by its author.
//!
//! A [`Bench`] opens the store under test and moves its clock. [`conformance_laws!`] makes one
//! test of each law, in a module that bears the store's name, so that a failure names both:
//!
//! ```text
//! selfsame_core::conformance_laws! { mod memory: MemoryBench::new }
//! selfsame_core::conformance_laws! { durable mod embedded: EmbeddedBench::new }
//! ```
//!
//! Each law runs under several seeds. A seed decides where pauses fall: around every call of the
//! store, and between the polls of every task, so that a store which lets go in the middle of a
//! call meets its rivals there. What this cannot find is a store that takes its lock twice
//! without an await in between: that one lock serves one call is for a reader to check.
//!
//! [`conformance_laws!`]: crate::conformance_laws

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::pauses::Pauses;
use crate::FullStore;

mod clock;
mod list;
mod pauses;
mod pausing;
pub mod samples;
mod trial;

pub mod birth;
pub mod claim;
pub mod erase;
pub mod expiry;
pub mod facts;
pub mod fence;
pub mod inspect;
pub mod keepsake;
pub mod mismatch;
pub mod recover;
pub mod release;
pub mod replay;
pub mod resolve;
pub mod restart;
pub mod sweep;
pub mod tombstone;

pub use clock::SettableClock;
pub use trial::Trial;

/// What the author of a store supplies: a store with no records yet, and its time.
#[async_trait]
pub trait Bench: Send + Sync + 'static {
    /// A handle on the data of this bench. Called again after the last handle was dropped, it is
    /// a restart of the process: a durable store finds everything as it was, leases included.
    async fn open(&self) -> Arc<dyn FullStore>;

    /// Whether the store promises to keep its records over a restart.
    fn is_durable(&self) -> bool;

    /// Lets the store's clock go forward by `time`. Where it also goes by itself, the laws bear
    /// with a few seconds more.
    async fn pass(&self, time: Duration);
}

/// A law, by name.
#[derive(Clone, Copy)]
pub struct Law {
    /// The sentence it is.
    pub name: &'static str,
    run: fn(Trial) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The laws of every store.
pub const LAWS: &[Law] = crate::each_law!(law_table {});

/// The laws of stores that promise to keep their records over a restart.
pub const RESTART_LAWS: &[Law] = crate::each_restart_law!(law_table {});

const SEEDS: std::ops::Range<u64> = 0..8;

/// A law that takes longer, under one seed, hangs.
const LAW_TIME_MAX: Duration = Duration::from_secs(60);

/// Runs one law over fresh benches, under every seed.
///
/// # Panics
///
/// If the store does not obey.
pub async fn check<B, L>(bench: impl Fn() -> B, law: impl Fn(Trial) -> L)
where
    B: Bench,
    L: Future<Output = ()> + Send + 'static,
{
    if let Some(seed) = breaking_seed(&bench, law).await {
        panic!("the law is broken under seed {seed}");
    }
}

/// Runs all laws over fresh benches, and names those the store does not obey.
pub async fn broken_laws<B: Bench>(bench: impl Fn() -> B) -> Vec<&'static str> {
    let restart: &[Law] = if bench().is_durable() { RESTART_LAWS } else { &[] };
    let mut broken = Vec::new();
    for law in LAWS.iter().chain(restart) {
        if breaking_seed(&bench, law.run).await.is_some() {
            broken.push(law.name);
        }
    }
    broken
}

async fn breaking_seed<B, L>(bench: impl Fn() -> B, law: impl Fn(Trial) -> L) -> Option<u64>
where
    B: Bench,
    L: Future<Output = ()> + Send + 'static,
{
    for seed in SEEDS {
        let pauses = Pauses::new(seed);
        let trial = Trial::begin(Arc::new(bench()), pauses.clone()).await;
        // On a task of its own, so that one law's panic does not end the others.
        let task = pauses.spawn(law(trial));
        if !matches!(tokio::time::timeout(LAW_TIME_MAX, task).await, Ok(Ok(()))) {
            return Some(seed);
        }
    }
    None
}
