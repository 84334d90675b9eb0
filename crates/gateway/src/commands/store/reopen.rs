//! `selfsame store reopen`: ends the time in which a store that has lost records takes no key that it
//! does not know.

use std::path::Path;

use anyhow::{Result, bail};
use selfsame::stores::{EmbeddedOptions, EmbeddedStore, Leases, RedisStore};
use tokio::runtime::Runtime;

use super::open::must_have_log;
use crate::config::{Config, Lock, RedisUrl, StoreUrl};
use crate::installation;

pub(super) fn reopen(config: &Config, yes: bool) -> Result<()> {
    match (&config.store, &config.cache, config.lock) {
        (StoreUrl::Redis(url), ..) | (_, Some(url), Lock::Redis) => reopen_redis(config, url, yes),
        (StoreUrl::File(folder), ..) => reopen_folder(config, folder, yes),
        _ => bail!(
            "only a file: store, and a Redis that has claims, are closed when they have lost records"
        ),
    }
}

fn reopen_redis(config: &Config, url: &RedisUrl, yes: bool) -> Result<()> {
    if !yes && !is_meant("Redis has", "Reopen it for all nodes?")? {
        bail!("nothing was changed");
    }
    let options = installation::redis_options(config);
    match Runtime::new()?.block_on(RedisStore::reopen(url.as_str(), options))? {
        0 => println!("nothing to do: new keys are taken already"),
        _ => println!("reopened: new keys are taken again, by all nodes"),
    }
    Ok(())
}

/// The folder is locked meanwhile: no gateway serves it.
fn reopen_folder(config: &Config, folder: &Path, yes: bool) -> Result<()> {
    must_have_log(&config.store)?;
    let options = EmbeddedOptions::default().leases(Leases::Keep).leave_kept_time();
    let store = EmbeddedStore::open(folder, options)?;
    if store.health().closed_for().is_none() {
        println!("nothing to do: new keys are taken already");
        return Ok(());
    }
    if !yes && !is_meant("The store has", "Reopen it?")? {
        bail!("nothing was changed");
    }
    Runtime::new()?.block_on(store.reopen())?;
    println!("reopened: new keys are taken again from the next start on");
    Ok(())
}

/// Asks whoever sits at the terminal.
fn is_meant(loser: &str, question: &str) -> Result<bool> {
    eprint!(
        "{loser} lost records. Keys that were lost are new once it is reopened: whatever clients ask \
         for again under one of them runs a second time.\n{question} Write yes: "
    );
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
