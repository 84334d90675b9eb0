//! [`Spool`]: a folder for answers that the store could not take, until it can.
//!
//! One file an answer, named by record id and fence, fsynced before the client reads the answer.
//! The fence makes landing one late, or twice, safe.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use selfsame_core::{Answer, Lease, wire};

const SUFFIX: &str = "answer";
/// What a file is called until it is whole.
const PART_SUFFIX: &str = "part";

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
        let written = path.with_extension(PART_SUFFIX);
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

    /// The answers that wait to land, those that cannot be read left where they are. What a crash
    /// left half written was promised to nobody and goes. Blocks.
    pub fn waiting(&self) -> io::Result<Vec<(Lease, Answer)>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut waiting = Vec::new();
        for entry in entries {
            let path = entry?.path();
            match path.extension().and_then(|suffix| suffix.to_str()) {
                Some(SUFFIX) => {}
                Some(PART_SUFFIX) => {
                    fs::remove_file(&path)?;
                    continue;
                }
                _ => continue,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};
    use selfsame_core::{AnswerBody, AttemptId, Fence, RecordId};

    use super::*;

    fn landing(body: &'static str) -> (Lease, Answer) {
        let lease = Lease {
            id: RecordId::from_bytes([7; RecordId::LEN]),
            fence: Fence::FIRST,
            attempt_id: AttemptId::random(),
            length: Duration::from_secs(30),
        };
        let body = AnswerBody::Kept(Bytes::from(body));
        let (headers, trailers) = (HeaderMap::new(), HeaderMap::new());
        (lease, Answer { status: StatusCode::CREATED, headers, body, trailers })
    }

    #[test]
    fn what_was_kept_waits_until_it_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path().join("made-when-needed"));
        assert_eq!(spool.waiting().expect("nothing yet"), []);
        let (lease, answer) = landing("done");
        spool.keep(&lease, &answer).expect("kept");
        assert_eq!(spool.waiting().expect("readable"), [(lease, answer)]);
        spool.remove(&lease).expect("removed");
        spool.remove(&lease).expect("removing twice is no error");
        assert_eq!(spool.waiting().expect("readable"), []);
    }

    #[test]
    fn a_damaged_file_stays_and_a_half_written_one_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path());
        let (damaged, half) = (folder.path().join("a.answer"), folder.path().join("b.part"));
        fs::write(&damaged, "no frame").expect("written");
        fs::write(&half, "half a fra").expect("written");
        assert_eq!(spool.waiting().expect("readable"), []);
        assert!(damaged.exists() && !half.exists());
    }
}
