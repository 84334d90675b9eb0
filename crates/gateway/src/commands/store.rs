//! `selfsame store`: what is done to a store beside the gateway.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Subcommand;
use selfsame::stores::{EmbeddedOptions, EmbeddedStore, Leases, PostgresStore};
use tokio::runtime::Runtime;

use crate::config::{Config, Overrides, StoreUrl};
use crate::{installation, telemetry};

/// Brings a store up to date, or takes damaged records out of one.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// The store: file:PATH, or postgres://… as the role that owns the schema
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
    /// Forgets the damaged record with this id: its key is new then. For a file: store, and while no
    /// gateway serves it
    ForgetDamaged {
        /// The record's id, or how it begins, as the gateway's log names it
        #[arg(value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
        id: String,
    },
}

pub(crate) fn run(args: Args) -> Result<()> {
    let overrides = Overrides {
        // It plays no part here; any will do to read the rest of a configuration.
        upstream: Some("http://upstream.invalid".to_owned()),
        store: args.store,
        store_direct: args.store_direct,
        ..Overrides::default()
    };
    let config = Config::load(args.config.as_deref(), &overrides)?;
    telemetry::log("warn");
    match args.action {
        Action::Migrate => migrate(&config),
        Action::ForgetDamaged { id } => forget_damaged(&config, &id),
    }
}

fn migrate(config: &Config) -> Result<()> {
    let StoreUrl::Postgres(url) = &config.store else {
        bail!("only a postgres: store has a schema; others are up to date once they are opened");
    };
    let options = installation::postgres_options(&config.database);
    let migrated = Runtime::new()?.block_on(PostgresStore::migrate(url.as_str(), options))?;
    match migrated.from {
        0 => println!("the schema was made: version {}", migrated.to),
        from if from == migrated.to => println!("nothing to do: the schema has version {from}"),
        from => println!("the schema was brought from version {from} to version {}", migrated.to),
    }
    Ok(())
}

fn forget_damaged(config: &Config, id: &str) -> Result<()> {
    let StoreUrl::File(folder) = &config.store else {
        bail!("only in a file: store; docs/REDIS.md says how to in Redis");
    };
    let store = EmbeddedStore::open(folder, EmbeddedOptions::default().leases(Leases::Keep))?;
    match Runtime::new()?.block_on(store.forget_damaged(id))? {
        0 => bail!("no damaged record's id begins with {id}; nothing was changed"),
        1 => println!("forgotten: its key is new"),
        count => println!("{count} records are forgotten: their keys are new"),
    }
    Ok(())
}
