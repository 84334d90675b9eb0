//! [`Table`]: a part of the index on the disk, sorted by id and never changed.
//!
//! | part | holds |
//! |---|---|
//! | pages | entries in the order of ids, each page with a checksum |
//! | fences | the first id of each page |
//! | filter | tells most ids that are not in it |
//! | segments | how many entries depend on each segment of the log |
//! | note | what the log and its segments were when the newest entry was written |
//! | footer | the lengths of these parts, and their checksum |
//!
//! All but the pages is kept in memory: about two bytes for each entry. A table has its name only
//! when it is whole and durable. The name says which memtables it was made of, counted from the
//! beginning of the index.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use selfsame_core::RecordId;

use super::entry::{self, ENTRY_LEN, Slot};
use super::filter::Filter;
use super::memtable::Change;
use crate::private_files;
use crate::stores::embedded::segment::{read_exact_at, write_all_at};

const PAGE: usize = 4096;
/// Checksum, and number of entries.
const PAGE_HEAD: usize = 8;
const PAGE_ENTRIES: usize = (PAGE - PAGE_HEAD) / ENTRY_LEN;

const NAME: &[u8; 8] = b"selfsidx";
const FORMAT: u32 = 1;
const FOOTER_LEN: usize = 64;
const SUFFIX: &str = ".table";

/// Bytes that are written before they are made durable: commits of the log get their turn.
const STEP: usize = 256 * 1024;

/// Bytes of pages that are checked at once.
const CHECKED_AT_ONCE: u64 = 64 * PAGE as u64;

/// A sorted part of the index.
pub(in crate::stores::embedded) struct Table {
    file: File,
    path: PathBuf,
    footer: Footer,
    /// First id of each page.
    fences: Vec<RecordId>,
    filter: Filter,
    /// Number of slots that depend on each segment.
    pub(super) segments: BTreeMap<u32, u64>,
}

