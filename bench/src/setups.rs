//! `bench/run setups`: the set-ups that docs/STORES.md chooses between, in turns on one machine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use selfsame::stores::{
    EmbeddedOptions, EmbeddedStore, PostgresOptions, PostgresStore, RedisOptions, RedisStore,
    SplitStore, TieredOptions, TieredStore,
};
use selfsame_core::FullStore;
use selfsame_test_redis::{Cluster, Server as Redis};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::postgres;
use crate::report::{self, RATE, Table};
use crate::store::work::{self, PAIR_P50, PAIR_P99};
use crate::{Options, machine};

const PAIR_COLUMNS: &[&str] = &[RATE, PAIR_P50, PAIR_P99];
const REPLAY_COLUMNS: &[&str] = &[RATE, "p50 ms", "p99 ms"];

/// No file is written anew, and no snapshot made, in the middle of a measurement.
const QUIET: &[&str] = &["save ", "auto-aof-rewrite-percentage 0"];

/// Measures all set-ups.
pub(crate) fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.data)?;
    let place = options.data.canonicalize()?;
    let folders = TempDir::new_in(&place)?;
    let database = postgres::start(&place);
    let redis = |keeps: &[&str]| Redis::start_with(&[keeps, QUIET].concat());
    let everysec = redis(&["appendfsync everysec"]);
    let always = redis(&["appendfsync always"]);
    let cluster = Cluster::start_with(QUIET);
    let cache = redis(&["appendonly no"]);
    let locks = redis(&["appendfsync everysec"]);
    let runtime = Runtime::new()?;
    let time = Duration::from_secs(options.seconds());

    let file = EmbeddedStore::open(folders.path().join("keys"), EmbeddedOptions::default())?;
    let stores = runtime.block_on(async {
        let redis = async |url: &str, replicas| {
            RedisStore::open(url, RedisOptions::default().wait_replicas(replicas)).await
        };
        let url = database.url("postgres", "postgres");
        let postgres = Arc::new(PostgresStore::open(&url, PostgresOptions::default()).await?);
        let (durable, options) = (postgres.clone(), TieredOptions::default());
        let tiered = TieredStore::open(durable, &cache.url(0), options).await?;
        // In schemas of their own: all use the same keys.
        let options = PostgresOptions::default().schema("split");
        let answers = Arc::new(PostgresStore::open(&url, options).await?);
        let locks = locks.url(0);
        let split = SplitStore::open(answers, &locks, RedisOptions::default()).await?;
        let stores: Vec<(&str, Arc<dyn FullStore>)> = vec![
            ("file:", Arc::new(file)),
            ("postgres:", postgres),
            ("postgres: with cache_url", Arc::new(tiered)),
            ("the same, lock = \"redis\"", Arc::new(split)),
            ("redis: everysec", Arc::new(redis(&everysec.url(0), 0).await?)),
            ("redis: always", Arc::new(redis(&always.url(0), 0).await?)),
            ("redis-cluster: three masters", Arc::new(redis(&cluster.url(), 0).await?)),
            ("redis-cluster: wait_replicas = 1", Arc::new(redis(&cluster.url(), 1).await?)),
        ];
        anyhow::Ok(stores)
    })?;

    let mut lone = Table::new("Claim and complete, 1 in flight", None, PAIR_COLUMNS);
    let mut pairs = Table::new("Claim and complete, 64 in flight", None, PAIR_COLUMNS);
    let mut replays = Table::new("Replays, 64 in flight", None, REPLAY_COLUMNS);
    for round in 1..=options.rounds() {
        eprintln!("round {round} of {}", options.rounds());
        for (name, store) in stores.iter().filter(|(name, _)| options.wants(name)) {
            lone.add(name, runtime.block_on(work::pairs(store, 1, time))?);
            pairs.add(name, runtime.block_on(work::pairs(store, 64, time))?);
            replays.add(name, runtime.block_on(work::replays(store, 64, time))?);
        }
    }
    let file_system = machine::file_system(&place)?;
    let notes =
        [format!("All servers are on the same machine, and what they keep on {file_system}.")];
    report::publish(options, &notes, &[lone, pairs, replays], &[])
}
