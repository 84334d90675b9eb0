//! Whether anyone has to wait while many records expire at once.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use selfsame::stores::EmbeddedOptions;
use selfsame_core::FullStore;
use tokio::task::JoinSet;

use super::{Keys, open, work};
use crate::figures::Latencies;
use crate::report::{Target, number};
use crate::timing::{AheadClock, Stopwatch};

/// As the gateway's reaper goes.
pub(crate) const STEP: usize = 1000;
const STEP_PAUSE: Duration = Duration::from_millis(20);

/// How long is claimed before anything expires: the disk comes to rest after what filled it.
const NORMAL: Duration = Duration::from_secs(10);

/// How many claim meanwhile.
const CALLERS: usize = 16;
/// They are not there to fill the disk, so they claim as clients do: with pauses.
const CALLER_PAUSE: Duration = Duration::from_millis(5);

/// What those who claimed meanwhile have seen.
pub(super) struct Expiry {
    records: u64,
    took: Duration,
    claims: Latencies,
    /// Those before.
    normal: Latencies,
}

impl Expiry {
    pub(super) fn note(&mut self) -> String {
        format!(
            "While {} records expired in {} s, {} claims were made beside; the longest took {} ms \
             (p99 {} ms; before: {} and {} ms).",
            number(self.records as f64),
            number(self.took.as_secs_f64()),
            number(self.claims.len() as f64),
            number(self.claims.percentile(1.0)),
            number(self.claims.percentile(0.99)),
            number(self.normal.percentile(1.0)),
            number(self.normal.percentile(0.99)),
        )
    }

    pub(super) fn target(&mut self) -> Target {
        let longest = self.claims.percentile(1.0);
        Target::new(
            format!("the longest claim while {} expire: below 50 ms", number(self.records as f64)),
            format!("{} ms", number(longest)),
            longest < 50.0,
        )
    }
}

/// Lets 100,000 records expire at once, or a million, and claims beside the sweep.
pub(super) async fn measure(folder: &Path, long: bool) -> Result<Expiry> {
    let records = if long { 1_000_000 } else { 100_000 };
    let clock = Arc::new(AheadClock::new());
    let data = folder.join("expiry");
    let store = open(&data, EmbeddedOptions::default().clock(clock.clone()))?;
    work::fill(&store, 0..records, work::ANSWER_BYTES).await?;
    let keys = Arc::new(Keys::from(records));
    let (_, normal) = beside(&store, &keys, tokio::time::sleep(NORMAL)).await?;
    clock.jump(25);
    let begun = Stopwatch::start();
    let (swept, claims) = beside(&store, &keys, sweep(&*store)).await?;
    let took = begun.elapsed();
    drop(store);
    std::fs::remove_dir_all(&data)?;
    if swept? != records {
        bail!("not all of {records} records expired");
    }
    Ok(Expiry { records, took, claims, normal })
}

/// Lets a million records with a short retention expire in a store that keeps others, and claims
/// beside the sweep. The numbers from `first` on are nobody's.
pub(super) async fn among_others(store: &Arc<dyn FullStore>, first: u64) -> Result<Expiry> {
    const RECORDS: u64 = 1_000_000;
    const RETENTION: Duration = Duration::from_secs(60);
    work::fill_for(store, first..first + RECORDS, work::ANSWER_BYTES, RETENTION).await?;
    tokio::time::sleep(RETENTION).await;
    let keys = Arc::new(Keys::from(first + RECORDS));
    let (_, normal) = beside(store, &keys, tokio::time::sleep(NORMAL)).await?;
    let begun = Stopwatch::start();
    let (swept, claims) = beside(store, &keys, sweep(&**store)).await?;
    let (records, took) = (swept?, begun.elapsed());
    if records < RECORDS {
        bail!("of {RECORDS} records, {records} expired");
    }
    Ok(Expiry { records, took, claims, normal })
}

/// Claims, with pauses, for as long as something else is done.
pub(crate) async fn beside<T>(
    store: &Arc<dyn FullStore>,
    keys: &Arc<Keys>,
    doing: impl Future<Output = T>,
) -> Result<(T, Latencies)> {
    let is_over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(claim(store.clone(), keys.clone(), is_over.clone()));
    }
    let done = doing.await;
    is_over.store(true, Ordering::Relaxed);
    let mut claims = Latencies::default();
    while let Some(seen) = callers.join_next().await {
        claims.extend(seen??);
    }
    Ok((done, claims))
}

/// Sweeps as the reaper does, once through all, and returns how many records were removed.
pub(crate) async fn sweep(store: &dyn FullStore) -> Result<u64> {
    let mut removed = 0;
    loop {
        let swept = store.sweep(STEP).await?;
        removed += swept.removed as u64;
        if swept.finished {
            return Ok(removed);
        }
        tokio::time::sleep(STEP_PAUSE).await;
    }
}

async fn claim(
    store: Arc<dyn FullStore>,
    keys: Arc<Keys>,
    is_over: Arc<AtomicBool>,
) -> Result<Latencies> {
    let mut claims = Latencies::default();
    while !is_over.load(Ordering::Relaxed) {
        let ask = keys.next();
        let call = Stopwatch::start();
        store.claim(&ask).await?;
        claims.add(call.elapsed());
        tokio::time::sleep(CALLER_PAUSE).await;
    }
    Ok(claims)
}
