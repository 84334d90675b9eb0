//! The client: wrk, with a script that gives each request its key.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::contender::{Contender, Keys};
use super::process::{ANSWER, Server};
use crate::report::{RATE, Sample};

pub(super) const P50: &str = "p50 ms";
pub(super) const P99: &str = "p99 ms";
pub(super) const CPU: &str = "CPU µs";

const CONNECTIONS: &str = "64";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/e2e/keys.lua");
const TIME_OUT: Duration = Duration::from_secs(10);

/// What a load came to.
pub(super) struct Load {
    sample: Sample,
    failed: f64,
}

impl Load {
    /// The figures, if every request was answered as it should be.
    pub(super) fn checked(self, name: &str) -> Result<Sample> {
        match self.failed == 0.0 {
            true => Ok(self.sample),
            false => bail!("{name}: {} requests failed", self.failed),
        }
    }
}

/// Keeps 64 connections busy for so many seconds.
pub(super) fn load(server: &Server, keys: Keys, seconds: u64) -> Result<Load> {
    static LOADS: AtomicU64 = AtomicU64::new(0);
    let load = LOADS.fetch_add(1, Ordering::Relaxed);
    let (turns, prefix) = match keys {
        Keys::None => ("0".to_owned(), format!("{load:012x}-none-")),
        Keys::New => ("-1".to_owned(), format!("{load:012x}-new-")),
        Keys::Known(keys) => (keys.to_string(), "000000000000-known-".to_owned()),
    };
    let before = server.cpu_seconds();
    let output = Command::new("wrk")
        .args(["-t1", "-c", CONNECTIONS, "-d", &format!("{seconds}s"), "--timeout", "5s"])
        .args(["-s", SCRIPT, &format!("http://{}/v1/charges", server.address)])
        .args(["--", &turns, &prefix])
        .output()
        .context("wrk cannot be started")?;
    let cpu = server.cpu_seconds() - before;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().rev().find(|line| line.starts_with('{')).context(text.clone())?;
    let figures: Value = serde_json::from_str(line)?;
    let figure = |name: &str| figures[name].as_f64().context(text.clone());
    let (requests, micros) = (figure("requests")?, figure("micros")?);
    let sample = vec![
        (RATE, requests / micros * 1e6),
        (P50, figure("p50")? / 1e3),
        (P99, figure("p99")? / 1e3),
        (CPU, cpu / requests * 1e6),
    ];
    Ok(Load { sample, failed: figure("failed")? })
}

/// Asks twice by hand whether the contender does what it is measured for, and leaves the one key
/// that takes no turns with others answered.
pub(super) fn probe(to: SocketAddr, contender: &Contender) -> Result<()> {
    for _ in 0..2 {
        let answer = ask(to, "000000000000-known-100000000000")?;
        if !answer.starts_with("HTTP/1.1 200") || !answer.ends_with(ANSWER) {
            bail!("{} answers wrongly:\n{answer}", contender.name);
        }
    }
    let again = ask(to, "000000000000-known-100000000000")?.to_ascii_lowercase();
    let is_replay = again.contains("idempotent-replayed: true");
    if is_replay != contender.replays() && contender.keys != Keys::None {
        bail!("{}: a request that came again was answered so:\n{again}", contender.name);
    }
    Ok(())
}

/// Sends what the script sends.
fn ask(to: SocketAddr, key: &str) -> Result<String> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(TIME_OUT))?;
    let body = r#"{"amount":2000,"currency":"eur","source":"tok_visa","description":"order 1042"}"#;
    let head = format!(
        "POST /v1/charges HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\
         Authorization: Bearer sk_bench_4eC39HqLyjWDarjtT1zdp7dc\r\nIdempotency-Key: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
