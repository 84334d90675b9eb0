//! `bench/run attack`: what clients notice of thousands of others whose requests never come to an end.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::contender::{Contender, Keys, Role};
use super::process::nginx_upstream;
use super::wrk::{self, CPU, P50, P99};
use crate::report::{self, RATE, Sample, Table, Target};
use crate::timing::Stopwatch;
use crate::{Options, machine};

/// How many connections attack. A client's own limit on files must leave room for them.
const ATTACKERS: usize = 4000;
/// In how many parts a second's bytes are sent.
const STEPS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(20);

const MEMORY: &str = "memory MiB";
const COLUMNS: &[&str] = &[RATE, P50, P99, CPU, MEMORY];

const LOADS: [(&str, Keys); 2] = [("first requests", Keys::New), ("replays", Keys::Known(1000))];

/// Measures the gateway with and without attackers, in turns.
pub(crate) fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.data)?;
    let file_system = machine::file_system(&options.data)?;
    let folder = tempfile::Builder::new().prefix("attack-").tempdir_in(&options.data)?;
    let upstream = nginx_upstream(folder.path())?;
    let title = format!("64 connections beside {ATTACKERS} slow heads");
    let mut table = Table::new(title, None, COLUMNS);
    for round in 1..=options.rounds() {
        for (name, keys) in LOADS.into_iter().filter(|(name, _)| options.wants(name)) {
            for is_attacked in [false, true] {
                let name = row(name, is_attacked);
                eprintln!("round {round} of {}: {name}", options.rounds());
                let sample = measure(&name, keys, is_attacked, upstream.address, &folder, options);
                table.add(&name, sample?);
            }
        }
    }
    let targets = LOADS.iter().filter_map(|(name, _)| {
        let ratio = table.ratio_of(P99, &row(name, true), &row(name, false));
        Target::below(&format!("{name}: p99 attacked, of that without"), 2.0, ratio)
    });
    let targets: Vec<_> = targets.collect();
    let notes = [
        format!(
            "Client, gateway, upstream and attackers share the cores; records are on {file_system}."
        ),
        "Each attacker sends a byte of its head a second, and comes again when it is cut off."
            .into(),
    ];
    report::publish(options, &notes, &[table], &targets)
}

fn row(name: &str, is_attacked: bool) -> String {
    format!("{name}{}", if is_attacked { ", attacked" } else { "" })
}

fn measure(
    name: &str,
    keys: Keys,
    is_attacked: bool,
    upstream: SocketAddr,
    folder: &TempDir,
    options: &Options,
) -> Result<Sample> {
    let contender =
        Contender { name: "the gateway", role: Role::Gateway { in_memory: false }, keys };
    let data = TempDir::new_in(folder.path())?;
    let server = contender.start(upstream, data.path(), &options.gateway)?;
    wrk::probe(server.address, &contender)?;
    wrk::load(&server, keys, 1)?;
    let attack = is_attacked.then(|| Attack::begin(server.address)).transpose()?;
    let mut sample = wrk::load(&server, keys, options.seconds())?.checked(name)?;
    sample.push((MEMORY, server.resident_mib()?));
    if let Some(attack) = attack {
        attack.end()?;
    }
    Ok(sample)
}

/// Attackers at work.
struct Attack {
    is_over: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Attack {
    /// Comes back when all are connected.
    fn begin(on: SocketAddr) -> Result<Self> {
        let (is_over, open) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (over, count) = (is_over.clone(), open.clone());
        let thread = std::thread::spawn(move || attack(on, &over, &count));
        let attack = Self { is_over, open, thread };
        let begun = Stopwatch::start();
        while attack.open.load(Ordering::Relaxed) < ATTACKERS {
            if begun.elapsed() > PATIENCE {
                bail!("not all attackers could connect: is the limit on open files high enough?");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(attack)
    }

    /// Ends it, if it was one to the end.
    fn end(self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        let left = self.open.load(Ordering::Relaxed);
        self.thread.join().ok().context("the attack came to grief")?;
        match left > ATTACKERS / 2 {
            true => Ok(()),
            false => bail!("only {left} of {ATTACKERS} attackers were connected at the end"),
        }
    }
}

fn attack(on: SocketAddr, is_over: &AtomicBool, open: &AtomicUsize) {
    let mut attackers: Vec<Option<TcpStream>> = (0..ATTACKERS).map(|_| None).collect();
    while !is_over.load(Ordering::Relaxed) {
        for part in attackers.chunks_mut(ATTACKERS / STEPS) {
            for attacker in part {
                let goes_on = attacker.as_mut().is_some_and(|at| at.write_all(b"x").is_ok());
                if !goes_on {
                    *attacker = connect(on);
                }
            }
            std::thread::sleep(Duration::from_secs(1) / STEPS as u32);
        }
        open.store(attackers.iter().flatten().count(), Ordering::Relaxed);
    }
}

fn connect(on: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&on, Duration::from_secs(1)).ok()?;
    stream.write_all(b"POST /v1/charges HTTP/1.1\r\nHost: a\r\nX-Slow: ").ok()?;
    Some(stream)
}
