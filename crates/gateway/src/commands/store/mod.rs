//! `selfsame store`: what is done to a store beside the gateway.

mod adopt_clock;
mod backup;
mod copy;
mod info;
mod open;
mod reopen;
mod repair;
mod verify;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Subcommand;
use selfsame::stores::{EmbeddedOptions, EmbeddedStore, Leases, OpenError, PostgresStore};
use tokio::runtime::Runtime;

use self::open::{Accepting, Opened};
use self::repair::Repairing;
use super::admin_client;
use crate::config::{Config, Overrides, StoreUrl};
use crate::{installation, telemetry};

/// Looks into a store, verifies it, backs it up, copies it, brings it up to date, repairs or restores one, takes
/// damaged records out of one, or reopens one that has lost records.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// The store: file:PATH, rediss://…, or postgres://… as the role that owns the schema
    #[arg(long, global = true, env = "SELFSAME_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Address of the same database past a pooler in transaction mode
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
    /// Tells what is in a store, and who uses it. It reads every record
    Info {
        /// The store [default: as --store or the configuration says]
        #[arg(value_name = "URL")]
        url: Option<String>,
    },
    /// Reads all of a file: store that no gateway serves, or of a backup, and lists what is damaged. It
    /// changes nothing, and fails if anything is damaged
    Verify,
    /// Copies a file: store to a new folder, verified, while the gateway serves it, or without one
    Backup {
        /// The folder, missing or empty; where a gateway serves, on its machine
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        #[command(flatten)]
        admin: admin_client::Options,
    },
    /// Copies all records, with the secret that makes keys what they are, into an empty store, while nobody
    /// uses either. Cut off, it goes on when it is run again
    Copy {
        /// The store to copy from: file:PATH, postgres://… or redis://…
        from: String,
        /// The store to copy to, empty or missing
        to: String,
        #[command(flatten)]
        accepting: Accepting,
    },
    /// Forgets the damaged record with this id: its key is new then. For a file: store, and while no
    /// gateway serves it
    ForgetDamaged {
        /// The record's id, or how it begins, as the gateway's log names it
        #[arg(value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
        id: String,
    },
    /// Makes the time of a file: store that of the wall clock again, while no gateway serves it.
    /// Keys that expire between the two times are new then
    AdoptClock {
        /// Does not ask whether that is meant
        #[arg(long)]
        yes: bool,
    },
    /// Makes a damaged file: store one that opens again, of all that can be read, while no gateway serves it. Keys
    /// that it does not know are refused until those that are lost would have expired
    Repair {
        #[command(flatten)]
        repairing: Repairing,
    },
    /// Makes a file: store of a backup, or of another copy of a folder, which stays as it is. Keys that it does
    /// not know are refused until those that were used since the copy was made have expired
    Restore {
        /// The folder of the copy
        backup: PathBuf,
        #[command(flatten)]
        repairing: Repairing,
    },
    /// Takes new keys again in a store that has lost records: in a Redis at once and for all nodes, in a file:
    /// store while no gateway serves it. Keys that were lost are new then: whatever is asked for again under one
    /// of them runs a second time
    Reopen {
        /// Does not ask whether that is meant
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) fn run(args: Args) -> Result<()> {
    telemetry::log("warn");
    let (path, direct) = (args.config, args.store_direct);
    let configured = |store: Option<String>| {
        let overrides = Overrides {
            // It plays no part here; any will do to read the rest of a configuration.
            upstream: Some("http://upstream.invalid".to_owned()),
            store,
            store_direct: direct.clone(),
            ..Overrides::default()
        };
        Config::load(path.as_deref(), &overrides)
    };
    match args.action {
        Action::Verify => verify::verify(&configured(args.store)?),
        Action::Backup { folder, admin } => {
            backup::backup(&configured(args.store)?, &admin, &folder)
        }
        Action::Migrate => migrate(&configured(args.store)?),
        Action::Info { url } => info(&configured(url.or(args.store))?.store),
        Action::Copy { from, to, accepting } => copy(&store_at(from)?, &store_at(to)?, accepting),
        Action::ForgetDamaged { id } => forget_damaged(&configured(args.store)?, &id),
        Action::AdoptClock { yes } => adopt_clock::adopt(&configured(args.store)?, yes),
        Action::Repair { repairing } => repair::repair(&configured(args.store)?, &repairing),
        Action::Restore { backup, repairing } => {
            repair::restore(&configured(args.store)?, &backup, &repairing)
        }
        Action::Reopen { yes } => reopen::reopen(&configured(args.store)?, yes),
    }
}

/// The store with this address, whatever a configuration says.
fn store_at(url: String) -> Result<StoreUrl> {
    let upstream = Some("http://upstream.invalid".to_owned());
    let overrides = Overrides { upstream, store: Some(url), ..Overrides::default() };
    Ok(Config::load(None, &overrides)?.store)
}

fn info(url: &StoreUrl) -> Result<()> {
    Runtime::new()?.block_on(async {
        let facts = match Opened::existing(url).await {
            Ok(opened) => info::info(&opened).await?,
            Err(error) => match error.downcast_ref() {
                Some(OpenError::InUse { holder, .. }) => info::in_use(&url.shown(), holder),
                _ => return Err(error),
            },
        };
        print!("{facts}");
        Ok(())
    })
}

fn copy(from: &StoreUrl, to: &StoreUrl, accepting: Accepting) -> Result<()> {
    if from.shown() == to.shown() {
        bail!("{} cannot be copied to itself", from.shown());
    }
    if let StoreUrl::File(_) = from {
        spool_is_empty(&from.spool())?;
    }
    Runtime::new()?.block_on(async {
        let from = Opened::existing(from).await?;
        // Before the target is made, for nothing.
        from.must_be_idle().await?;
        from.must_stay_closed_in(to)?;
        let to = Opened::new(to, accepting).await?;
        from.must_not_be_behind(&to)?;
        let copied = copy::copy(&from, &to).await?;
        println!("copied: {} records are in {}, each read back", copied.records, to.place);
        if copied.known > 0 {
            println!("{} of them were there from an earlier copy", copied.known);
        }
        if copied.expired > 0 {
            println!("{} had expired and were left behind", copied.expired);
        }
        Ok(())
    })
}

/// Answers in the spool are not in the store yet.
fn spool_is_empty(spool: &Path) -> Result<()> {
    let waiting = std::fs::read_dir(spool).map_or(0, Iterator::count);
    if waiting > 0 {
        bail!(
            "{} answers in {} are not recorded yet: start the gateway once, so that they are",
            waiting,
            spool.display()
        );
    }
    Ok(())
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
    let options = EmbeddedOptions::default().leases(Leases::Keep).leave_kept_time();
    let store = EmbeddedStore::open(folder, options)?;
    match Runtime::new()?.block_on(store.forget_damaged(id))? {
        0 => bail!("no damaged record's id begins with {id}; nothing was changed"),
        1 => println!("forgotten: its key is new"),
        count => println!("{count} records are forgotten: their keys are new"),
    }
    Ok(())
}
