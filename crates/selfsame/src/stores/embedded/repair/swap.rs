//! Puts a new store in the place of another, within one folder. Killed at any point, it goes on when it
//! is run again, and nobody can open the store before.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use selfsame_core::Timestamp;

use super::Repaired;
use crate::private_files;
use crate::stores::embedded::{OpenError, segment};

/// The file that says that a repair or a restore is under way.
const MARKER: &str = "repair";
const MARKER_UNFINISHED: &str = "repair.new";
const FIRST_LINE: &str = "selfsame repair 1";

/// The folder of the new store until it is whole.
const NEW: &str = "repairing";

/// What is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Repair,
    Restore,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The new store is being built. It begins anew if it is cut off.
    Build,
    /// The damaged files go to a folder of their own.
    Out,
    /// The new files take their place.
    In,
}

/// Content of the marker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Marker {
    pub(super) command: Command,
    pub(super) phase: Phase,
    pub(super) repaired: Repaired,
}

/// The next thing to do. Each is done as a whole or not at all.
enum Step {
    Move { file: PathBuf, to: PathBuf },
    Mark(Marker),
    RemoveNew,
    Unmark(Marker),
}

/// Refuses a folder in which a repair or a restore is under way.
pub(in crate::stores::embedded) fn refuse_unfinished(folder: &Path) -> Result<(), OpenError> {
    // Where that cannot be told, opening the store fails by itself.
    match folder.join(MARKER).exists() {
        true => Err(OpenError::Unfinished { path: folder.to_owned() }),
        false => Ok(()),
    }
}

/// Where the new store is built.
pub(super) fn new_folder(folder: &Path) -> PathBuf {
    folder.join(NEW)
}

/// Tells if anything in `folder` is of a store.
pub(super) fn has_store(folder: &Path) -> io::Result<bool> {
    Ok(!files_of_store(folder)?.is_empty())
}

/// Moves the files until the new store is in its place.
pub(super) fn finish(folder: &Path) -> io::Result<Repaired> {
    loop {
        if let Some(repaired) = step(folder)? {
            return Ok(repaired);
        }
    }
}

/// Does the next step. Returns what was repaired when that was the last one.
pub(super) fn step(folder: &Path) -> io::Result<Option<Repaired>> {
    match next_step(folder)? {
        Step::Move { file, to } => {
            let from = file.parent().expect("a file is in a folder");
            private_files::make_folder(&to)?;
            fs::rename(&file, to.join(file.file_name().expect("a file has a name")))?;
            private_files::sync_folder(&to)?;
            private_files::sync_folder(from)?;
        }
        Step::Mark(marker) => marker.write(folder)?,
        Step::RemoveNew => {
            super::remove_folder(&new_folder(folder))?;
            private_files::sync_folder(folder)?;
        }
        Step::Unmark(marker) => {
            fs::remove_file(folder.join(MARKER))?;
            private_files::sync_folder(folder)?;
            return Ok(Some(marker.repaired));
        }
    }
    Ok(None)
}

fn next_step(folder: &Path) -> io::Result<Step> {
    let marker = Marker::read(folder)?.ok_or_else(|| unreadable("it is missing"))?;
    match marker.phase {
        Phase::Build => Err(unreadable("the new store is not built")),
        Phase::Out => {
            let damaged = marker.repaired.set_aside.as_ref().map(|name| folder.join(name));
            let to = damaged.ok_or_else(|| unreadable("it does not say where to"))?;
            Ok(match files_of_store(folder)?.pop() {
                Some(file) => Step::Move { file, to },
                None => Step::Mark(Marker { phase: Phase::In, ..marker }),
            })
        }
        Phase::In => {
            let new = new_folder(folder);
            Ok(match files_of_store(&new)?.pop() {
                Some(file) => Step::Move { file, to: folder.to_owned() },
                None if new.exists() => Step::RemoveNew,
                None => Step::Unmark(marker),
            })
        }
    }
}

/// The files and folders in `folder` that are of a store; nothing else that is beside them.
fn files_of_store(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let is_of_store = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        segment::is_segment(path)
            || matches!(name, Some("facts" | "facts.new" | "index" | "records.new"))
    };
    let mut files: Vec<_> = paths.into_iter().filter(is_of_store).collect();
    files.sort();
    Ok(files)
}