impl Table {
    /// Opens a table. Errors of the kind `InvalidData` say that it is damaged.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = File::open(&path)?;
        let footer_at = file.metadata()?.len().checked_sub(FOOTER_LEN as u64);
        let footer_at = footer_at.ok_or_else(|| damaged("it is too short"))?;
        let mut bytes = [0; FOOTER_LEN];
        read_exact_at(&file, &mut bytes, footer_at)?;
        let footer = Footer::decode(&bytes).ok_or_else(|| damaged("its footer does not fit"))?;
        if footer.note_at() + u64::from(footer.note_len) != footer_at {
            return Err(damaged("its length does not fit"));
        }
        let mut sum = crc32fast::Hasher::new();
        let mut at = footer.pages_len();
        let mut part = |len: u64| {
            let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
            read_exact_at(&file, &mut bytes, at)?;
            sum.update(&bytes);
            at += len;
            io::Result::Ok(bytes)
        };
        let fences = part(footer.fences_len())?;
        let fences = fences.as_chunks().0.iter().map(|id| RecordId::from_bytes(*id)).collect();
        let filter = Filter::from_bytes(&part(footer.filter_len)?);
        let segments = decode_segments(&part(footer.segments_len.into())?);
        part(footer.note_len.into())?;
        if sum.finalize() != footer.tail_sum {
            return Err(damaged("the checksum of its tail does not fit"));
        }
        let filter = filter.ok_or_else(|| damaged("it has no filter"))?;
        Ok(Self { file, path, footer, fences, filter, segments })
    }

    /// Memtables that it was made of.
    pub(super) fn made_of(&self) -> Range<u64> {
        self.footer.made_of.clone()
    }

    /// Number of its slots.
    pub(super) fn count(&self) -> u64 {
        self.footer.count
    }

    /// See [`super::Index::rotate`].
    pub(super) fn note(&self) -> io::Result<Vec<u8>> {
        let mut note = vec![0; self.footer.note_len as usize];
        read_exact_at(&self.file, &mut note, self.footer.note_at())?;
        Ok(note)
    }

    /// The tables in `folder`, by the memtables that they were made of.
    pub(super) fn names_in(folder: &Path) -> io::Result<Vec<(Range<u64>, PathBuf)>> {
        let mut found = Vec::new();
        for file in fs::read_dir(folder)? {
            let path = file?.path();
            found.extend(made_of(&path).map(|made_of| (made_of, path)));
        }
        found.sort_by_key(|(made_of, _)| (made_of.start, u64::MAX - made_of.end));
        Ok(found)
    }

    /// Removes what is no table from `folder`: remains of writes that were cut off.
    pub(super) fn remove_remains(folder: &Path) -> io::Result<()> {
        for file in fs::read_dir(folder)? {
            let path = file?.path();
            if made_of(&path).is_none() {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Whether the id may have a slot here. Reads nothing from the disk.
    pub(super) fn may_have(&self, id: &RecordId) -> bool {
        self.filter.may_contain(id)
    }

    /// The slot of an id, if it has one here.
    pub(super) fn get(&self, id: &RecordId) -> io::Result<Option<Slot>> {
        if !self.filter.may_contain(id) {
            return Ok(None);
        }
        let Some(page) = self.page_of(id) else { return Ok(None) };
        let mut bytes = [0; PAGE];
        read_exact_at(&self.file, &mut bytes, (page * PAGE) as u64)?;
        let entries = self.entries(&bytes)?;
        let found = entries.binary_search_by_key(&id.as_bytes().as_slice(), |entry| &entry[..32]);
        Ok(found.ok().map(|at| entry::decode(&entries[at]).1))
    }

    /// The entries from an id on, in the order of ids, read that many pages at a time.
    pub(super) fn walk(self: &Arc<Self>, from: Bound<RecordId>, pages: usize) -> Walk {
        let page = match &from {
            Bound::Included(id) | Bound::Excluded(id) => self.page_of(id).unwrap_or(0),
            Bound::Unbounded => 0,
        };
        Walk { table: self.clone(), page, pages, from, read: Vec::new().into_iter() }
    }

    /// Takes the file away. Whoever still reads it may go on.
    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    /// Bytes of the file.
    pub(in crate::stores::embedded) fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |file| file.len())
    }

    /// The file.
    pub(in crate::stores::embedded) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a part of the file, also after [`Table::remove`].
    pub(in crate::stores::embedded) fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        read_exact_at(&self.file, bytes, at)
    }

    /// Checks the checksums of all pages. Returns where damaged ones begin. `see` is told what was
    /// read.
    pub(super) fn damaged_pages(
        &self,
        see: &mut dyn FnMut(u64) -> io::Result<()>,
    ) -> io::Result<Vec<u64>> {
        let (mut damaged, mut at) = (Vec::new(), 0);
        while at < self.footer.pages_len() {
            let len = CHECKED_AT_ONCE.min(self.footer.pages_len() - at);
            let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
            self.read(&mut bytes, at)?;
            for (page, page_at) in bytes.chunks_exact(PAGE).zip((at..).step_by(PAGE)) {
                if self.entries(page).is_err() {
                    damaged.push(page_at);
                }
            }
            see(len)?;
            at += len;
        }
        Ok(damaged)
    }

    /// The page that has the id if any has.
    fn page_of(&self, id: &RecordId) -> Option<usize> {
        self.fences.partition_point(|fence| fence <= id).checked_sub(1)
    }

    fn entries<'a>(&self, page: &'a [u8]) -> io::Result<&'a [[u8; ENTRY_LEN]]> {
        let number = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
        if number(0) != crc32fast::hash(&page[4..]) {
            let text = format!("{}: the checksum of a page does not fit", self.path.display());
            return Err(damaged(&text));
        }
        let entries = page[PAGE_HEAD..].as_chunks().0;
        Ok(&entries[..PAGE_ENTRIES.min(number(4) as usize)])
    }
}

/// The entries of a table from an id on.
pub(super) struct Walk {
    table: Arc<Table>,
    page: usize,
    /// How many pages are read at once.
    pages: usize,
    from: Bound<RecordId>,
    read: vec::IntoIter<Change>,
}

