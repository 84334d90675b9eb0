//! Selfsame's speed, as ratios to what is around it: `bench/run store`, `postgres`, `redis`, `setups`, `e2e`,
//! `attack` and `heads`; and what is lost by faults: `losses`.
//!
//! Nothing here passes or fails by time. What is compared is measured in turns within one run, so
//! that a slow moment of the machine meets all of it.

mod e2e;
mod figures;
mod losses;
mod machine;
mod postgres;
mod redis;
mod report;
mod setups;
mod store;
mod timing;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

#[derive(Parser)]
#[command(name = "bench/run", about)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

/// Selfsame's speed, as ratios to what is around it.
#[derive(clap::Subcommand)]
enum What {
    /// The stores: claims, completions and replays beside what the disk could do
    Store(Options),
    /// The PostgreSQL store beside what is usually written, on one server
    Postgres(Options),
    /// The Redis store beside what is usually written, on servers that keep more or less
    Redis(Options),
    /// The set-ups that one chooses between, beside each other
    Setups(Options),
    /// The gateway and the layer over real sockets, beside bare proxies and bare apps
    E2e(Options),
    /// The latency of honest clients while one hostile address does its worst
    Attack(Options),
    /// A search for the request that costs the most processor time
    Heads(Options),
    /// What a Redis store loses by faults, and whether it notices
    Losses(Options),
    #[command(hide = true)]
    Proxy { upstream: SocketAddr },
    #[command(hide = true)]
    App { protection: e2e::Protection },
    #[command(hide = true)]
    Attackers { attack: e2e::Attack, gateway: SocketAddr },
    #[command(hide = true)]
    Honest(e2e::HonestLoad),
    #[command(hide = true)]
    Idle(losses::Location),
    #[command(hide = true)]
    WriteUntilKilled { folder: PathBuf },
}

/// How long, how often, and where to.
#[derive(clap::Args)]
struct Options {
    /// How long each measurement takes [default: 4, or 10 with --long]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: Option<u64>,
    /// How often each measurement is made [default: 5, or 9 with --long]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: Option<u64>,
    /// Longer, and with a million records to expire
    #[arg(long)]
    long: bool,
    /// Where to write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where records are kept meanwhile: a disk, not memory
    #[arg(long, value_name = "FOLDER", default_value = "target/bench-data")]
    data: PathBuf,
    /// Number of keys with `store --only scale`
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Folder of the store that `store --only scale` fills and keeps. A later run goes on with it
    #[arg(long, value_name = "FOLDER")]
    filled: Option<PathBuf>,
    /// Only what has this in its name; of the stores: speed, size, expiry, scale; of PostgreSQL also churn
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// The gateway to measure
    #[arg(long, value_name = "FILE", default_value = "target/release/selfsame")]
    gateway: PathBuf,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.only)
    }

    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(if self.long { 10 } else { 4 })
    }

    fn rounds(&self) -> u64 {
        self.rounds.unwrap_or(if self.long { 9 } else { 5 })
    }
}

fn main() -> Result<()> {
    match Cli::parse().what {
        What::Store(options) => store::run(&options),
        What::Postgres(options) => postgres::run(&options),
        What::Redis(options) => redis::run(&options),
        What::Setups(options) => setups::run(&options),
        What::E2e(options) => e2e::run(&options),
        What::Attack(options) => e2e::run_attack(&options),
        What::Heads(options) => e2e::run_heads(&options),
        What::Losses(options) => losses::run(&options),
        What::Proxy { upstream } => e2e::serve_proxy(upstream),
        What::App { protection } => e2e::serve_app(protection),
        What::Attackers { attack, gateway } => e2e::serve_attackers(attack, gateway),
        What::Honest(load) => e2e::serve_honest(&load),
        What::Idle(location) => losses::serve_idle(&location),
        What::WriteUntilKilled { folder } => store::write_until_killed(&folder),
    }
}
