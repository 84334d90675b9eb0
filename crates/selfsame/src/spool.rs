//! [`Spool`]: a folder for answers, releases and cancellations that the store could not take, until it can.
//!
//! One file for each, named by record id and attempt id. Those of answers and releases are fsynced before the
//! client reads its response. Fence and attempt id make a late write, or a second one, safe.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use http::StatusCode;
use selfsame_core::wire::{self, WireError};
use selfsame_core::{Answer, AttemptId, Lease, RecordId, Release};

use crate::private_files;

const ANSWER_SUFFIX: &str = "answer";
const RELEASE_SUFFIX: &str = "release";
const CANCELLATION_SUFFIX: &str = "cancel";
/// What a file is called until it is whole.
const PART_SUFFIX: &str = "part";

/// A folder for answers, releases and cancellations that the store could not take, until it can.
#[derive(Debug, Clone)]
pub struct Spool {
    folder: PathBuf,
}

/// A write in the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spooled {
    /// An answer, which [`Spool::answer`] reads.
    Answer {
        /// The lease that it ends.
        lease: Lease,
        /// Its status.
        status: StatusCode,
    },
    /// A release.
    Release {
        /// The lease that it ends.
        lease: Lease,
        /// The way in which it ends.
        release: Release,
    },
    /// The end of a claim whose work never began.
    Cancellation {
        /// The record that was claimed.
        id: RecordId,
        /// The claim.
        attempt_id: AttemptId,
    },
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
        let path = self.path(&lease.id, lease.attempt_id, ANSWER_SUFFIX);
        self.write(&path, &wire::encode_landing(lease, answer))
    }

    /// Keeps a release. Durable when this returns. Blocks.
    pub fn keep_release(&self, lease: &Lease, release: Release) -> io::Result<()> {
        let path = self.path(&lease.id, lease.attempt_id, RELEASE_SUFFIX);
        self.write(&path, &wire::encode_release(lease, release))
    }

    /// Keeps a cancellation. Durable when this returns. Blocks.
    pub fn keep_cancellation(&self, id: &RecordId, attempt_id: AttemptId) -> io::Result<()> {
        let path = self.path(id, attempt_id, CANCELLATION_SUFFIX);
        self.write(&path, &wire::encode_cancellation(id, attempt_id))
    }

    fn write(&self, path: &Path, frame: &[u8]) -> io::Result<()> {
        private_files::make_folder(&self.folder)?;
        let written = path.with_extension(PART_SUFFIX);
        let mut file = private_files::options().create(true).truncate(true).open(&written)?;
        file.write_all(frame)?;
        file.sync_all()?;
        // A rename, so that a crash leaves the whole file or none.
        fs::rename(&written, path)?;
        private_files::sync_folder(&self.folder)
    }

    /// Reads the answer that was kept for this lease. Blocks.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] where there is none, [`io::ErrorKind::InvalidData`] where it is damaged.
    pub fn answer(&self, lease: &Lease) -> io::Result<Answer> {
        let frame = fs::read(self.path(&lease.id, lease.attempt_id, ANSWER_SUFFIX))?;
        match wire::decode_landing(&frame) {
            Ok((kept_for, answer)) if kept_for == *lease => Ok(answer),
            Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, WireError::Misplaced)),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }

    /// Lets go of what was kept for this claim. Blocks.
    pub fn remove(&self, id: &RecordId, attempt_id: AttemptId) -> io::Result<()> {
        for suffix in [ANSWER_SUFFIX, RELEASE_SUFFIX, CANCELLATION_SUFFIX] {
            match fs::remove_file(self.path(id, attempt_id, suffix)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Drops releases and cancellations, and returns how many there were. For a store that has lost
    /// records: what a later attempt did may be lost, and the end of an earlier one must not free its key.
    /// Answers stay. Blocks.
    pub fn keep_answers_only(&self) -> io::Result<usize> {
        let mut dropped = 0;
        for spooled in self.waiting()? {
            if !matches!(spooled, Spooled::Answer { .. }) {
                fs::remove_file(self.path_of(&spooled))?;
                dropped += 1;
            }
        }
        if dropped > 0 {
            private_files::sync_folder(&self.folder)?;
        }
        Ok(dropped)
    }

    /// Lists what waits to be written. Files that cannot be read are left where they are. What a crash
    /// left half written was promised to nobody and goes. Blocks.
    pub fn waiting(&self) -> io::Result<Vec<Spooled>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut waiting = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let read = match path.extension().and_then(|suffix| suffix.to_str()) {
                Some(ANSWER_SUFFIX) => wire::decode_landing(&fs::read(&path)?)
                    .map(|(lease, answer)| Spooled::Answer { lease, status: answer.status }),
                Some(RELEASE_SUFFIX) => wire::decode_release(&fs::read(&path)?)
                    .map(|(lease, release)| Spooled::Release { lease, release }),
                Some(CANCELLATION_SUFFIX) => wire::decode_cancellation(&fs::read(&path)?)
                    .map(|(id, attempt_id)| Spooled::Cancellation { id, attempt_id }),
                Some(PART_SUFFIX) => {
                    fs::remove_file(&path)?;
                    continue;
                }
                _ => continue,
            };
            match read {
                Ok(spooled) => {
                    // An older version has named it otherwise.
                    fs::rename(&path, self.path_of(&spooled))?;
                    waiting.push(spooled);
                }
                Err(error) => {
                    let path = path.display();
                    tracing::error!(%error, %path, "a spooled file is damaged");
                }
            }
        }
        Ok(waiting)
    }

    fn path_of(&self, spooled: &Spooled) -> PathBuf {
        match spooled {
            Spooled::Answer { lease, .. } => self.path(&lease.id, lease.attempt_id, ANSWER_SUFFIX),
            Spooled::Release { lease, .. } => {
                self.path(&lease.id, lease.attempt_id, RELEASE_SUFFIX)
            }
            Spooled::Cancellation { id, attempt_id } => {
                self.path(id, *attempt_id, CANCELLATION_SUFFIX)
            }
        }
    }

    fn path(&self, id: &RecordId, attempt_id: AttemptId, suffix: &str) -> PathBuf {
        self.folder.join(format!("{id}-{attempt_id}.{suffix}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};
    use selfsame_core::{AnswerBody, Fence};

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
        let spooled = Spooled::Answer { lease, status: answer.status };
        assert_eq!(spool.waiting().expect("readable"), [spooled]);
        assert_eq!(spool.answer(&lease).expect("readable"), answer);
        spool.remove(&lease.id, lease.attempt_id).expect("removed");
        spool.remove(&lease.id, lease.attempt_id).expect("removing twice is no error");
        assert_eq!(spool.waiting().expect("readable"), []);
        let gone = spool.answer(&lease).expect_err("removed");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_may_read_what_is_kept() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path().join("data").join("spool"));
        let (lease, answer) = landing("charged");
        spool.keep(&lease, &answer).expect("written");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path().join("data")), 0o700);
        assert_eq!(mode(spool.folder()), 0o700);
        let file = fs::read_dir(spool.folder()).expect("a folder").next().expect("a file");
        assert_eq!(mode(&file.expect("readable").path()), 0o600);
    }

    #[test]
    fn every_kind_of_release_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path());
        let (lease, _) = landing("");
        for release in Release::ALL {
            spool.keep_release(&lease, release).expect("kept");
            let waiting = spool.waiting().expect("readable");
            assert_eq!(waiting, [Spooled::Release { lease, release }]);
        }
        spool.remove(&lease.id, lease.attempt_id).expect("removed");
        assert_eq!(spool.waiting().expect("readable"), []);
    }

    #[test]
    fn a_cancellation_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path());
        let Lease { id, attempt_id, .. } = landing("").0;
        spool.keep_cancellation(&id, attempt_id).expect("kept");
        let waiting = spool.waiting().expect("readable");
        assert_eq!(waiting, [Spooled::Cancellation { id, attempt_id }]);
        spool.remove(&id, attempt_id).expect("removed");
        assert_eq!(spool.waiting().expect("readable"), []);
    }

    #[test]
    fn only_answers_are_kept_for_a_store_that_has_lost_records() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let spool = Spool::new(folder.path().join("spool"));
        assert_eq!(spool.keep_answers_only().expect("nothing yet"), 0);
        let (lease, answer) = landing("done");
        let ends = [landing("").0, landing("").0];
        spool.keep(&lease, &answer).expect("kept");
        spool.keep_release(&ends[0], Release::Retry).expect("kept");
        spool.keep_cancellation(&ends[1].id, ends[1].attempt_id).expect("kept");
        assert_eq!(spool.keep_answers_only().expect("writable"), 2);
        let spooled = Spooled::Answer { lease, status: answer.status };
        assert_eq!(spool.waiting().expect("readable"), [spooled]);
    }

    #[test]
    fn claims_of_one_record_with_one_fence_have_files_of_their_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path());
        let (lease, answer) = landing("done");
        spool.keep(&lease, &answer).expect("kept");
        let later = Lease { attempt_id: AttemptId::random(), ..lease };
        let none = spool.answer(&later).expect_err("nothing was kept for it");
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        let other = landing("done again").1;
        spool.keep(&later, &other).expect("kept");
        for (lease, answer) in [(lease, answer), (later, other)] {
            assert_eq!(spool.answer(&lease).expect("readable"), answer);
        }
    }

    #[test]
    fn a_file_with_another_name_is_found_by_its_claim() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path());
        let (lease, answer) = landing("done");
        spool.keep(&lease, &answer).expect("kept");
        let written = fs::read_dir(folder.path()).expect("readable").next().expect("one file");
        let written = written.expect("readable").path();
        fs::rename(written, folder.path().join("another-name.answer")).expect("renamed");
        assert_eq!(spool.waiting().expect("readable").len(), 1);
        assert_eq!(spool.answer(&lease).expect("readable"), answer);
        spool.remove(&lease.id, lease.attempt_id).expect("removed");
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