impl Walk {
    fn read(&mut self) -> io::Result<()> {
        let pages = self.pages.min(self.table.fences.len() - self.page);
        let mut bytes = vec![0; pages * PAGE];
        read_exact_at(&self.table.file, &mut bytes, (self.page * PAGE) as u64)?;
        let mut read = Vec::with_capacity(pages * PAGE_ENTRIES);
        for page in bytes.chunks_exact(PAGE) {
            read.extend(self.table.entries(page)?.iter().map(entry::decode));
        }
        read.retain(|(id, _)| match &self.from {
            Bound::Included(from) => id >= from,
            Bound::Excluded(from) => id > from,
            Bound::Unbounded => true,
        });
        self.page += pages;
        self.read = read.into_iter();
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = io::Result<Change>;

    fn next(&mut self) -> Option<io::Result<Change>> {
        loop {
            if let Some(change) = self.read.next() {
                return Some(Ok(change));
            }
            if self.page == self.table.fences.len() {
                return None;
            }
            if let Err(error) = self.read() {
                self.page = self.table.fences.len();
                return Some(Err(error));
            }
        }
    }
}

/// A table that is being written, in the order of ids.
pub(super) struct TableWriter {
    folder: PathBuf,
    unfinished: PathBuf,
    file: File,
    /// Where the next bytes go.
    at: u64,
    buffer: Vec<u8>,
    page: Vec<u8>,
    count: u64,
    fences: Vec<RecordId>,
    filter: Filter,
    segments: BTreeMap<u32, u64>,
}

impl TableWriter {
    /// A table of at most that many entries, in a file of this name until it is finished.
    pub(super) fn new(folder: &Path, unfinished: &str, count_max: u64) -> io::Result<Self> {
        let path = folder.join(unfinished);
        let file = private_files::options().create(true).truncate(true).open(&path)?;
        Ok(Self {
            folder: folder.to_owned(),
            unfinished: path,
            file,
            at: 0,
            buffer: Vec::with_capacity(STEP + PAGE),
            page: Vec::with_capacity(PAGE),
            count: 0,
            fences: Vec::new(),
            filter: Filter::for_ids(count_max),
            segments: BTreeMap::new(),
        })
    }

    /// Adds a slot. Tells whether a step was made durable, after which others may have their turn.
    pub(super) fn add(&mut self, id: &RecordId, slot: &Slot) -> io::Result<bool> {
        if self.page.is_empty() {
            self.fences.push(*id);
        }
        self.page.extend_from_slice(&entry::encode(id, slot));
        self.filter.add(id);
        self.count += 1;
        *self.segments.entry(slot.segment()).or_default() += 1;
        if self.page.len() == PAGE_ENTRIES * ENTRY_LEN {
            self.end_page();
        }
        if self.buffer.len() < STEP {
            return Ok(false);
        }
        self.write_buffer()?;
        Ok(true)
    }

    /// Takes away what is left of a table that could not be finished: the disk may be full.
    pub(super) fn clear(folder: &Path, unfinished: &str) {
        // A start removes it, too.
        let _ = fs::remove_file(folder.join(unfinished));
    }

