//! `bench/run redis`: the Redis store beside what is usually written, on servers that keep more or less.

mod bare;
mod usual;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_core::FullStore;
use selfsame_test_redis::Server;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::usual::Usual;
use crate::report::{self, RATE, Sample, Table, Target};
use crate::store::work::{self, PAIR_P50, PAIR_P99};
use crate::{Options, machine};

const CLAIM_P50: &str = "claim p50 ms";
/// For each pair: of this process, callers and all, and of Redis.
const CLIENT_CPU: &str = "client CPU µs";
const REDIS_CPU: &str = "Redis CPU µs";
const COLUMNS: &[&str] =
    &[RATE, PAIR_P50, PAIR_P99, CLAIM_P50, "claim p99 ms", CLIENT_CPU, REDIS_CPU];
const PLAIN_COLUMNS: &[&str] = &[RATE, "p50 ms", "p99 ms"];

const OURS: &str = "selfsame";
const USUAL: &str = "usual";
const ALWAYS: &str = "always";

/// What a server keeps, by what is said of it.
const SERVERS: [(&str, &[&str]); 3] = [
    (ALWAYS, &["appendfsync always"]),
    ("everysec", &["appendfsync everysec"]),
    ("nothing", &["appendonly no", "appendfsync no"]),
];

/// How a server is filled by Redis' own benchmark: connections, and how many SETs each has in flight.
const BARE: [(usize, usize); 2] = [(64, 1), (16, 16)];

/// Measures the Redis store.
pub(crate) fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.data)?;
    let file_system = machine::file_system(&options.data)?;
    let contenders = SERVERS.map(|(keeps, settings)| Contenders::start(options, keeps, settings));
    let contenders = contenders.into_iter().collect::<Result<Vec<_>>>()?;
    let runtime = Runtime::new()?;
    let time = Duration::from_secs(options.seconds());

    let mut pairs = Table::new("Claim and complete, an answer of 1 KiB", None, COLUMNS);
    let mut sets = Table::new("SET of 1 KiB", None, PLAIN_COLUMNS);
    let mut replays = Table::new("Replays, 64 in flight", None, PLAIN_COLUMNS);
    for round in 1..=options.rounds() {
        eprintln!("round {round} of {}", options.rounds());
        let opened = contenders.iter().map(|contender| runtime.block_on(contender.open()));
        let opened = opened.collect::<Result<Vec<_>>>()?;
        for in_flight in [1, 16, 64, 256] {
            for (Contenders { keeps, server, .. }, (ours, usual)) in contenders.iter().zip(&opened)
            {
                let name = at(keeps, OURS, in_flight);
                if options.wants(&name) {
                    let pair = measured(server, time, work::pairs(ours, in_flight, time));
                    pairs.add(&name, runtime.block_on(pair)?);
                }
                let name = at(keeps, USUAL, in_flight);
                if options.wants(&name) {
                    let pair = measured(server, time, work::pairs(usual, in_flight, time));
                    pairs.add(&name, runtime.block_on(pair)?);
                }
            }
        }
        for (Contenders { keeps, server, .. }, (ours, usual)) in contenders.iter().zip(&opened) {
            if options.wants(&lone_set(keeps)) {
                sets.add(&lone_set(keeps), runtime.block_on(usual.sets(time))?);
            }
            for (connections, each) in BARE {
                let name = format!("{keeps}: redis-benchmark -c {connections} -P {each}");
                if options.wants(&name) {
                    sets.add(&name, bare::sets(server, connections, each, time)?);
                }
            }
            let name = format!("{keeps}: {OURS}, replays");
            if options.wants(&name) {
                replays.add(&name, runtime.block_on(work::replays(ours, 64, time))?);
            }
            let name = format!("{keeps}: {USUAL}, replays");
            if options.wants(&name) {
                replays.add(&name, runtime.block_on(work::replays(usual, 64, time))?);
            }
        }
    }
    let notes = [
        format!(
            "Redis is on the same machine, reached over TCP; what it keeps is on {file_system}."
        ),
        format!("\"{USUAL}\" has a pool of {} connections.", usual::POOL),
    ];
    let targets = speed_targets(&pairs, &sets);
    report::publish(options, &notes, &[pairs, sets, replays], &targets)
}

