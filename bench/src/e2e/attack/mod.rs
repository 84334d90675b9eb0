//! `bench/run attack`: the latency of honest clients while one hostile address does its worst.
//!
//! The first core is the gateway's machine. Clients, attackers and the upstream share the others, where honest
//! clients and the upstream run first, and attackers when nobody else does. So what attackers take from honest
//! clients, they take inside the gateway.

mod frames;
mod honest;
mod hostile;

use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use clap::ValueEnum;
use tempfile::TempDir;

use self::honest::Load;
pub(crate) use self::honest::{Load as HonestLoad, serve as serve_honest};
pub(crate) use self::hostile::{Attack, serve as serve_attackers};
use self::hostile::{HOSTILE_PATH, LARGE_PATH, SILENT_PATH};
use super::client::Client;
use super::process::{self, Server};
use super::wrk::P99;
use crate::report::{self, Sample, Table, Target};
use crate::timing::Stopwatch;
use crate::{Options, machine};

/// Length of a measurement, unless it is set. It is longer than the timeout of heads.
const SECONDS: u64 = 12;
/// Limit of the gateway's memory under any attack.
const MAX_MEMORY_MIB: f64 = 256.0;

const FIRST_P50: &str = "first p50 ms";
const FIRST_P99: &str = "first p99 ms";
const REPLAY_P50: &str = "replay p50 ms";
const REPLAY_P99: &str = "replay p99 ms";
const FAILED: &str = "failed";
const MEMORY: &str = "memory MiB";
const CPU: &str = "CPU cores";
const DISK: &str = "store MiB";
const EVIDENCE: &str = "evidence";
const COLUMNS: &[&str] =
    &[P99, FIRST_P50, FIRST_P99, REPLAY_P50, REPLAY_P99, FAILED, CPU, MEMORY, DISK, EVIDENCE];

/// Row of the measurement without an attack.
const QUIET: &str = "no attack";

/// Measures the gateway with and without attackers, in turns.
pub(crate) fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.data)?;
    let file_system = machine::file_system(&options.data)?;
    let folder = tempfile::Builder::new().prefix("attack-").tempdir_in(&options.data)?;
    process::leave_first_core()?;
    let upstream = process::preferred_nginx_upstream(folder.path())?;
    let seconds = options.seconds.unwrap_or(SECONDS);
    let (clients, rate) = (honest::CONNECTIONS, honest::PER_SECOND);
    let title = format!("{clients} honest clients, {rate} requests a second, for {seconds} s");
    let mut table = Table::new(title, None, COLUMNS);
    let wanted: Vec<Attack> = Attack::value_variants()
        .iter()
        .copied()
        .filter(|attack| options.wants(&attack.name()))
        .collect();
    for round in 1..=options.rounds() {
        for attack in std::iter::once(None).chain(wanted.iter().copied().map(Some)) {
            let name = attack.map_or(QUIET.to_owned(), Attack::name);
            eprintln!("round {round} of {}: {name}", options.rounds());
            let sample = measure(attack, seconds, upstream.address, &folder, options)
                .with_context(|| name.clone())?;
            eprintln!("  {sample:?}");
            table.add(&name, sample);
        }
    }
    let targets: Vec<_> = wanted.iter().flat_map(|attack| targets(&table, *attack)).collect();
    let notes = [
        format!(
            "Records are on {file_system}. The gateway has the first core for itself. Each honest client has an address of its own, and all attackers share another."
        ),
        format!(
            "Latencies count from the moment at which a request was due. {CPU} are those that the gateway kept busy."
        ),
        format!(
            "{MEMORY} is the most that the gateway held. {EVIDENCE} is a metric of the gateway that grows by what the attack does."
        ),
    ];
    report::publish(options, &notes, &[table], &targets)
}

fn targets(table: &Table, attack: Attack) -> Vec<Target> {
    let name = attack.name();
    let hostile::Evidence { line, least } = attack.evidence();
    let ratio = |column| table.ratio_of(column, &name, QUIET);
    let figure = |column| table.figure(&name, column);
    let targets = [
        Target::below(&format!("{name}: p99, of that without"), 2.0, ratio(P99)),
        Target::below(&format!("{name}: first p99, of that without"), 2.0, ratio(FIRST_P99)),
        Target::below(&format!("{name}: replay p99, of that without"), 2.0, ratio(REPLAY_P99)),
        Target::below(&format!("{name}: failed requests"), 1.0, figure(FAILED)),
        Target::below(&format!("{name}: memory in MiB"), MAX_MEMORY_MIB, figure(MEMORY)),
        Target::at_least(&format!("{name}: {} {}", line[0], line[1]), least, figure(EVIDENCE)),
    ];
    targets.into_iter().flatten().collect()
}

fn measure(
    attack: Option<Attack>,
    seconds: u64,
    upstream: SocketAddr,
    folder: &TempDir,
    options: &Options,
) -> Result<Sample> {
    let data = TempDir::new_in(folder.path())?;
    let silent = TcpListener::bind(super::any_port())?;
    let gateway = start(&data, upstream, silent.local_addr()?, options)?;
    let _silence = hold_connections(silent);
    let load = |name: &str, seconds| {
        let (gateway, name) = (gateway.address, name.to_owned());
        honest::measure(&Load { gateway, name, seconds })
    };
    load("warm-up", 1)?;
    let attackers = attack.map(|attack| process::attackers(&attack.argument(), gateway.address));
    let attackers = attackers.transpose()?;
    let cpu = gateway.cpu_seconds();
    let took = Stopwatch::start();
    let figures = load("measured", seconds)?;
    let mut sample = vec![
        (P99, figures.p99),
        (FIRST_P50, figures.first_p50),
        (FIRST_P99, figures.first_p99),
        (REPLAY_P50, figures.replay_p50),
        (REPLAY_P99, figures.replay_p99),
        (FAILED, figures.failed),
        (CPU, (gateway.cpu_seconds() - cpu) / took.elapsed().as_secs_f64()),
        (MEMORY, gateway.peak_mib()?),
    ];
    drop(attackers);
    if let Some(attack) = attack {
        sample.push((EVIDENCE, metric(&gateway, &attack.evidence().line)?));
    }
    sample.push((DISK, metric(&gateway, &["selfsame_store_bytes "])? / 1024.0 / 1024.0));
    Ok(sample)
}

/// The gateway with records on disk, and routes of the attackers' own.
fn start(
    data: &TempDir,
    upstream: SocketAddr,
    silent: SocketAddr,
    options: &Options,
) -> Result<Server> {
    let config = format!(
        "[[route]]\nmatch = \"POST {SILENT_PATH}\"\nupstream = \"http://{silent}\"\n\
         [[route]]\nmatch = \"{HOSTILE_PATH}\"\n[[route]]\nmatch = \"{LARGE_PATH}\"\n"
    );
    let path = data.path().join("selfsame.toml");
    std::fs::write(&path, config)?;
    let store = format!("file:{}", data.path().join("records").display());
    process::gateway_with(process::on_first_core(&options.gateway), upstream, &store, &path)
}

/// Accepts connections and keeps them, without an answer, for as long as the program runs.
fn hold_connections(listener: TcpListener) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let _held: Vec<_> = listener.incoming().map_while(Result::ok).collect();
    })
}

/// Sum of the gateway's metrics whose lines contain all of these.
fn metric(gateway: &Server, parts: &[&str]) -> Result<f64> {
    let mut client = Client::new(gateway.admin.context("a gateway has an admin listener")?);
    let response = client.exchange(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let text = std::str::from_utf8(response.body)?;
    let lines = text.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
    Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
}