    /// Makes the table durable, under the name of the memtables that it is made of.
    pub(super) fn finish(mut self, made_of: Range<u64>, note: &[u8]) -> io::Result<Table> {
        if !self.page.is_empty() {
            self.end_page();
        }
        let segments = encode_segments(&self.segments);
        let mut sum = crc32fast::Hasher::new();
        for at in 0..self.fences.len() {
            let id = self.fences[at];
            self.write_tail(id.as_bytes(), &mut sum)?;
        }
        let mut filter_len = 0;
        for block in 0..self.filter.blocks() {
            let bytes = self.filter.block_bytes(block);
            filter_len += bytes.len() as u64;
            self.write_tail(&bytes, &mut sum)?;
        }
        self.write_tail(&segments, &mut sum)?;
        for step in note.chunks(STEP) {
            self.write_tail(step, &mut sum)?;
        }
        let footer = Footer {
            pages: u32::try_from(self.fences.len()).expect("a table is far below 16 TiB"),
            count: self.count,
            filter_len,
            segments_len: u32::try_from(segments.len()).expect("there are few segments"),
            note_len: u32::try_from(note.len()).expect("a note is far below 4 GiB"),
            made_of: made_of.clone(),
            tail_sum: sum.finalize(),
        };
        self.buffer.extend_from_slice(&footer.encode());
        self.write_buffer()?;
        self.file.sync_all()?;
        let path = self.folder.join(format!("{:016x}-{:016x}{SUFFIX}", made_of.start, made_of.end));
        fs::rename(&self.unfinished, &path)?;
        private_files::sync_folder(&self.folder)?;
        let Self { file, fences, filter, segments, .. } = self;
        Ok(Table { file, path, footer, fences, filter, segments })
    }

    /// Adds a part behind the pages.
    fn write_tail(&mut self, bytes: &[u8], sum: &mut crc32fast::Hasher) -> io::Result<()> {
        sum.update(bytes);
        self.buffer.extend_from_slice(bytes);
        match self.buffer.len() < STEP {
            true => Ok(()),
            false => self.write_buffer(),
        }
    }

    fn end_page(&mut self) {
        let count = u32::try_from(self.page.len() / ENTRY_LEN).expect("a page has few entries");
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(&count.to_le_bytes());
        self.buffer.append(&mut self.page);
        self.buffer.resize(start + PAGE, 0);
        let sum = crc32fast::hash(&self.buffer[start + 4..]);
        self.buffer[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        write_all_at(&self.file, &self.buffer, self.at)?;
        self.file.sync_data()?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

struct Footer {
    pages: u32,
    count: u64,
    filter_len: u64,
    segments_len: u32,
    note_len: u32,
    made_of: Range<u64>,
    tail_sum: u32,
}

impl Footer {
    fn encode(&self) -> [u8; FOOTER_LEN] {
        let mut bytes = [0; FOOTER_LEN];
        bytes[..8].copy_from_slice(NAME);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.pages.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.count.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.filter_len.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.segments_len.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.note_len.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.made_of.start.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.made_of.end.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.tail_sum.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; FOOTER_LEN]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let is_whole = bytes[..8] == *NAME && number(60) == crc32fast::hash(&bytes[..60]);
        (is_whole && number(8) == FORMAT).then(|| Self {
            pages: number(12),
            count: long(16),
            filter_len: long(24),
            segments_len: number(32),
            note_len: number(36),
            made_of: long(40)..long(48),
            tail_sum: number(56),
        })
    }

    fn pages_len(&self) -> u64 {
        u64::from(self.pages) * PAGE as u64
    }

    fn fences_len(&self) -> u64 {
        u64::from(self.pages) * RecordId::LEN as u64
    }

    /// Where the note begins, the last part before the footer.
    fn note_at(&self) -> u64 {
        self.pages_len() + self.fences_len() + self.filter_len + u64::from(self.segments_len)
    }
}

fn encode_segments(segments: &BTreeMap<u32, u64>) -> Vec<u8> {
    let encode = |(segment, count): (&u32, &u64)| {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&segment.to_le_bytes());
        bytes[4..].copy_from_slice(&count.to_le_bytes());
        bytes
    };
    segments.iter().flat_map(encode).collect()
}

fn decode_segments(bytes: &[u8]) -> BTreeMap<u32, u64> {
    let decode = |bytes: &[u8; 12]| {
        let segment = u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes"));
        (segment, u64::from_le_bytes(bytes[4..].try_into().expect("8 bytes")))
    };
    bytes.as_chunks().0.iter().map(decode).collect()
}

fn made_of(path: &Path) -> Option<Range<u64>> {
    let name = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
    let (start, end) = name.split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(number(start)?..number(end)?)
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