/// A server, and who takes turns on it.
struct Contenders {
    keeps: &'static str,
    server: Server,
    _data: TempDir,
}

impl Contenders {
    fn start(options: &Options, keeps: &'static str, settings: &[&str]) -> Result<Self> {
        let data = tempfile::Builder::new().prefix("redis-").tempdir_in(&options.data)?;
        let dir = format!("dir {}", data.path().canonicalize()?.display());
        // No snapshot, and no file written anew, in the middle of a measurement.
        let quiet = ["save ", "auto-aof-rewrite-percentage 0", &dir];
        let settings: Vec<_> = settings.iter().chain(&quiet).copied().collect();
        Ok(Self { keeps, server: Server::start_with(&settings), _data: data })
    }

    /// Ours and the usual, without a record.
    async fn open(&self) -> Result<(Arc<dyn FullStore>, Arc<Usual>)> {
        self.server.command(0, &["flushall"]);
        self.server.command(0, &["bgrewriteaof"]);
        let is_busy = |server: &Server| {
            let said = server.command(0, &["info", "persistence"]);
            said.contains("rewrite_in_progress:1") || said.contains("rewrite_scheduled:1")
        };
        while is_busy(&self.server) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let url = self.server.url(0);
        let ours = RedisStore::open(&url, RedisOptions::default()).await;
        let ours = match ours {
            Err(_) => RedisStore::open(&url, RedisOptions::default().accept_loss()).await?,
            Ok(ours) => ours,
        };
        Ok((Arc::new(ours), Arc::new(Usual::connect(&url).await?)))
    }
}

/// What was found, and what it took of the processor.
async fn measured(
    server: &Server,
    time: Duration,
    work: impl Future<Output = Result<Sample>>,
) -> Result<Sample> {
    let cpu = || [machine::cpu_seconds(std::process::id()), redis_cpu_seconds(server)];
    let before = cpu();
    let mut sample = work.await?;
    let after = cpu();
    let rate = sample.iter().find(|(name, _)| *name == RATE).map_or(0.0, |(_, rate)| *rate);
    for (at, name) in [CLIENT_CPU, REDIS_CPU].into_iter().enumerate() {
        sample.push((name, (after[at] - before[at]) * 1e6 / (rate * time.as_secs_f64())));
    }
    Ok(sample)
}

fn redis_cpu_seconds(server: &Server) -> f64 {
    let said = server.command(0, &["info", "cpu"]);
    let of = |line: &str| {
        let (name, seconds) = line.split_once(':')?;
        let is_own = matches!(name, "used_cpu_sys" | "used_cpu_user");
        seconds.trim().parse::<f64>().ok().filter(|_| is_own)
    };
    said.lines().filter_map(of).sum()
}

fn at(keeps: &str, who: &str, in_flight: usize) -> String {
    format!("{keeps}: {who}, {in_flight} in flight")
}

fn lone_set(keeps: &str) -> String {
    format!("{keeps}: a lone SET")
}

fn speed_targets(pairs: &Table, sets: &Table) -> Vec<Target> {
    let times = |in_flight, least| {
        let found = pairs.ratio(&at(ALWAYS, OURS, in_flight), &at(ALWAYS, USUAL, in_flight));
        Target::at_least(&format!("{ALWAYS}: pairs at {in_flight}, of \"{USUAL}\""), least, found)
    };
    let lone = |keeps| {
        let claim = (pairs, &at(keeps, OURS, 1)[..], CLAIM_P50);
        let found = Table::ratio_between(claim, (sets, &lone_set(keeps), "p50 ms"));
        Target::below(&format!("{keeps}: p50 of a lone claim, of a lone SET"), 1.5, found)
    };
    let lone = SERVERS.map(|(keeps, _)| lone(keeps));
    [times(64, 1.2), times(256, 2.0)].into_iter().chain(lone).flatten().collect()
}
