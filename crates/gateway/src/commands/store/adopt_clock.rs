//! `selfsame store adopt-clock`: makes the time of a store in a folder that of the wall clock
//! again.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use selfsame::stores::{EmbeddedOptions, EmbeddedStore, Leases};

use super::open::must_have_log;
use crate::config::{Config, StoreUrl};

/// Differences that are not worth a word.
const SMALL_MS: u64 = 1000;

pub(super) fn adopt(config: &Config, yes: bool) -> Result<()> {
    let StoreUrl::File(folder) = &config.store else {
        bail!("only a file: store keeps a time of its own; others go by their server's clock");
    };
    must_have_log(&config.store)?;
    let ahead_ms = offset_ms(folder, options().leave_kept_time())?;
    let difference =
        humantime::format_duration(Duration::from_secs((ahead_ms.unsigned_abs() + 500) / 1000));
    if ahead_ms < 0 && ahead_ms.unsigned_abs() > SMALL_MS {
        bail!(
            "the store's time is {difference} ahead of the wall clock, and never goes back; \
             nothing was changed. Keys last as long as they should; only dates that are shown are \
             ahead by it"
        );
    }
    if ahead_ms.unsigned_abs() > SMALL_MS && !yes && !is_meant(&difference.to_string())? {
        bail!("nothing was changed");
    }
    offset_ms(folder, options().adopt_wall_clock())?;
    println!("the store's time is the wall clock's: it went forward by {difference}");
    Ok(())
}

fn options() -> EmbeddedOptions {
    EmbeddedOptions::default().leases(Leases::Keep)
}

/// How far the wall clock is ahead of the store's time, in a store that is opened and closed.
fn offset_ms(folder: &Path, options: EmbeddedOptions) -> Result<i64> {
    Ok(EmbeddedStore::open(folder, options)?.clock_offset_ms())
}

/// Asks whoever sits at the terminal.
fn is_meant(difference: &str) -> Result<bool> {
    eprint!(
        "The wall clock is {difference} ahead of the store's time. Keys that expire within that \
         time are new once the store follows the clock: whatever clients ask for again under one \
         of them runs a second time.\n\
         Is the clock right, and is that meant? Write yes: "
    );
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
