//! `selfsame demo`: a double payment, and how it is prevented.
//!
//! | file | what it holds |
//! |---|---|
//! | `tour` | the demo to try by hand: an API, a gateway before it, and lines to paste |
//! | `story` | the demo that plays by itself, and fails if Selfsame does |
//! | `bank` | the payments API, with its ledger |
//! | `client` | who pays, and who hangs up |
//! | `process` | the gateway as a process of its own, to be killed |
//! | `stage` | how it looks: colours where a person watches, plain lines elsewhere |

mod bank;
mod client;
mod process;
mod stage;
mod story;
mod tour;

use std::path::PathBuf;

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::shutdown::Shutdown;
use crate::telemetry;
use stage::{Pace, Stage};

/// Shows a double payment, and how it is prevented.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Tells the story by itself, then ends
    #[arg(long, conflicts_with_all = ["listen", "data"])]
    play: bool,
    /// Without pauses between the scenes
    #[arg(long, requires = "play")]
    fast: bool,
    /// Where requests come in [default: 127.0.0.1:8080, or a free port]
    #[arg(long)]
    listen: Option<String>,
    /// A folder that keeps the keys after the end [default: a temporary one]
    #[arg(long)]
    data: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<()> {
    // The demo has its own words; only what is wrong may come between them.
    telemetry::log("warn");
    let stage = Stage::on_stdout(if args.fast { Pace::Fast } else { Pace::ForPeople });
    // Made first, and so removed last, when nothing of the gateway is left.
    let folder = tempfile::Builder::new().prefix("selfsame-demo-").tempdir()?;
    Runtime::new()?.block_on(async {
        let shutdown = Shutdown::on_signal()?;
        if !args.play {
            let data = args.data.unwrap_or_else(|| folder.path().join("data"));
            return tour::run(&stage, args.listen, &data, shutdown).await;
        }
        tokio::select! {
            told = story::tell(&stage, folder.path()) => told,
            // The story is dropped where it stands, and its gateway with it.
            () = shutdown.announced.cancelled() => anyhow::bail!("told to stop before the story was over"),
        }
    })
}
