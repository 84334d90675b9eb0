//! `selfsame contract`: what clients may rely on, printed from a configuration.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;

use crate::config::{Config, Overrides};
use crate::contract::{Contract, Form};

/// Prints what clients may rely on, as they read it at /.well-known/idempotency.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The gateway's configuration [default: as without one]
    #[arg(long, env = "SELFSAME_CONFIG")]
    config: Option<PathBuf>,
    /// What to write it as
    #[arg(long, default_value = "markdown")]
    format: Form,
}

pub(crate) fn run(args: Args) -> Result<()> {
    // No client sees where the gateway sends and listens, so here it need not be known.
    let nowhere = Overrides {
        upstream: Some("http://upstream.invalid".to_owned()),
        listen: Some("127.0.0.1:0".to_owned()),
        admin: Some("127.0.0.1:0".to_owned()),
        ..Overrides::default()
    };
    let config = Config::load(args.config.as_deref(), &nowhere)?;
    let text = Contract::of(&config).render(args.format);
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
