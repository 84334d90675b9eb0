//! Redis' own benchmark: what a server does when nothing is asked of it but to keep bytes.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use selfsame_test_redis::Server;

use crate::report::{RATE, Sample};
use crate::store::work::ANSWER_BYTES;

/// How many SETs are made for a second of `time`; it counts, and knows no time.
const PER_SECOND: u64 = 30_000;

/// SETs over so many connections, with so many in flight over each.
pub(super) fn sets(
    server: &Server,
    connections: usize,
    each: usize,
    time: Duration,
) -> Result<Sample> {
    let mut program = Command::new("redis-benchmark");
    program
        .args(["-t", "set", "--csv", "-r", "100000000"])
        .args(["-p", &server.port().to_string()])
        .args(["-d", &ANSWER_BYTES.to_string()])
        .args(["-c", &connections.to_string()])
        .args(["-P", &each.to_string()])
        .args(["-n", &(time.as_secs() * PER_SECOND).to_string()]);
    let ended = program.stdin(Stdio::null()).output().context("redis-benchmark cannot be run")?;
    if !ended.status.success() {
        bail!("redis-benchmark failed: {}", String::from_utf8_lossy(&ended.stderr));
    }
    let said = String::from_utf8_lossy(&ended.stdout);
    // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms",…
    let line = said.lines().find(|line| line.starts_with("\"SET\""));
    let line = line.with_context(|| format!("redis-benchmark tells no rate: {said}"))?;
    let figures: Vec<_> = line.split(',').map(|figure| figure.trim_matches('"')).collect();
    let figure = |at: usize| -> Result<f64> {
        Ok(figures.get(at).context("redis-benchmark tells less than it did")?.parse()?)
    };
    Ok(vec![(RATE, figure(1)?), ("p50 ms", figure(4)?), ("p99 ms", figure(6)?)])
}
