//! `selfsame config`: every mistake of a configuration, and what one may hold, without starting
//! anything.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Subcommand;
use selfsame::seal::Keyring;

use crate::config::{self, Config, Overrides};
use crate::live::Origin;
use crate::{secret_files, tls};

mod trial;

/// What a configuration may hold, and whether one is right.
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
        /// A request like "POST /v1/charges" or "POST api.example.com/v1/charges": tells which route
        /// takes it, and with which settings. May be given several times
        #[arg(long = "try", value_name = "METHOD PATH")]
        tries: Vec<String>,
    },
    /// Prints what a file may hold, as a JSON Schema for editors and other programs
    Schema,
    /// Prints a new key for encryption, as a line to be put at the top of the key file
    NewKey {
        /// What the key is called in that file; a name is used once
        #[arg(value_name = "ID")]
        id: String,
    },
}

pub(crate) fn run(args: Args) -> Result<()> {
    match args.action {
        Action::Check { file, tries } => {
            let config = Config::load(Some(&file), &Overrides::default())?;
            for (table, tls) in [("tls", &config.tls), ("admin_tls", &config.admin_tls)] {
                if let Some(warning) = tls.as_ref().and_then(tls::warning) {
                    eprintln!("selfsame: warning: {table}.cert: {warning}");
                }
            }
            if let Some(warning) = config.admin_warning() {
                eprintln!("selfsame: warning: {warning}");
            }
            let origin = Origin { path: Some(file.clone()), ..Origin::default() };
            for file in secret_files::open_to_everybody(&config, &origin) {
                eprintln!("selfsame: warning: {file}");
            }
            println!("{}: no mistakes; routes: {}", file.display(), config.routes.len());
            for text in &tries {
                writeln!(std::io::stdout(), "\n{}", trial::explain(&config, text)?)?;
            }
        }
        Action::NewKey { id } => {
            let line = Keyring::new_line(&id).map_err(|_| {
                anyhow!("{id:?} cannot name a key: use up to 32 letters, digits, dots, dashes or underscores")
            })?;
            writeln!(std::io::stdout(), "{line}")?;
        }
        Action::Schema => writeln!(std::io::stdout(), "{:#}", config::schema())?,
    }
    Ok(())
}
