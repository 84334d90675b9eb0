//! `bench/run attack`: the latency of honest clients beside a thousand hostile connections of one address.
//!
//! Each attack has a fixed rate, which is not the worst that an address could do. Nothing here checks that the
//! gateway took what the attackers sent: its metrics tell.

mod attackers;
mod frames;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use self::attackers::{ATTACKS, Attack, Attacker, Target as Victim};
use super::contender::{Contender, Keys, Role};
use super::process::{self, Server, nginx_upstream};
use super::wrk::{self, CPU, P50, P99};
use crate::report::{self, RATE, Sample, Table, Target};
use crate::timing::Stopwatch;
use crate::{Options, machine};

/// Number of connections of each attack. The limit on open files must leave room for them.
const CONNECTIONS: usize = 1000;
/// Number of parts in which the connections take their steps within a second.
const PARTS: usize = 20;
/// Time in which all attackers must have tried to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Limit of the gateway's memory under any attack.
const MAX_MEMORY_MIB: f64 = 256.0;

const MEMORY: &str = "memory MiB";
const CUT: &str = "cut";
const COLUMNS: &[&str] = &[RATE, P50, P99, CPU, MEMORY, CUT];

const LOADS: [(&str, Keys); 2] = [("first requests", Keys::New), ("replays", Keys::Known(1000))];

/// Measures the gateway with and without attackers, in turns.
pub(crate) fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.data)?;
    let file_system = machine::file_system(&options.data)?;
    let folder = tempfile::Builder::new().prefix("attack-").tempdir_in(&options.data)?;
    let upstream = nginx_upstream(folder.path())?;
    let title = format!("64 honest connections beside {CONNECTIONS} hostile ones");
    let mut table = Table::new(title, None, COLUMNS);
    let wanted: Vec<_> = ATTACKS.iter().filter(|attack| options.wants(attack.name)).collect();
    for round in 1..=options.rounds() {
        for load in LOADS {
            for attack in std::iter::once(None).chain(wanted.iter().copied().map(Some)) {
                let name = row(load.0, attack);
                eprintln!("round {round} of {}: {name}", options.rounds());
                let sample = measure(&name, load.1, attack, upstream.address, &folder, options);
                table.add(&name, sample?);
            }
        }
    }
    let p99 = LOADS.iter().flat_map(|(load, _)| {
        wanted.iter().filter_map(|attack| {
            let name = row(load, Some(attack));
            let ratio = table.ratio_of(P99, &name, &row(load, None));
            Target::below(&format!("{name}: p99, of that without"), 2.0, ratio)
        })
    });
    let memory = LOADS.iter().flat_map(|(load, _)| {
        wanted.iter().filter_map(|attack| {
            let name = row(load, Some(attack));
            let held = table.figure(&name, MEMORY);
            Target::below(&format!("{name}: memory in MiB"), MAX_MEMORY_MIB, held)
        })
    });
    let targets: Vec<_> = p99.chain(memory).collect();
    let notes = [
        format!(
            "Client, gateway, upstream and attackers share the cores; records are on {file_system}."
        ),
        "Honest clients come from 127.0.0.1 and attackers from 127.0.0.2. No honest request was refused.".into(),
        format!("{CUT} is the number of hostile connections that the gateway closed or refused. A measurement that is shorter than a timeout sees none that the timeout closes."),
        "Attackers take a step a second on each connection. That is a rate, not the worst that an address could do.".into(),
    ];
    report::publish(options, &notes, &[table], &targets)
}

fn row(load: &str, attack: Option<&Attack>) -> String {
    match attack {
        Some(attack) => format!("{load}, {}", attack.name),
        None => load.to_owned(),
    }
}

fn measure(
    name: &str,
    keys: Keys,
    attack: Option<&'static Attack>,
    upstream: SocketAddr,
    folder: &TempDir,
    options: &Options,
) -> Result<Sample> {
    let contender =
        Contender { name: "the gateway", role: Role::Gateway { in_memory: false }, keys };
    let data = TempDir::new_in(folder.path())?;
    let silent = TcpListener::bind(super::any_port())?;
    let server = start(&data, upstream, silent.local_addr()?, options)?;
    let _silence = hold_connections(silent);
    wrk::probe(server.address, &contender)?;
    wrk::load(&server, keys, 1)?;
    let running = attack.map(|attack| Running::begin(attack, server.address)).transpose()?;
    let mut sample = wrk::load(&server, keys, options.seconds())?.checked(name)?;
    sample.push((MEMORY, server.resident_mib()?));
    let cut = running.map(Running::end).transpose()?.unwrap_or_default();
    sample.push((CUT, cut as f64));
    Ok(sample)
}

/// The gateway with records on disk, and a route whose upstream never answers.
fn start(
    data: &TempDir,
    upstream: SocketAddr,
    silent: SocketAddr,
    options: &Options,
) -> Result<Server> {
    let config = format!(
        "[[route]]\nmatch = \"POST {}\"\nupstream = \"http://{silent}\"\n",
        attackers::SILENT_PATH
    );
    let path = data.path().join("selfsame.toml");
    std::fs::write(&path, config)?;
    let store = format!("file:{}", data.path().join("records").display());
    process::gateway_with(&options.gateway, upstream, &store, Some(&path))
}

/// Accepts connections and keeps them, without an answer, for as long as the program runs.
fn hold_connections(listener: TcpListener) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let _held: Vec<_> = listener.incoming().map_while(Result::ok).collect();
    })
}

/// An attack at work.
struct Running {
    is_over: Arc<AtomicBool>,
    cut: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Returns when every attacker has tried to connect.
    fn begin(attack: &'static Attack, gateway: SocketAddr) -> Result<Self> {
        let victim = Victim::new(gateway)?;
        let (is_over, cut, begun) =
            <(Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
        let (over, count, all) = (is_over.clone(), cut.clone(), begun.clone());
        let thread = std::thread::spawn(move || drive(attack, &victim, &over, &count, &all));
        let waited = Stopwatch::start();
        while !begun.load(Ordering::Relaxed) {
            if waited.elapsed() > CONNECT_TIMEOUT {
                bail!("not all attackers could connect: is the limit on open files high enough?");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { is_over, cut, thread })
    }

    /// Ends the attack, and returns how many of its connections were closed or refused.
    fn end(self) -> Result<usize> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the attack failed")?;
        Ok(self.cut.load(Ordering::Relaxed))
    }
}

/// Has each connection take a step a second, and replaces those that the gateway has closed.
fn drive(
    attack: &Attack,
    victim: &Victim,
    is_over: &AtomicBool,
    cut: &AtomicUsize,
    begun: &AtomicBool,
) {
    let mut connections: Vec<Option<Box<dyn Attacker>>> = Vec::new();
    connections.resize_with(CONNECTIONS, || None);
    while !is_over.load(Ordering::Relaxed) {
        for part in connections.chunks_mut(CONNECTIONS / PARTS) {
            let begun = Stopwatch::start();
            for connection in part {
                if let Some(attacker) = connection {
                    if attacker.step().is_ok() {
                        continue;
                    }
                    cut.fetch_add(1, Ordering::Relaxed);
                }
                *connection = (attack.connect)(victim).ok();
                if connection.is_none() {
                    cut.fetch_add(1, Ordering::Relaxed);
                }
            }
            let left = (Duration::from_secs(1) / PARTS as u32).saturating_sub(begun.elapsed());
            std::thread::sleep(left);
        }
        begun.store(true, Ordering::Relaxed);
    }
}
