//! `bench/run e2e`: the gateway and the layer over real sockets, beside bare proxies and apps.

mod app;
mod attack;
mod client;
mod contender;
mod heads;
mod process;
mod proxy;
mod wrk;

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tempfile::TempDir;

pub(crate) use app::{Protection, serve as serve_app};
pub(crate) use attack::{Attack, HonestLoad, run as run_attack, serve_attackers, serve_honest};
pub(crate) use heads::run as run_heads;
pub(crate) use proxy::serve as serve_proxy;

use self::contender::{Contender, Role};
use self::process::nginx_upstream;
use self::wrk::{CPU, P50, P99};
use crate::report::{self, RATE, Table, Target};
use crate::{Options, machine};

const COLUMNS: &[&str] = &[RATE, P50, P99, CPU];
const HYPER: &str = "hyper proxy";
const AXUM: &str = "axum app";

/// Measures everything over sockets.
pub(crate) fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.data)?;
    let file_system = machine::file_system(&options.data)?;
    let folder = tempfile::Builder::new().prefix("e2e-").tempdir_in(&options.data)?;
    let upstream = nginx_upstream(folder.path())?;

    let mut proxies = Table::new("In front of an upstream, 64 connections", Some(HYPER), COLUMNS);
    let mut layers = Table::new("Inside an app, 64 connections", Some(AXUM), COLUMNS);
    let wanted = |contender: &&Contender| options.wants(contender.name);
    for round in 1..=options.rounds() {
        for contender in contender::ALL.iter().filter(wanted) {
            eprintln!("round {round} of {}: {}", options.rounds(), contender.name);
            let sample = measure(contender, upstream.address, &folder, options)?;
            let table = match contender.role {
                Role::App(_) => &mut layers,
                _ => &mut proxies,
            };
            table.add(contender.name, sample);
        }
    }
    let targets = targets(&proxies, &layers);
    let notes = [
        format!("Client, contender and upstream share the cores; records are on {file_system}."),
        format!("{CPU} is the contender's own, of all its processes, for each request."),
    ];
    report::publish(options, &notes, &[proxies, layers], &targets)
}

/// Starts a contender anew, so that what it did before weighs on nobody, and loads it.
fn measure(
    contender: &Contender,
    upstream: SocketAddr,
    folder: &TempDir,
    options: &Options,
) -> Result<report::Sample> {
    let data = TempDir::new_in(folder.path())?;
    let server = contender.start(upstream, data.path(), &options.gateway)?;
    wrk::probe(server.address, contender)?;
    wrk::load(&server, contender.keys, 1)?;
    let sample = wrk::load(&server, contender.keys, options.seconds())?;
    wrk::probe(server.address, contender)?;
    sample.checked(contender.name)
}

fn targets(proxies: &Table, layers: &Table) -> Vec<Target> {
    let of_hyper = |row: &str, least| {
        Target::at_least(&format!("{row}, of the {HYPER}"), least, proxies.ratio(row, HYPER))
    };
    let of_axum = |row: &str, least| {
        Target::at_least(&format!("{row}, of the {AXUM}"), least, layers.ratio(row, AXUM))
    };
    let ahead = |ours: &str, theirs: &str| {
        Target::at_least(&format!("{ours}, of {theirs}"), 1.0, layers.ratio(ours, theirs))
    };
    let targets = [
        of_hyper("gateway, no key", 0.85),
        of_hyper("gateway, replays of one key", 1.3),
        of_hyper("gateway, replays of 1000 keys", 1.3),
        of_hyper("gateway, first requests", 0.35),
        of_hyper("gateway in memory, first requests", 0.7),
        of_axum("selfsame, first requests", 0.6),
        Target::below(
            "selfsame, first requests, p99 ms",
            5.0,
            layers.figure("selfsame, first requests", P99),
        ),
        of_axum("selfsame, replays", 0.8),
        ahead("selfsame, first requests", "idempotent 2.0, first requests"),
        ahead("selfsame, replays", "idempotent 2.0, replays"),
    ];
    targets.into_iter().flatten().collect()
}

/// Any port that is free now.
fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}
