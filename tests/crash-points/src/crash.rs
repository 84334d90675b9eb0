//! [`Image`]: what a power cut leaves of a disk, by a choice among all that it may leave.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::disk::{Change, Disk, File, Inode, Pending, index, write_at};
use crate::random::Random;

/// A disk after a power cut.
#[derive(Debug, Clone)]
pub struct Image {
    /// The files by their paths; folders have no content.
    pub files: BTreeMap<String, Option<Arc<Vec<u8>>>>,
    /// The same for images that are the same, and hardly ever for others.
    pub signature: u64,
    /// The choices that were made, for people.
    pub story: String,
    /// Set where a file shows what another contained once.
    pub shows_stale: bool,
}

/// Which part of what is not synced is there. The first few are the simple ones, all others are
/// random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variant(pub u64);

impl Variant {
    /// Nothing that was not synced.
    pub const NOTHING: Self = Self(0);
    /// All that was written.
    pub const EVERYTHING: Self = Self(1);
    /// All new names, and nothing of what was written.
    const NAMES: Self = Self(2);
    /// All that was written, under the old names.
    const DATA: Self = Self(3);
}

/// Devices write these many bytes at once, or not at all.
const UNITS: [u64; 2] = [512, 4096];

impl Image {
    /// What is left of `disk` by this choice; `seed` makes the random ones.
    pub fn of(disk: &Disk, variant: Variant, seed: u64) -> Self {
        let mut cut = Cut {
            disk,
            variant,
            random: Random::of(&[seed, variant.0]),
            signature: DefaultHasher::new(),
            story: String::new(),
            shows_stale: false,
        };
        let mut chosen = BTreeMap::new();
        for inode in disk.folders.keys() {
            chosen.insert(*inode, cut.names(*inode));
        }
        let mut found = Vec::new();
        walk(&chosen, 0, "", &mut found);
        let mut files = BTreeMap::new();
        for (path, inode) in found {
            (&path, inode).hash(&mut cut.signature);
            let content = disk.files.get(&inode).map(|file| cut.content(&path, file));
            files.insert(path, content);
        }
        let (signature, story) = (cut.signature.finish(), cut.story);
        Self { files, signature, story, shows_stale: cut.shows_stale }
    }
}

impl Image {
    /// What the system shows while the machine runs.
    pub fn seen(disk: &Disk) -> Self {
        let mut files = BTreeMap::new();
        let mut found = Vec::new();
        let now = disk.folders.iter().map(|(inode, folder)| (*inode, folder.now.clone()));
        walk(&now.collect(), 0, "", &mut found);
        for (path, inode) in found {
            files.insert(path, disk.files.get(&inode).map(|file| Arc::new(file.newest())));
        }
        Self { files, signature: 0, story: String::new(), shows_stale: false }
    }
}

type Names = BTreeMap<String, Inode>;

fn walk(
    chosen: &BTreeMap<Inode, Names>,
    inode: Inode,
    path: &str,
    found: &mut Vec<(String, Inode)>,
) {
    let Some(names) = chosen.get(&inode) else { return };
    for (name, inode) in names {
        let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        found.push((path.clone(), *inode));
        walk(chosen, *inode, &path, found);
    }
}

struct Cut<'a> {
    disk: &'a Disk,
    variant: Variant,
    random: Random,
    signature: DefaultHasher,
    story: String,
    shows_stale: bool,
}

