//! `selfsame store repair` and `selfsame store restore`: a store of what can be read of a damaged folder, or
//! of a copy.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use selfsame::Spool;
use selfsame::stores::{EmbeddedOptions, EmbeddedStore, RepairOptions, Repaired};
use tokio::runtime::Runtime;

use crate::config::{Config, StoreUrl};
use crate::installation;

/// Options for a repair, and for restoring a copy.
#[derive(Debug, clap::Args)]
pub(super) struct Repairing {
    /// How long keys that the store does not know are refused [default: the longest retention of the
    /// records and of the configuration, and at least 24h]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    retention: Option<Duration>,
    /// Goes on without the file that has the installation's secret: no key is known again, unless a
    /// secret_file is configured
    #[arg(long)]
    accept_lost_facts: bool,
}

pub(super) fn repair(config: &Config, repairing: &Repairing) -> Result<()> {
    let (folder, options) = (folder(config)?, options(config, repairing));
    let repair = EmbeddedStore::repair(folder, EmbeddedOptions::default(), options);
    match Runtime::new()?.block_on(repair)? {
        Some(repaired) => print!("repaired: {}", summary(&repaired)),
        None => println!(
            "nothing to repair: the store in {} opens. `selfsame store info` reads every record",
            config.store.shown()
        ),
    }
    Ok(())
}

pub(super) fn restore(config: &Config, backup: &Path, repairing: &Repairing) -> Result<()> {
    let (folder, options) = (folder(config)?, options(config, repairing));
    let restore = EmbeddedStore::restore(backup, folder, EmbeddedOptions::default(), options);
    let restored = Runtime::new()?.block_on(restore)?;
    print!("restored to {}: {}", config.store.shown(), summary(&restored));
    Ok(())
}

fn folder(config: &Config) -> Result<&Path> {
    match &config.store {
        StoreUrl::File(folder) => Ok(folder),
        _ => bail!("only a file: store is repaired, or restored from a copy; others are servers"),
    }
}

fn options(config: &Config, repairing: &Repairing) -> RepairOptions {
    let longest_life = installation::longest(config, |settings| {
        settings.retention.saturating_add(settings.remember)
    });
    let mut options = RepairOptions::default().longest_life(longest_life);
    if let Some(retention) = repairing.retention {
        options = options.closed_for(retention);
    }
    if repairing.accept_lost_facts || config.secret_file.is_some() {
        options = options.accept_lost_facts();
    }
    match &config.spool {
        Some(spool) => options.spool(Spool::new(spool)),
        None => options,
    }
}

/// Report of what was done.
fn summary(repaired: &Repaired) -> String {
    let Repaired { completed, held, newly_held, tombstones, damaged, expired, .. } = repaired;
    let places = repaired.damaged_places;
    let closed_for = Duration::from_secs(repaired.closed_for.as_secs());
    let closed_for = humantime::format_duration(closed_for);
    let mut text = format!(
        "{} records\n\
         completed  {completed}, which are answered as before\n\
         held       {held} as before, {newly_held} more because their outcome may be lost: see \
         `selfsame keys show`\n\
         tombstones {tombstones}\n\
         damaged    {damaged}, which are refused (record-damaged)\n\
         expired    {expired}, which were left behind\n\
         closed     for {closed_for}: until then keys that the store does not know are refused, \
         because they may be lost ones. `selfsame store reopen` ends it\n",
        completed + held + newly_held + tombstones + damaged,
    );
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "{name:<10} {value}").expect("a text takes what is written");
    };
    if places > 0 {
        line("unreadable", &format_args!("parts of the log: {places}"));
    }
    for place in &repaired.first_places {
        line("", place);
    }
    if let Some(folder) = &repaired.set_aside {
        let what = "has the damaged files: delete it once you do not need it any more";
        line("set aside", &format_args!("{} {what}", folder.display()));
    }
    text
}
