//! The recorder: compiled by `cc`, and loaded into processes that run a workload.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, id};

use bytes::Bytes;
use tempfile::TempDir;

use crate::event::Event;
use crate::workload::Size;

const SOURCES: [(&str, &str); 2] = [
    ("recorder.c", include_str!("../recorder.c")),
    ("recorder_rest.c", include_str!("../recorder_rest.c")),
];

/// How long a sync of a file takes while a workload is recorded: others come meanwhile, so that
/// batches have many frames.
const SYNC_MICROS: u32 = 200;

/// An error to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Which call fails, counted from 1.
    pub at: u64,
    /// How many calls fail from there on.
    pub count: u64,
    /// The error number.
    pub error: i32,
    /// Which calls are counted.
    pub calls: Calls,
}

/// Calls that may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// All that change anything.
    All,
    /// Syncs alone.
    Syncs,
    /// Those that need room on the disk.
    Room,
}

impl Calls {
    /// The word for the recorder.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Syncs => "sync",
            Self::Room => "room",
        }
    }
}

/// An error of the device.
pub const EIO: i32 = 5;
/// A full disk.
pub const ENOSPC: i32 = 28;

/// What is run under the recorder.
#[derive(Debug, Clone)]
pub enum Job<'a> {
    /// The workload of a seed.
    Workload {
        /// The seed.
        seed: u64,
        /// How much it does.
        size: Size,
        /// The error to inject.
        fault: Option<Fault>,
    },
    /// A start after a crash, on the disk and with the notes that an event log ends with.
    Recovery {
        /// The seed.
        seed: u64,
        /// The folder as it is.
        folder: &'a Path,
        /// The event log so far.
        events: &'a Path,
    },
}

/// What came of it.
#[derive(Debug)]
pub struct Recording {
    /// What happened to the files.
    pub events: Vec<Event>,
    /// The folder as it is now.
    pub folder: TempDir,
    /// Whether the process ended as it should, and what it wrote if it did not.
    pub outcome: Result<(), String>,
}

/// The place for folders: in memory, if there is one.
pub fn fast_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
    let folder = tempfile::Builder::new().prefix("crash-points-").tempdir_in(place);
    folder.expect("the system has a place for temporary folders")
}

/// Runs `program`, this crate's binary, under the recorder.
///
/// # Panics
///
/// If it cannot be run.
pub fn record(program: &Path, job: &Job<'_>) -> Recording {
    let library = library(program);
    let folder = fast_folder();
    let root = fs::canonicalize(folder.path()).expect("the folder is there").join("root");
    let log = folder.path().join("events");
    let notes = folder.path().join("notes");
    fs::create_dir(&root).expect("a folder can be made");
    let mut command = Command::new(program);
    let sync_micros = match job {
        Job::Workload { seed, size, fault } => {
            command.arg("workload").arg(seed.to_string()).arg(size.name());
            if let Some(Fault { at, count, error, calls }) = fault {
                command.env("RECORDER_FAIL_AT", at.to_string());
                command.env("RECORDER_FAIL_COUNT", count.to_string());
                command.env("RECORDER_FAIL_WITH", error.to_string());
                command.env("RECORDER_FAIL_ONLY", calls.name());
            }
            if *size == Size::Tiny { 0 } else { SYNC_MICROS }
        }
        Job::Recovery { seed, folder, events } => {
            copy(folder, &root);
            command.arg("recover").arg(seed.to_string()).arg(events);
            0
        }
    };
    command.arg(root.join("store")).arg(&notes);
    command.env("RECORDER_ROOT", &root).env("RECORDER_EVENTS", &log).env("RECORDER_NOTES", &notes);
    command.env("RECORDER_SYNC_MICROS", sync_micros.to_string()).env("LD_PRELOAD", library);
    let output = command.stdin(Stdio::null()).output().expect("the binary can be run");
    let events = fs::read(&log).expect("the recorder wrote its log");
    let root = root.to_str().expect("its path is UTF-8");
    let events = Event::read_all(Bytes::from(events), root);
    let text = String::from_utf8_lossy(&output.stderr);
    let outcome = if output.status.success() { Ok(()) } else { Err(format!("{text}")) };
    Recording { events, folder, outcome }
}

/// The library, compiled beside the binary unless it is there.
fn library(program: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    SOURCES.hash(&mut hasher);
    let folder = program.parent().expect("a binary is in a folder");
    let library = folder.join(format!("crash-recorder-{:016x}.so", hasher.finish()));
    if library.exists() {
        return library;
    }
    let place = tempfile::tempdir_in(folder).expect("the target folder can be written");
    for (name, source) in SOURCES {
        fs::write(place.path().join(name), source).expect("a source can be written");
    }
    let made = place.path().join(format!("recorder-{}.so", id()));
    let compiled = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(&made)
        .arg(place.path().join(SOURCES[0].0))
        .args(["-ldl", "-lpthread"])
        .status();
    assert!(compiled.expect("a C compiler is installed").success(), "recorder.c does not compile");
    // Another process may do the same at the same time.
    fs::rename(made, &library).expect("the target folder can be written");
    library
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        let to = to.join(path.file_name().expect("entries have names"));
        if path.is_dir() {
            fs::create_dir(&to).expect("a folder can be made");
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).expect("a file can be copied");
        }
    }
}
