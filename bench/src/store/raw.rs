//! What the disk could do if nothing had to be thought about: pairs written one after the other
//! over a file that is already there, one sync for each batch.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::figures::Latencies;
use crate::report::{RATE, Sample};
use crate::timing::Stopwatch;

/// What a claim writes, at the least, and what an answer of 1 KiB does.
const PAIR_BYTES: usize = 300 + 1434;
/// How many pairs share a sync. A pair of a store needs two syncs, one after the other: this is
/// the limit of a store that had both from the same one.
const BATCH: usize = 64;
const FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Writes for that `time`, in `folder`.
pub(super) fn write(folder: &Path, time: Duration) -> Result<Sample> {
    let path = folder.join("raw");
    let file = File::create(&path)?;
    let batch = vec![0xa5; PAIR_BYTES * BATCH];
    // A file that grows costs more to sync: it is written once before.
    let places = FILE_BYTES / batch.len() as u64;
    for place in 0..places {
        file.write_all_at(&batch, place * batch.len() as u64)?;
    }
    file.sync_all()?;
    let mut syncs = Latencies::default();
    let begun = Stopwatch::start();
    while begun.elapsed() < time {
        let place = syncs.len() as u64 % places;
        file.write_all_at(&batch, place * batch.len() as u64)?;
        let sync = Stopwatch::start();
        file.sync_data()?;
        syncs.add(sync.elapsed());
    }
    let rate = (syncs.len() * BATCH) as f64 / begun.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(vec![
        (RATE, rate),
        ("sync p50 ms", syncs.percentile(0.5)),
        ("sync p99 ms", syncs.percentile(0.99)),
    ])
}
