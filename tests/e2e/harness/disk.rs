//! A small disk, which can be full: a tmpfs in a mount namespace of its own.
//!
//! A process that only waits keeps the namespace, so the disk outlives the gateways on it.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::binary;

const SMALL: &str = "size=8m";
const FEW_INODES: &str = "size=64m,nr_inodes=200";
const FILLER: &str = "filler";
const FILES: &str = "files";

/// A small disk. Dropping it takes it away.
pub(crate) struct SmallDisk {
    keeper: Child,
    folder: TempDir,
}

impl SmallDisk {
    pub(crate) fn mount() -> Self {
        Self::mount_with(SMALL)
    }

    /// One on which some 200 files have room.
    pub(crate) fn with_few_inodes() -> Self {
        Self::mount_with(FEW_INODES)
    }

    fn mount_with(options: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        // `cat` ends with the test, whose end of the pipe is closed then.
        let script = "mount -t tmpfs -o \"$1\" none \"$2\" && echo mounted && exec cat";
        let mut keeper = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", options])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("unshare is there: this test needs util-linux");
        let mut said = String::new();
        let stdout = keeper.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut said).expect("readable");
        assert_eq!(
            said.trim(),
            "mounted",
            "no disk could be mounted in a namespace: this test must be allowed to use unshare"
        );
        Self { keeper, folder }
    }

    /// The disk's folder, as those see it who live there.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The disk's folder, as everybody else sees it.
    pub(crate) fn seen_from_outside(&self) -> PathBuf {
        let inside = self.folder.path().strip_prefix("/").expect("absolute");
        Path::new("/proc").join(self.keeper.id().to_string()).join("root").join(inside)
    }

    /// `selfsame serve` on this disk.
    pub(crate) fn serve(&self, config: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--user", "--preserve-credentials", "--mount", "--target"])
            .arg(self.keeper.id().to_string())
            .arg(binary().get_program())
            .args(["serve", "--config"])
            .arg(config);
        command
    }

    fn filler(&self) -> File {
        let mut filler = OpenOptions::new();
        let filler = filler.create(true).append(true).open(self.seen_from_outside().join(FILLER));
        filler.expect("opened")
    }

    /// Takes so many bytes, which there must be room for.
    pub(crate) fn take(&self, bytes: usize) {
        self.filler().write_all(&vec![0; bytes]).expect("there is room");
    }

    /// Leaves no room at all.
    pub(crate) fn fill(&self) {
        let mut filler = self.filler();
        for size in [64 * 1024, 4096, 1] {
            let block = vec![0; size];
            let error = loop {
                if let Err(error) = filler.write_all(&block) {
                    break error;
                }
            };
            assert_eq!(error.kind(), ErrorKind::StorageFull);
        }
    }

    /// Makes files until there is no room for another.
    pub(crate) fn take_inodes(&self) {
        let folder = self.seen_from_outside().join(FILES);
        fs::create_dir(&folder).expect("there is room");
        let made = (0..).map(|number: u32| File::create(folder.join(number.to_string())));
        let error = made.filter_map(Result::err).next().expect("it comes to an end");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }

    /// Takes them away again.
    pub(crate) fn give_inodes(&self) {
        fs::remove_dir_all(self.seen_from_outside().join(FILES)).expect("they were made");
    }

    /// Makes room again.
    pub(crate) fn make_room(&self) {
        fs::remove_file(self.seen_from_outside().join(FILLER)).expect("it was full");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _gone = self.keeper.kill();
        let _gone = self.keeper.wait();
    }
}
