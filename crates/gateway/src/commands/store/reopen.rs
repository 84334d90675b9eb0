//! `selfsame store reopen`: ends the time in which a Redis that has lost records takes no new key.

use anyhow::{Result, bail};
use selfsame::stores::RedisStore;
use tokio::runtime::Runtime;

use crate::config::{Config, Lock, StoreUrl};
use crate::installation;

pub(super) fn reopen(config: &Config, yes: bool) -> Result<()> {
    let url = match (&config.store, &config.cache, config.lock) {
        (StoreUrl::Redis(url), ..) | (_, Some(url), Lock::Redis) => url,
        _ => bail!("only a Redis that has claims is closed when it has lost records"),
    };
    if !yes && !is_meant()? {
        bail!("nothing was changed");
    }
    let options = installation::redis_options(config);
    match Runtime::new()?.block_on(RedisStore::reopen(url.as_str(), options))? {
        0 => println!("nothing to do: new keys are taken already"),
        _ => println!("reopened: new keys are taken again, by all nodes"),
    }
    Ok(())
}

/// Asks whoever sits at the terminal.
fn is_meant() -> Result<bool> {
    eprint!(
        "Redis has lost records. Keys that were lost are new once it is reopened: whatever clients ask for again \
         under one of them runs a second time.\nReopen it for all nodes? Write yes: "
    );
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
