//! `bench/run postgres`: the PostgreSQL store beside what is usually written, on one server.

mod churn;
mod expiry;
mod pgbench;
mod usual;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use selfsame::stores::{PostgresOptions, PostgresStore};
use selfsame_core::FullStore;
use selfsame_test_postgres::Server;
use tokio::runtime::Runtime;

use self::usual::{Statements, Usual};
use crate::report::{self, RATE, Sample, Table, Target};
use crate::store::work::{self, PAIR_P50, PAIR_P99};
use crate::{Options, machine};

const DATABASE: &str = "postgres";
const COLUMNS: &[&str] = &[RATE, PAIR_P50, PAIR_P99, "claim p50 ms", "claim p99 ms"];
const REPLAY_COLUMNS: &[&str] = &[RATE, "p50 ms", "p99 ms"];

const OURS: &str = "selfsame";
const UNPREPARED: &str = "usual, unprepared";
const PREPARED: &str = "usual, prepared";
const PGBENCH: &str = "pgbench, prepared";

/// The same for all: memory for the tables, and no checkpoint in the middle of a measurement.
const SETTINGS: &[&str] = &[
    "shared_buffers=1GB",
    "min_wal_size=3GB",
    "max_wal_size=8GB",
    "checkpoint_timeout=30min",
    "synchronous_commit=on",
    "shared_preload_libraries=pg_stat_statements",
    // Only what is asked for by name counts its statements.
    "pg_stat_statements.track=none",
];

/// A server that has run for a while writes its log over old files, which is faster than making
/// new ones: here they are made first, 2 GB of them.
const MAKE_LOG_FILES: &str = "do $$ begin for file in 1..128 loop \
     perform pg_logical_emit_message(false, '', ''); perform pg_switch_wal(); end loop; end $$";

/// A server that is as fast as one that has run for a while.
pub(crate) fn start(place: &Path) -> Server {
    let server = Server::start_in(place, SETTINGS);
    server.sql(DATABASE, MAKE_LOG_FILES);
    server
}

/// Measures the PostgreSQL store.
pub(crate) fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.data)?;
    let file_system = machine::file_system(&options.data)?;
    let server = start(&options.data.canonicalize()?);
    let runtime = Runtime::new()?;
    let time = Duration::from_secs(options.seconds());

    let mut pairs = Table::new("Claim and complete, an answer of 1 KiB", None, COLUMNS);
    let mut replays = Table::new("Replays, 64 in flight", None, REPLAY_COLUMNS);
    for round in 1..=options.rounds() {
        eprintln!("round {round} of {}", options.rounds());
        let contenders = runtime.block_on(Contenders::start(&server, time))?;
        for in_flight in [1, 16, 64, 256] {
            for who in [OURS, UNPREPARED, PREPARED, PGBENCH] {
                let name = at(who, in_flight);
                if options.wants(&name) {
                    pairs.add(&name, runtime.block_on(contenders.pairs(who, in_flight))?);
                }
            }
        }
        for who in [OURS, PREPARED] {
            if options.wants(&format!("{who}, replays")) {
                replays.add(who, runtime.block_on(contenders.replays(who))?);
            }
        }
    }
    let mut targets = speed_targets(&pairs);
    let mut notes = vec![
        format!("The database is on {file_system}, on the same machine, reached over TCP."),
        format!("\"usual\" has a pool of {} connections.", usual::POOL),
    ];
    if options.long && options.wants("expiry") {
        eprintln!("expiry");
        let mut expiry = runtime.block_on(expiry::measure(&server))?;
        notes.push(expiry.note());
        targets.extend(expiry.targets());
    }
    if options.long && options.wants("churn") {
        eprintln!("churn");
        let churn = runtime.block_on(churn::measure(&server))?;
        notes.push(churn.note());
        targets.push(churn.target());
    }
    report::publish(options, &notes, &[pairs, replays], &targets)
}

/// All of them, with tables that are empty at first.
struct Contenders<'a> {
    server: &'a Server,
    time: Duration,
    ours: Arc<dyn FullStore>,
    unprepared: Arc<Usual>,
    prepared: Arc<Usual>,
}

impl<'a> Contenders<'a> {
    async fn start(server: &'a Server, time: Duration) -> Result<Self> {
        let ours = open(server).await?;
        usual::make_table(server);
        let unprepared = Arc::new(Usual::connect(server, Statements::Unprepared)?);
        let prepared = Arc::new(Usual::connect(server, Statements::Prepared)?);
        Ok(Self { server, time, ours, unprepared, prepared })
    }

    async fn pairs(&self, who: &str, in_flight: usize) -> Result<Sample> {
        match who {
            OURS => work::pairs(&self.ours, in_flight, self.time).await,
            UNPREPARED => work::pairs(&self.unprepared, in_flight, self.time).await,
            PREPARED => work::pairs(&self.prepared, in_flight, self.time).await,
            _ => pgbench::pairs(self.server, in_flight, self.time),
        }
    }

    async fn replays(&self, who: &str) -> Result<Sample> {
        match who {
            OURS => work::replays(&self.ours, 64, self.time).await,
            _ => work::replays(&self.prepared, 64, self.time).await,
        }
    }
}

fn at(who: &str, in_flight: usize) -> String {
    format!("{who}, {in_flight} in flight")
}

/// The store, over tables without a record.
async fn open(server: &Server) -> Result<Arc<dyn FullStore>> {
    server.sql(DATABASE, "drop schema if exists selfsame cascade");
    server.sql(DATABASE, "checkpoint");
    let url = server.url("postgres", DATABASE);
    Ok(Arc::new(PostgresStore::open(&url, PostgresOptions::default()).await?))
}

fn speed_targets(pairs: &Table) -> Vec<Target> {
    let times = |in_flight, base, least| {
        let found = pairs.ratio(&at(OURS, in_flight), &at(base, in_flight));
        Target::at_least(&format!("pairs at {in_flight}, of \"{base}\""), least, found)
    };
    let lone = pairs.ratio_of(PAIR_P50, &at(OURS, 1), &at(PREPARED, 1));
    let targets = [
        times(64, UNPREPARED, 3.5),
        times(64, PREPARED, 2.0),
        times(256, UNPREPARED, 7.0),
        times(256, PREPARED, 3.5),
        Target::below(&format!("p50 of a lone pair, of \"{PREPARED}\""), 1.3, lone),
    ];
    targets.into_iter().flatten().collect()
}