/// A name for the folder of the damaged files, which nothing has yet.
pub(super) fn name_for_damaged(folder: &Path, now: Timestamp) -> String {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(now.as_millis());
    let date = httpdate::fmt_http_date(now);
    // As in "Sun, 06 Nov 1994 08:49:37 GMT".
    let parts: Vec<&str> = date.split([' ', ':']).collect();
    let name = match parts[..] {
        [_, day, month, year, hour, minute, second, _] => {
            format!("damaged-{day}-{month}-{year}-{hour}{minute}{second}")
        }
        _ => "damaged".to_owned(),
    };
    let more = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.clone()).chain(more);
    names.find(|name| !folder.join(name).exists()).expect("there is no end of names")
}

impl Marker {
    pub(super) fn new(command: Command, phase: Phase) -> Self {
        Self { command, phase, repaired: Repaired::default() }
    }

    /// Reads the marker in `folder`, if there is one.
    pub(super) fn read(folder: &Path) -> io::Result<Option<Self>> {
        match fs::read_to_string(folder.join(MARKER)) {
            Ok(text) => Self::decode(&text).map(Some).ok_or_else(|| unreadable("unknown content")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the marker, durably.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let unfinished = folder.join(MARKER_UNFINISHED);
        let mut file = private_files::options().create(true).truncate(true).open(&unfinished)?;
        file.write_all(self.encode().as_bytes())?;
        file.sync_all()?;
        fs::rename(unfinished, folder.join(MARKER))?;
        private_files::sync_folder(folder)
    }

    fn encode(&self) -> String {
        let command = match self.command {
            Command::Repair => "repair",
            Command::Restore => "restore",
        };
        let phase = match self.phase {
            Phase::Build => "build",
            Phase::Out => "out",
            Phase::In => "in",
        };
        let mut text = format!("{FIRST_LINE}\ncommand: {command}\nphase: {phase}\n");
        let counts = &mut self.repaired.clone();
        for (name, count) in counts.counts() {
            writeln!(text, "{name}: {count}").expect("a text takes what is written");
        }
        let closed_for = self.repaired.closed_for.as_secs();
        writeln!(text, "closed-for: {closed_for}").expect("a text takes what is written");
        if let Some(name) = &self.repaired.set_aside {
            let name = name.display();
            writeln!(text, "set-aside: {name}").expect("a text takes what is written");
        }
        for place in &self.repaired.first_places {
            writeln!(text, "place: {place}").expect("a text takes what is written");
        }
        text
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        lines.next().filter(|first| *first == FIRST_LINE)?;
        let mut marker = Self::new(Command::Repair, Phase::Build);
        for line in lines {
            let (name, value) = line.split_once(": ")?;
            match (name, value) {
                ("command", "repair") => marker.command = Command::Repair,
                ("command", "restore") => marker.command = Command::Restore,
                ("phase", "build") => marker.phase = Phase::Build,
                ("phase", "out") => marker.phase = Phase::Out,
                ("phase", "in") => marker.phase = Phase::In,
                ("closed-for", seconds) => {
                    marker.repaired.closed_for = Duration::from_secs(seconds.parse().ok()?);
                }
                ("set-aside", name) => marker.repaired.set_aside = Some(name.into()),
                ("place", place) => marker.repaired.first_places.push(place.to_owned()),
                (name, count) => {
                    let mut counts = marker.repaired.counts().into_iter();
                    let (_, known) = counts.find(|(known, _)| *known == name)?;
                    *known = count.parse().ok()?;
                }
            }
        }
        Some(marker)
    }
}

impl Repaired {
    /// All numbers, by their names in a marker.
    fn counts(&mut self) -> [(&'static str, &mut u64); 7] {
        [
            ("completed", &mut self.completed),
            ("held", &mut self.held),
            ("newly-held", &mut self.newly_held),
            ("tombstones", &mut self.tombstones),
            ("damaged", &mut self.damaged),
            ("expired", &mut self.expired),
            ("damaged-places", &mut self.damaged_places),
        ]
    }
}

fn unreadable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the marker of a repair: {what}"))
}
