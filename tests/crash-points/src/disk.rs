//! [`Disk`]: a model of what is durable, and of what was written and may become so.
//!
//! - A sync of a file makes its content and its size durable, as far as they were written before the
//!   sync began. It says nothing about the file's name.
//! - A sync of a folder makes its names durable. Before that, a power cut leaves those of the
//!   changes of a folder's names that came first, in their order, as journaling file systems do.
//! - After a sync that failed, the data that it was to cover is taken for written by the system, and is
//!   not on the disk; later syncs succeed without it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use crate::event::Event;

/// A number for each file and folder there ever was; the recorded folder is the first.
pub type Inode = usize;

/// The state of a disk between two events.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    pub(crate) files: BTreeMap<Inode, File>,
    pub(crate) folders: BTreeMap<Inode, Folder>,
    /// Content of a file that is gone, which a careless file system shows in another.
    pub(crate) stale: Bytes,
    next: Inode,
    descriptors: HashMap<i32, Inode>,
    syncs: HashMap<u64, u64>,
    changes: u64,
}

/// A file: its content on the disk, and what was written since.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    pub(crate) durable: Arc<Vec<u8>>,
    pub(crate) pending: Vec<Pending>,
    /// The last change that `durable` contains.
    pub(crate) version: u64,
}

/// A change of a file that was not synced.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) number: u64,
    pub(crate) change: Change,
    /// Set by a failed sync: no later sync makes it durable.
    pub(crate) is_lost: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Change {
    Write { offset: u64, data: Bytes },
    SetLen(u64),
}

/// A folder: its names on the disk, and the changes since.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folder {
    pub(crate) durable: BTreeMap<String, Inode>,
    pub(crate) now: BTreeMap<String, Inode>,
    pub(crate) pending: Vec<(u64, NameChange)>,
}

#[derive(Debug, Clone)]
pub(crate) enum NameChange {
    Put(String, Inode),
    Remove(String),
    Rename(String, String, Inode),
}

impl NameChange {
    pub(crate) fn apply(&self, names: &mut BTreeMap<String, Inode>) {
        match self {
            Self::Put(name, inode) => drop(names.insert(name.clone(), *inode)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to, inode) => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
        }
    }
}

impl Disk {
    /// A disk on which the recorded folder is empty.
    pub fn new() -> Self {
        Self { folders: BTreeMap::from([(0, Folder::default())]), next: 1, ..Self::default() }
    }

    /// Goes on by an event.
    ///
    /// # Panics
    ///
    /// If the event cannot follow, or is none that can be modelled.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Open { fd, path, created, truncated } => {
                let inode = match created {
                    true => self.create(path),
                    false => self.find(path).expect("what is opened is there"),
                };
                self.descriptors.insert(*fd, inode);
                if *truncated {
                    self.change(*fd, Change::SetLen(0));
                }
            }
            Event::Close { fd } => drop(self.descriptors.remove(fd)),
            Event::Duplicate { fd, copy } => {
                self.descriptors.insert(*copy, self.descriptors[fd]);
            }
            Event::Write { fd, offset, data } => {
                self.change(*fd, Change::Write { offset: *offset, data: data.clone() });
            }
            Event::SetLen { fd, len } => self.change(*fd, Change::SetLen(*len)),
            Event::SyncBegin { sync, .. } => drop(self.syncs.insert(*sync, self.changes)),
            Event::SyncEnd { fd, sync, error } => self.synced(*fd, *sync, *error),
            Event::Rename { from, to } => self.rename(from, to),
            Event::Link { from, to } => {
                let inode = self.find(from).expect("what is linked is there");
                self.name(to, |name| NameChange::Put(name, inode));
            }
            Event::Unlink { path } | Event::RemoveFolder { path } => {
                if let Some(file) = self.find(path).and_then(|inode| self.files.get(&inode)) {
                    self.stale = Bytes::from(file.newest());
                }
                self.name(path, NameChange::Remove);
            }
            Event::MakeFolder { path } => {
                let inode = self.take_number();
                self.folders.insert(inode, Folder::default());
                self.name(path, |name| NameChange::Put(name, inode));
            }
            Event::Note { .. } | Event::Fault { .. } | Event::Crash | Event::Start => {}
        }
    }

    /// The content of the file that an open descriptor stands for.
    pub fn content_of(&self, fd: i32) -> Option<Vec<u8>> {
        Some(self.files.get(self.descriptors.get(&fd)?)?.newest())
    }

    fn take_number(&mut self) -> Inode {
        self.next += 1;
        self.next - 1
    }

    fn create(&mut self, path: &str) -> Inode {
        let inode = self.take_number();
        self.files.insert(inode, File::default());
        self.name(path, |name| NameChange::Put(name, inode));
        inode
    }

    fn find(&self, path: &str) -> Option<Inode> {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts
            .into_iter()
            .try_fold(0, |inode, name| self.folders.get(&inode)?.now.get(name).copied())
    }

    fn change(&mut self, fd: i32, change: Change) {
        let inode = self.descriptors[&fd];
        self.changes += 1;
        let file = self.files.get_mut(&inode).expect("only files are written");
        file.pending.push(Pending { number: self.changes, change, is_lost: false });
    }

    fn rename(&mut self, from: &str, to: &str) {
        let (folder, name) = split(to);
        assert_eq!(split(from).0, folder, "a rename to another folder cannot be modelled");
        let inode = self.find(from).expect("what is renamed is there");
        self.name(from, |from| NameChange::Rename(from, name.to_owned(), inode));
    }

    fn name(&mut self, path: &str, change: impl FnOnce(String) -> NameChange) {
        let (folder, name) = split(path);
        let inode = self.find(folder).expect("names are in folders that are there");
        let folder = self.folders.get_mut(&inode).expect("names are in folders");
        let change = change(name.to_owned());
        change.apply(&mut folder.now);
        self.changes += 1;
        folder.pending.push((self.changes, change));
    }

    fn synced(&mut self, fd: i32, sync: u64, error: i32) {
        let covered = self.syncs.remove(&sync).expect("it began");
        let inode = self.descriptors[&fd];
        if let Some(folder) = self.folders.get_mut(&inode) {
            // A folder whose sync failed may have its new names, or not, until it is synced.
            if error == 0 {
                let later = folder.pending.partition_point(|(number, _)| *number <= covered);
                for (_, change) in folder.pending.drain(..later) {
                    change.apply(&mut folder.durable);
                }
            }
            return;
        }
        let file = self.files.get_mut(&inode).expect("it is a file or a folder");
        let later = file.pending.partition_point(|pending| pending.number <= covered);
        if error != 0 {
            file.pending[..later].iter_mut().for_each(|pending| pending.is_lost = true);
            return;
        }
        let durable = Arc::make_mut(&mut file.durable);
        for pending in file.pending.drain(..later) {
            file.version = pending.number;
            if !pending.is_lost {
                pending.change.apply(durable);
            }
        }
    }
}

impl File {
    pub(crate) fn newest(&self) -> Vec<u8> {
        let mut content = Vec::clone(&self.durable);
        self.pending.iter().for_each(|pending| pending.change.apply(&mut content));
        content
    }
}

impl Change {
    pub(crate) fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { offset, data } => write_at(content, *offset, data),
            Self::SetLen(len) => content.resize(index(*len), 0),
        }
    }
}

pub(crate) fn write_at(content: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (start, end) = (index(offset), index(offset) + data.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(data);
}

pub(crate) fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("it fits into memory")
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}
