//! The same two statements by PostgreSQL's own benchmark, which has a connection for each caller.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use selfsame_core::AnswerBody;
use selfsame_test_postgres::Server;

use super::{DATABASE, usual};
use crate::figures::Latencies;
use crate::report::{RATE, Sample};
use crate::store::work::{self, PAIR_P50, PAIR_P99};

/// Claims and completes new keys for that `time`.
pub(super) fn pairs(server: &Server, in_flight: usize, time: Duration) -> Result<Sample> {
    let folder = tempfile::TempDir::new()?;
    let script = folder.path().join("pair.sql");
    std::fs::write(&script, text())?;
    let AnswerBody::Kept(body) = work::answer(work::ANSWER_BYTES).body else {
        bail!("an answer without a body")
    };
    // It counts the time that its connections take to come about, and leaves it out of its rate.
    let seconds = time.as_secs() + in_flight as u64 / 64;
    let mut pgbench = server.pgbench(DATABASE);
    pgbench
        .args(["--no-vacuum", "--protocol=prepared", "--log", "--jobs=2"])
        .arg(format!("--log-prefix={}", folder.path().join("pairs").display()))
        .arg(format!("--client={in_flight}"))
        .arg(format!("--time={seconds}"))
        .arg(format!("--define=body={}", String::from_utf8_lossy(&body)))
        .arg(format!("--file={}", script.display()));
    let ended = pgbench.stdin(Stdio::null()).output().context("pgbench cannot be run")?;
    if !ended.status.success() {
        bail!("pgbench failed: {}", String::from_utf8_lossy(&ended.stderr));
    }
    let said = String::from_utf8_lossy(&ended.stdout);
    let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
    let rate: f64 = rate.with_context(|| format!("pgbench tells no rate: {said}"))?.parse()?;
    let mut took = Latencies::default();
    for entry in std::fs::read_dir(folder.path())? {
        let path = entry?.path();
        if path != script {
            for line in std::fs::read_to_string(&path)?.lines() {
                let micros = line.split(' ').nth(2).context("pgbench logs how long")?;
                took.add(Duration::from_micros(micros.parse()?));
            }
        }
    }
    Ok(vec![(RATE, rate), (PAIR_P50, took.percentile(0.5)), (PAIR_P99, took.percentile(0.99))])
}

/// The script, with the statements of the usual pattern.
fn text() -> String {
    let key = "sha256(int8send(:number))::text";
    let claim = usual::CLAIM.replace("$1", key).replace("$2", "'\\x00'").replace("$3", "'\\x01'");
    let complete = usual::COMPLETE
        .replace("$1", key)
        .replace("$2", "'\\x01'")
        .replace("$3", "201")
        .replace("$4", "'content-type: application/json'")
        .replace("$5", "convert_to(:body, 'utf8')");
    format!("\\set number random(1, 9223372036854775806)\n{claim};\n{complete};\n")
}
