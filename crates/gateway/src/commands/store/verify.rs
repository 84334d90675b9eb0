//! `selfsame store verify`: reads all of a store in a folder that nobody serves, and changes nothing.

use anyhow::{Result, anyhow, bail};
use selfsame::stores::{EmbeddedStore, OpenError, Verified};

use super::open::must_have_log;
use crate::config::{Config, StoreUrl};
use crate::printable::printable;

/// Damaged places that are printed.
const PRINTED_MAX: usize = 1000;

/// Fails where anything is damaged.
pub(super) fn verify(config: &Config) -> Result<()> {
    let StoreUrl::File(folder) = &config.store else {
        bail!("only a file: store is verified by this; others are verified by their servers");
    };
    must_have_log(&config.store)?;
    let verified = EmbeddedStore::verify(folder).map_err(|error| match error {
        OpenError::InUse { .. } => anyhow!(
            "{error}. A gateway verifies the store that it serves by itself: see verify_every, and \
             selfsame_store_damaged_records in its /metrics"
        ),
        error => error.into(),
    })?;
    let Verified { records, bytes, damage, damaged_places, .. } = &verified;
    for place in damage.iter().take(PRINTED_MAX) {
        println!("damaged: {}", printable(&place.to_string()));
    }
    let printed = damage.len().min(PRINTED_MAX) as u64;
    if *damaged_places > printed {
        println!("and {} more", damaged_places - printed);
    }
    println!("read: {records} records that have not expired, {bytes} bytes in all");
    if !verified.is_sound() {
        bail!(
            "damaged places: {damaged_places}, in {} records that are known. Look at the disk first. A store \
             that a gateway does not start on is mended by `selfsame store repair`. A damaged record by itself \
             is refused until you decide: see `selfsame store forget-damaged`",
            verified.damaged_records()
        );
    }
    println!("sound: all of it is what was written");
    Ok(())
}
