//! How many bytes a record takes on disk.

use std::path::Path;

use anyhow::Result;
use selfsame::stores::EmbeddedOptions;

use super::{open, scale, work};
use crate::report::{Table, Target, number};

const RECORDS: u64 = 100_000;
const KIB: f64 = 1024.0;

/// Bytes for each record.
pub(super) struct Size {
    /// With an answer of 1 KiB.
    full: f64,
    /// With an answer without a body.
    empty: f64,
}

impl Size {
    pub(super) fn tell(&self, table: &mut Table) {
        table.add("with an answer of 1 KiB", vec![("bytes", self.full)]);
        table.add("with an empty answer", vec![("bytes", self.empty)]);
        table.add("the answer's own part", vec![("bytes", self.full - self.empty)]);
    }

    pub(super) fn target(&self) -> Target {
        Target::new(
            "a record with an answer of 1 KiB, on disk: below 1.6 KiB",
            format!("{} KiB", number(self.full / KIB)),
            self.full < 1.6 * KIB,
        )
    }
}

/// Fills stores in `folder`, and weighs them.
pub(super) async fn measure(folder: &Path) -> Result<Size> {
    Ok(Size { full: weigh(folder, work::ANSWER_BYTES).await?, empty: weigh(folder, 0).await? })
}

async fn weigh(folder: &Path, answer_bytes: usize) -> Result<f64> {
    let data = folder.join("size");
    let store = open(&data, EmbeddedOptions::default())?;
    work::fill(&store, 0..RECORDS, answer_bytes).await?;
    // Closing it moves the log into the file.
    drop(store);
    let bytes = scale::bytes_of(&data)?;
    std::fs::remove_dir_all(&data)?;
    Ok(bytes as f64 / RECORDS as f64)
}
