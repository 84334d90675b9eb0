//! `bench/run store`: what the stores do beside what the disk could.

pub(crate) mod expiry;
mod raw;
mod scale;
mod size;
pub(crate) mod work;

pub(crate) use scale::write_until_killed;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use selfsame::stores::{EmbeddedOptions, EmbeddedStore, MemoryStore};
use selfsame_core::FullStore;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::work::Keys;
use crate::figures::Spread;
use crate::report::{self, RATE, Table, Target, number};
use crate::{Options, machine};

const RAW: &str = "the disk alone, 64 pairs a sync";
const AT_64: &str = "file, 64 in flight";
const CLAIM_P99: &str = "claim p99 ms";
const SYNC_P99: &str = "sync p99 ms";
const PAIR_COLUMNS: &[&str] = &[
    RATE,
    "claim p50 ms",
    CLAIM_P99,
    "complete p50 ms",
    "complete p99 ms",
    "sync p50 ms",
    SYNC_P99,
];
const REPLAY_COLUMNS: &[&str] = &[RATE, "p50 ms", "p99 ms"];
const KEPT_COLUMNS: &[&str] = &["bytes"];

/// Measures the stores.
pub(crate) fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.data)?;
    let file_system = machine::file_system(&options.data)?;
    let folder = tempfile::Builder::new().prefix("store-").tempdir_in(&options.data)?;
    let runtime = Runtime::new()?;
    let time = Duration::from_secs(options.seconds());

    let mut pairs = Table::new("Claim and complete, an answer of 1 KiB", Some(RAW), PAIR_COLUMNS);
    let mut replays = Table::new("Replays, 64 in flight", None, REPLAY_COLUMNS);
    for round in 1..=options.rounds() {
        if options.wants("speed") {
            eprintln!("round {round} of {}", options.rounds());
            pairs.add(RAW, raw::write(folder.path(), time)?);
            runtime.block_on(one_round(&folder, time, &mut pairs, &mut replays))?;
        }
    }
    let mut targets = speed_targets(&pairs);
    let mut notes = vec![format!("The records are on {file_system}.")];
    let mut sizes = Table::new("Bytes on disk for a record, of 100,000", None, KEPT_COLUMNS);
    if options.wants("size") {
        eprintln!("bytes on disk");
        let size = runtime.block_on(size::measure(folder.path()))?;
        size.tell(&mut sizes);
        targets.push(size.target());
    }
    if options.wants("expiry") {
        eprintln!("expiry");
        let mut expiry = runtime.block_on(expiry::measure(folder.path(), options.long))?;
        notes.push(expiry.note());
        targets.push(expiry.target());
    }
    let mut tables = vec![pairs, replays, sizes];
    // Only by its name: it takes long.
    if options.only == "scale" {
        eprintln!("{} keys", options.keys);
        let data = options.filled.clone().unwrap_or_else(|| folder.path().join("scale"));
        let mut scale = runtime.block_on(scale::measure(&data, options.keys, time))?;
        notes.push(scale.expiry.note());
        targets.push(scale.expiry.target());
        tables.extend([scale.pairs, scale.replays, scale.rest]);
    }
    report::publish(options, &notes, &tables, &targets)
}

async fn one_round(
    folder: &TempDir,
    time: Duration,
    pairs: &mut Table,
    replays: &mut Table,
) -> Result<()> {
    let data = folder.path().join("round");
    let file = open(&data, EmbeddedOptions::default())?;
    for in_flight in [1, 16, 64, 256] {
        let name = format!("file, {in_flight} in flight");
        pairs.add(&name, work::pairs(&file, in_flight, time).await?);
    }
    replays.add("file", work::replays(&file, 64, time).await?);
    drop(file);
    std::fs::remove_dir_all(&data)?;

    let memory: Arc<dyn FullStore> = Arc::new(MemoryStore::new());
    pairs.add("memory, 64 in flight", work::pairs(&memory, 64, time).await?);
    replays.add("memory", work::replays(&memory, 64, time).await?);
    Ok(())
}

fn open(folder: &Path, options: EmbeddedOptions) -> Result<Arc<dyn FullStore>> {
    Ok(Arc::new(EmbeddedStore::open(folder, options)?))
}

fn speed_targets(pairs: &Table) -> Vec<Target> {
    let mut targets = Vec::new();
    if let (Some(rate), Some(part)) = (pairs.figure(AT_64, RATE), pairs.ratio(AT_64, RAW)) {
        targets.push(Target::new(
            "pairs a second at 64 in flight: at least 20,000, or 0.07 of the disk alone",
            format!("{}, or {}", number(rate.median), number(part.median)),
            rate.median >= 20_000.0 || part.median >= 0.07,
        ));
    }
    let claim = pairs.figure(AT_64, CLAIM_P99);
    if let (Some(Spread { median: claim, .. }), Some(sync)) = (claim, pairs.figure(RAW, SYNC_P99)) {
        targets.push(Target::new(
            "claim p99 at 64 in flight: below 5 ms, or 6 syncs' p99",
            format!("{} ms, or {} syncs", number(claim), number(claim / sync.median)),
            claim < 5.0 || claim < 6.0 * sync.median,
        ));
    }
    targets
}
