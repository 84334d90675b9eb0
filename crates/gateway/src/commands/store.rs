//! `selfsame store migrate`: brings the schema of a database to the version of this build.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Subcommand;
use selfsame::stores::PostgresStore;
use tokio::runtime::Runtime;

use crate::config::{Config, Overrides, StoreUrl};
use crate::{installation, telemetry};

/// Brings a store up to date.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// The database, as the role that owns the schema: postgres://…
    #[arg(long, global = true, env = "SELFSAME_STORE", hide_env_values = true)]
    store: Option<String>,
    /// The same database past a pooler in transaction mode
    #[arg(long, global = true, env = "SELFSAME_STORE_DIRECT", hide_env_values = true)]
    store_direct: Option<String>,
    /// The gateway's configuration, to find the two above
    #[arg(long, global = true, env = "SELFSAME_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Makes the schema, or brings it to the version of this build, and says what it did
    Migrate,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let Action::Migrate = args.action;
    let overrides = Overrides {
        // It plays no part here; any will do to read the rest of a configuration.
        upstream: Some("http://upstream.invalid".to_owned()),
        store: args.store,
        store_direct: args.store_direct,
        ..Overrides::default()
    };
    let config = Config::load(args.config.as_deref(), &overrides)?;
    let StoreUrl::Postgres(url) = &config.store else {
        bail!("only a postgres: store has a schema; others are up to date once they are opened");
    };
    telemetry::log("warn");
    let options = installation::postgres_options(&config.database);
    let migrated = Runtime::new()?.block_on(PostgresStore::migrate(url.as_str(), options))?;
    match migrated.from {
        0 => println!("the schema was made: version {}", migrated.to),
        from if from == migrated.to => println!("nothing to do: the schema has version {from}"),
        from => println!("the schema was brought from version {from} to version {}", migrated.to),
    }
    Ok(())
}
