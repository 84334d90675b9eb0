//! ```text
//! cargo run -p rocket-rides -- processor --database postgres://…
//! cargo run -p rocket-rides -- serve     --database postgres://…
//! cargo run -p rocket-rides -- simulate  --rides 100
//! ```

use clap::{Parser, Subcommand};
use rocket_rides::{processor, rides, simulator};

/// A ride service whose requests can be interrupted anywhere and are finished once.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Takes orders for rides.
    Serve(rides::Settings),
    /// Charges cards, once for each key.
    Processor(processor::Settings),
    /// Orders rides over a bad network, and retries until each is answered.
    Simulate(simulator::Settings),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing_level()).init();
    match Arguments::parse().command {
        Command::Serve(settings) => rides::serve(settings).await,
        Command::Processor(settings) => processor::serve(settings).await,
        Command::Simulate(settings) => {
            let report = simulator::simulate(&settings, || false).await;
            println!("{report}");
            Ok(())
        }
    }
}

fn tracing_level() -> tracing_subscriber::filter::LevelFilter {
    tracing_subscriber::filter::LevelFilter::WARN
}
