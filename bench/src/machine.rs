//! What it all ran on.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The system counts processor time in this unit.
const TICKS_PER_SECOND: f64 = 100.0;

/// The machine in one line.
pub(crate) fn describe() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = cores();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores of {model}, Linux {}", kernel.trim())
}

/// Number of cores of the machine, whether or not this process may use them.
pub(crate) fn cores() -> usize {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpus.lines().filter(|line| line.starts_with("processor")).count()
}

/// The kind of file system that `folder` is on; one in memory is refused.
pub(crate) fn file_system(folder: &Path) -> Result<String> {
    let folder = folder.canonicalize().context("the folder for data cannot be found")?;
    let mounts = fs::read_to_string("/proc/mounts").context("the system shows no mounts")?;
    let mount = |line: &str| {
        let mut words = line.split(' ');
        let (point, kind) = (words.nth(1)?.to_owned(), words.next()?.to_owned());
        folder.starts_with(&point).then_some((point, kind))
    };
    // Of several at one place the last is the one that is seen.
    let found = mounts.lines().filter_map(mount).max_by_key(|(point, _)| point.len());
    let (_, kind) = found.context("the folder for data is on no known file system")?;
    if kind == "tmpfs" || kind == "ramfs" {
        bail!("{} is in memory ({kind}): choose a disk with --data", folder.display());
    }
    Ok(kind)
}

/// The time of the processor that a process has taken, in seconds.
pub(crate) fn cpu_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in brackets, may hold anything; user and system time are fields 14 and 15.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / TICKS_PER_SECOND
}
