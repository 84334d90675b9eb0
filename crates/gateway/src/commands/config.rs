//! `selfsame config check`: every mistake of a configuration, without starting anything.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use crate::config::{Config, Overrides};

/// Checks a configuration without starting anything.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Reports every mistake of a file, each with its line
    Check {
        /// The TOML file
        file: PathBuf,
    },
}

pub(crate) fn run(args: Args) -> Result<()> {
    let Action::Check { file } = args.action;
    let config = Config::load(Some(&file), &Overrides::default())?;
    println!("{}: no mistakes; routes: {}", file.display(), config.routes.len());
    Ok(())
}
