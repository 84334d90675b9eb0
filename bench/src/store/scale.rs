//! What grows with the number of keys: latency, memory, disk, and the time of a start.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use selfsame::stores::EmbeddedOptions;
use selfsame_core::FullStore;

use super::expiry::{self, Expiry};
use super::{open, work};
use crate::report::{RATE, Table};
use crate::timing::Stopwatch;

/// The size of answers.
const ANSWER_BYTES: usize = 100;

const COLUMNS: &[&str] = &[
    RATE,
    "claim p50 ms",
    super::CLAIM_P99,
    work::CLAIM_MAX,
    "complete p50 ms",
    "complete p99 ms",
    work::COMPLETE_MAX,
];

/// How long another process writes before it is killed.
const BEFORE_KILL: Duration = Duration::from_secs(5);

/// More keys than are filled in at once.
const FILLED_AT_ONCE_MAX: u64 = 10_000;

/// Keys that expire have numbers from here on, behind those that are claimed and completed.
const EXPIRING_FROM: u64 = 500_000_000;

const READY: &str = "ready";

/// Tables of what was measured with that many keys.
pub(super) struct Scale {
    pub(super) pairs: Table,
    pub(super) replays: Table,
    pub(super) rest: Table,
    pub(super) expiry: Expiry,
}

/// Fills a store in `data` with that many keys, as far as it is not filled yet, and measures it.
pub(super) async fn measure(data: &Path, keys: u64, time: Duration) -> Result<Scale> {
    let store = open(data, EmbeddedOptions::default())?;
    let known = known_keys(&*store, keys).await?;
    let begun = Stopwatch::start();
    work::fill(&store, known..keys, ANSWER_BYTES).await?;
    let filled = begun.elapsed();
    let disk = bytes_of(data)? as f64 / keys as f64;
    let mut pairs = Table::new("Claim and complete at that size", None, COLUMNS);
    for in_flight in [64, 256] {
        let name = format!("{keys} keys, {in_flight} in flight");
        pairs.add(&name, work::pairs_of(&store, in_flight, time, ANSWER_BYTES).await?);
    }
    let mut replays = Table::new("Replays at that size", None, super::REPLAY_COLUMNS);
    replays.add("64 in flight, any key", work::replays_of(&store, 64, time, keys).await?);
    let memory = resident_bytes()?;
    let expiry = expiry::among_others(&store, work::first_of_process() + EXPIRING_FROM).await?;
    let closing = Stopwatch::start();
    drop(store);
    let closing = closing.elapsed();
    let clean = time_of_start(data)?;
    kill_one_that_writes(data)?;
    let killed = time_of_start(data)?;
    let mut rest = Table::new("The rest at that size", None, &["value"]);
    let filled_per_second = (keys - known) as f64 / filled.as_secs_f64();
    rest.add("filled, pairs per second", vec![("value", filled_per_second)]);
    rest.add("resident memory, MiB", vec![("value", memory as f64 / f64::from(1 << 20))]);
    rest.add("bytes on disk for each key", vec![("value", disk)]);
    rest.add("close, s", vec![("value", closing.as_secs_f64())]);
    rest.add("start after a clean stop, s", vec![("value", clean.as_secs_f64())]);
    rest.add("start after kill -9, s", vec![("value", killed.as_secs_f64())]);
    Ok(Scale { pairs, replays, rest, expiry })
}

/// Number of keys that an earlier run filled in, as far as that is sure.
async fn known_keys(store: &dyn FullStore, keys: u64) -> Result<u64> {
    let (mut known, mut unknown) = (0, keys);
    while known < unknown {
        let middle = known + (unknown - known) / 2;
        match store.get(&work::ask(middle).id).await? {
            Some(_) => known = middle + 1,
            None => unknown = middle,
        }
    }
    // Some of the last ones were still under way when it was cut off.
    Ok(known.saturating_sub(FILLED_AT_ONCE_MAX))
}

/// Writes to the store in `folder` until it is killed.
pub(crate) fn write_until_killed(folder: &Path) -> Result<()> {
    let store = open(folder, EmbeddedOptions::default())?;
    println!("{READY}");
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        // Bounded, in case that nobody kills it.
        work::pairs_of(&store, 64, BEFORE_KILL * 6, ANSWER_BYTES).await.map(drop)
    })
}

fn kill_one_that_writes(folder: &Path) -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("write-until-killed")
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().context("it was asked for")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(line.trim() == READY, "the other process did not start: {line}");
    std::thread::sleep(BEFORE_KILL);
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn time_of_start(folder: &Path) -> Result<Duration> {
    let begun = Stopwatch::start();
    let store: Arc<dyn FullStore> = open(folder, EmbeddedOptions::default())?;
    let took = begun.elapsed();
    drop(store);
    Ok(took)
}

fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("a Linux kernel")?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}

pub(super) fn bytes_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        bytes += if path.is_dir() { bytes_of(&path)? } else { path.metadata()?.len() };
    }
    Ok(bytes)
}