impl Cut<'_> {
    /// The names of a folder: the durable ones, and the first few of the changes since.
    fn names(&mut self, inode: Inode) -> Names {
        let folder = &self.disk.folders[&inode];
        let pending = folder.pending.len();
        let kept = match self.variant {
            Variant::NOTHING | Variant::DATA => 0,
            Variant::EVERYTHING | Variant::NAMES => pending,
            _ => index(self.random.below(pending as u64 + 1)),
        };
        let mut names = folder.durable.clone();
        for (number, change) in &folder.pending[..kept] {
            number.hash(&mut self.signature);
            change.apply(&mut names);
        }
        if pending > 0 {
            let _ = writeln!(self.story, "folder {inode}: the first {kept} of {pending} changes");
        }
        names
    }

    fn content(&mut self, path: &str, file: &File) -> Arc<Vec<u8>> {
        file.version.hash(&mut self.signature);
        if file.pending.is_empty() {
            return file.durable.clone();
        }
        let _ = write!(self.story, "{path}: {} bytes durable, of ", file.durable.len());
        let _ = write!(self.story, "{} changes since ", file.pending.len());
        let choice = match self.variant {
            Variant::NOTHING | Variant::NAMES => 0,
            Variant::EVERYTHING | Variant::DATA => 1,
            _ => self.random.below(8),
        };
        let all = file.pending.len();
        let chosen = match choice {
            0 => self.first(file, 0),
            1 => self.first(file, all),
            2 => {
                let kept = self.random.below(all as u64 + 1);
                self.first(file, index(kept))
            }
            3 => self.torn(file),
            _ => self.scattered(file),
        };
        if let Some(content) = chosen { Arc::new(content) } else { file.durable.clone() }
    }

    /// The first `kept` changes, whole.
    fn first(&mut self, file: &File, kept: usize) -> Option<Vec<u8>> {
        let _ = writeln!(self.story, "the first {kept}");
        if kept == 0 {
            return None;
        }
        let mut content = Vec::clone(&file.durable);
        for pending in file.pending[..kept].iter().filter(|pending| !pending.is_lost) {
            pending.number.hash(&mut self.signature);
            pending.change.apply(&mut content);
        }
        Some(content)
    }

    /// Some changes whole, the next up to a boundary of some unit or from there on.
    fn torn(&mut self, file: &File) -> Option<Vec<u8>> {
        let kept = index(self.random.below(file.pending.len() as u64));
        let mut content = Vec::clone(&file.durable);
        for pending in &file.pending[..kept] {
            pending.number.hash(&mut self.signature);
            pending.change.apply(&mut content);
        }
        let next = &file.pending[kept];
        let unit = self.random.pick(&UNITS);
        let is_end = self.random.percent(50);
        let _ = write!(self.story, "the first {kept}");
        if let Change::Write { offset, data } = &next.change {
            let units = pieces(*offset, data.len() as u64, unit);
            let cut = self.random.below(units.len() as u64);
            (next.number, cut, unit, is_end).hash(&mut self.signature);
            let part = if is_end { "from" } else { "before" };
            let _ = write!(self.story, ", of the next what is {part} its unit {cut} of {unit}");
            let piece = |number: u64| (number < cut) != is_end;
            for (_, (start, end)) in (0..).zip(units).filter(|(number, _)| piece(*number)) {
                let data = &data[index(start - offset)..index(end - offset)];
                write_at(&mut content, start, data);
            }
        }
        self.story.push('\n');
        Some(content)
    }

    /// Any units of any changes: a device writes in whatever order it likes. What cuts a file is not
    /// overtaken.
    fn scattered(&mut self, file: &File) -> Option<Vec<u8>> {
        let unit = self.random.pick(&UNITS);
        let chance = self.random.pick(&[2, 10, 50, 90, 98]);
        let _ = write!(self.story, "about {chance} % of the units of {unit}");
        let before = file.durable.len() as u64;
        let mut content = Vec::clone(&file.durable);
        let (mut written, mut whole) = (vec![(0, before)], before);
        for Pending { number, change, .. } in &file.pending {
            match change {
                Change::SetLen(len) if *len < content.len() as u64 => {
                    if !self.random.percent(chance) {
                        let _ = write!(self.story, ", and none since its size was cut");
                        break;
                    }
                    number.hash(&mut self.signature);
                    content.truncate(index(*len));
                    whole = *len;
                    written.retain(|(start, _)| start < len);
                }
                Change::SetLen(len) => whole = whole.max(*len),
                Change::Write { offset, data } => {
                    whole = whole.max(offset + data.len() as u64);
                    for (start, end) in pieces(*offset, data.len() as u64, unit) {
                        if self.random.percent(chance) {
                            (number, start).hash(&mut self.signature);
                            let data = &data[index(start - offset)..index(end - offset)];
                            write_at(&mut content, start, data);
                            written.push((start, end));
                        }
                    }
                }
            }
        }
        self.size(&mut content, &written, before, whole);
        Some(content)
    }

    /// The size of a file of which parts are missing: the old one, the new one, or what there is; and
    /// what is read where nothing was written.
    fn size(&mut self, content: &mut Vec<u8>, written: &[(u64, u64)], before: u64, whole: u64) {
        let choice = self.random.below(4);
        choice.hash(&mut self.signature);
        match choice {
            0 => content.truncate(index(before.min(whole))),
            1 => content.resize(index(whole), 0),
            2 => {
                content.resize(index(whole), 0);
                self.fill_with_stale(content, written, before);
            }
            _ => {}
        }
        let what =
            ["its old size", "its new size", "its new size, filled with old content of others"];
        let what = what.get(index(choice)).unwrap_or(&"as long as what was written");
        let _ = writeln!(self.story, ", {what}: {} bytes", content.len());
    }

    fn fill_with_stale(&mut self, content: &mut [u8], written: &[(u64, u64)], before: u64) {
        let stale = &self.disk.stale;
        for (start, end) in pieces(before, (content.len() as u64).saturating_sub(before), 512) {
            if !written.iter().any(|(from, to)| *from < end && start < *to) {
                let range = index(start)..index(end).min(stale.len());
                if range.start < range.end {
                    content[range.clone()].copy_from_slice(&stale[range]);
                    self.shows_stale = true;
                }
            }
        }
    }
}

/// The pieces into which boundaries of `unit` cut a range.
fn pieces(offset: u64, len: u64, unit: u64) -> Vec<(u64, u64)> {
    let (mut at, end) = (offset, offset + len);
    let mut pieces = Vec::new();
    while at < end {
        let next = ((at / unit + 1) * unit).min(end);
        pieces.push((at, next));
        at = next;
    }
    pieces
}
