//! [`Spool`]: a folder for answers that the store could not take, until it can.
//!
//! One file an answer, named by record id and fence, fsynced before the client reads the answer.
//! The fence makes landing one late, or twice, safe.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use selfsame_core::{Answer, Lease, wire};

const SUFFIX: &str = "answer";

/// A folder for answers that the store could not take, until it can.
#[derive(Debug, Clone)]
pub struct Spool {
    folder: PathBuf,
}

impl Spool {
    /// The spool in `folder`, which is made when it is first needed.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps an answer. Durable when this returns. Blocks.
    pub fn keep(&self, lease: &Lease, answer: &Answer) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let path = self.path(lease);
        let written = path.with_extension("part");
        let mut file = File::create(&written)?;
        file.write_all(&wire::encode_landing(lease, answer))?;
        file.sync_all()?;
        // A rename, so that a crash leaves the whole answer or none.
        fs::rename(&written, &path)?;
        File::open(&self.folder)?.sync_all()
    }

    /// Lets go of an answer that has landed. Blocks.
    pub fn remove(&self, lease: &Lease) -> io::Result<()> {
        match fs::remove_file(self.path(lease)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// The answers that wait to land, those that cannot be read left where they are. Blocks.
    pub fn waiting(&self) -> io::Result<Vec<(Lease, Answer)>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut waiting = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|suffix| suffix != SUFFIX) {
                continue;
            }
            match wire::decode_landing(&fs::read(&path)?) {
                Ok(landing) => waiting.push(landing),
                Err(error) => tracing::error!(%error, ?path, "a spooled answer is damaged"),
            }
        }
        Ok(waiting)
    }

    fn path(&self, lease: &Lease) -> PathBuf {
        self.folder.join(format!("{}-{}.{SUFFIX}", lease.id, lease.fence.number()))
    }
}
