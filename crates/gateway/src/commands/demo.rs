//! `selfsame demo`.

use anyhow::Result;

/// Shows a double payment, and how it is prevented.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<()> {
    Ok(())
}
