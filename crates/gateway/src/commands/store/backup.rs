//! `selfsame store backup`: a copy of a store in a folder, by the gateway that serves it, or without one.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use selfsame::admin::date;
use selfsame::stores::{EmbeddedOptions, EmbeddedStore, Leases, OpenError};
use tokio::runtime::Runtime;

use super::open::must_have_log;
use crate::admin::backup::{BackupRequest, BackupState, BackupView, back_up};
use crate::commands::admin_client::{AdminClient, Options};
use crate::config::{Config, StoreUrl};
use crate::printable::printable;

/// Pause between two looks at how far the backup has come.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) fn backup(config: &Config, admin: &Options, folder: &Path) -> Result<()> {
    let StoreUrl::File(store) = &config.store else {
        bail!(
            "only a file: store is backed up by this; a database and a Redis have backups of their own"
        );
    };
    // The gateway has a working folder of its own.
    let folder = std::path::absolute(folder)?;
    Runtime::new()?.block_on(async {
        if admin.admin.is_some() {
            return by_gateway(config, admin, &folder).await;
        }
        must_have_log(&config.store)?;
        let options = EmbeddedOptions::default().leases(Leases::Keep).leave_kept_time();
        let opened = match EmbeddedStore::open(store, options) {
            Err(OpenError::InUse { .. }) => return by_gateway(config, admin, &folder).await,
            opened => opened?,
        };
        let made = back_up(&opened, &folder).await?;
        show(&folder, made.records, made.bytes, &date(made.made), made.damaged);
        Ok(())
    })
}

/// Has the gateway that serves the store make the backup, and waits until it is done.
async fn by_gateway(config: &Config, admin: &Options, folder: &Path) -> Result<()> {
    let client = AdminClient::new(admin, config)?;
    let request = BackupRequest { folder: folder.to_owned() };
    let mut view = client.post("/api/v1/backup", &request).await?;
    loop {
        let BackupView { folder: of, state, bytes, made, records, damaged, error } =
            serde_json::from_slice(&view)
                .context("the admin API answered something else than a backup")?;
        if Path::new(&of) != folder {
            bail!("the gateway makes another backup by now: {of}");
        }
        match state {
            BackupState::Running => {}
            BackupState::Done => {
                let (made, records) = (made.unwrap_or_default(), records.unwrap_or_default());
                show(folder, records, bytes, &made, damaged.unwrap_or_default());
                return Ok(());
            }
            BackupState::Failed => bail!("{}", error.unwrap_or_default()),
        }
        tokio::time::sleep(PAUSE).await;
        view = client.get("/api/v1/backup").await.context(
            "the gateway was making the backup: look into the folder; it is complete once it has the \
             file \"backup\"",
        )?;
    }
}

fn show(folder: &Path, records: u64, bytes: u64, made: &str, damaged: u64) {
    let folder = folder.display().to_string();
    println!("backed up: {records} records, {bytes} bytes, verified, in {}", printable(&folder));
    println!("made: {made}; it does not know all keys that are used from then on");
    if damaged > 0 {
        eprintln!(
            "warning: the store has {damaged} damaged places, and so has the backup; see `selfsame store verify`"
        );
    }
}
