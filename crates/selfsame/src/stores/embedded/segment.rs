//! [`Segment`]: one file of the log.
//!
//! It is written full of zeros before it is used, because a file that grows costs up to three times
//! as much per commit.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::OpenError;
use super::frame::Salt;
use crate::private_files;

/// What a segment begins with: who we are, the format, its number, its salt, and their checksum.
pub(super) const START: u64 = 28;
const SUM_AT: usize = 24;
const NAME: &[u8; 8] = b"selfsame";
/// Since the second format the log says which segments it has left behind.
const FORMAT: u32 = 2;
const FORMAT_WITHOUT_FLOOR: u32 = 1;

const PREFIX: &str = "records-";
const SUFFIX: &str = ".log";
const UNFINISHED: &str = "records.new";

/// How much is written at a time while a segment is made, so that commits get their turn.
const STEP: usize = 256 * 1024;

/// How much is read at a time where the disk cannot read all.
const SECTOR: usize = 512;

/// One file of the log.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    pub(super) salt: Salt,
    pub(super) path: PathBuf,
    file: File,
    /// How much of it was written beforehand.
    pub(super) capacity: u64,
    /// Whether it is of a version that did not note which older segments are needed.
    pub(super) is_without_floor: bool,
    /// Whether parts that the disk cannot read are read as zeros.
    is_salvaged: bool,
}

impl Segment {
    /// The file of a segment.
    pub(super) fn path(folder: &Path, number: u32) -> PathBuf {
        folder.join(format!("{PREFIX}{number:08}{SUFFIX}"))
    }

    /// Makes a segment of this size. It has its name only when it is whole.
    pub(super) fn create(folder: &Path, number: u32, size: u64) -> io::Result<Self> {
        let unfinished = folder.join(UNFINISHED);
        let salt = Salt(getrandom::u64().expect("the system has random bytes"));
        let made = Self::fill(&unfinished, &start(FORMAT, number, salt), size).and_then(|file| {
            let path = Self::path(folder, number);
            fs::rename(&unfinished, &path)?;
            private_files::sync_folder(folder)?;
            Ok(Self {
                number,
                salt,
                path,
                file,
                capacity: size,
                is_without_floor: false,
                is_salvaged: false,
            })
        });
        if made.is_err() {
            // Half a segment would only take room from others.
            let _ = fs::remove_file(&unfinished);
        }
        made
    }

    fn fill(path: &Path, start: &[u8], size: u64) -> io::Result<File> {
        let file = private_files::options().create(true).truncate(true).open(path)?;
        write_all_at(&file, start, 0)?;
        let zeros = vec![0; STEP];
        let mut end = START;
        while end < size {
            let step = zeros.len().min(usize::try_from(size - end).unwrap_or(usize::MAX));
            write_all_at(&file, &zeros[..step], end)?;
            file.sync_data()?;
            end += step as u64;
        }
        file.sync_all()?;
        Ok(file)
    }

    /// The segments in `folder`, the oldest first.
    pub(super) fn open_all(folder: &Path) -> Result<Vec<Self>, OpenError> {
        let failed = |source: io::Error| OpenError::Folder { path: folder.to_owned(), source };
        match fs::remove_file(folder.join(UNFINISHED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let mut segments = Vec::new();
        for (number, path) in Self::names_in(folder).map_err(failed)? {
            segments.push(Self::open(path, number, &private_files::options())?);
        }
        Ok(segments)
    }

    /// Numbers and files of the segments in `folder`, the oldest first.
    pub(super) fn names_in(folder: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            names.extend(number_of(&path).map(|number| (number, path)));
        }
        names.sort();
        Ok(names)
    }

    /// Opens a segment that is only read.
    pub(super) fn open_to_read(path: PathBuf, number: u32) -> Result<Self, OpenError> {
        Self::open(path, number, OpenOptions::new().read(true))
    }

    fn open(path: PathBuf, number: u32, options: &OpenOptions) -> Result<Self, OpenError> {
        let read = || {
            let file = options.open(&path)?;
            let capacity = file.metadata()?.len();
            let mut found = [0; START as usize];
            if capacity >= START {
                read_exact_at(&file, &mut found, 0)?;
            }
            Ok((file, capacity, found))
        };
        let (file, capacity, found) = match read() {
            Ok(read) => read,
            Err(source) => {
                let source: io::Error = source;
                return Err(OpenError::File { path, source: source.into() });
            }
        };
        let salt = found[16..SUM_AT].try_into().expect("8 bytes");
        let salt = Salt(u64::from_le_bytes(salt));
        let is_without_floor = found == start(FORMAT_WITHOUT_FLOOR, number, salt);
        if found != start(FORMAT, number, salt) && !is_without_floor {
            return Err(not_ours(path, &found));
        }
        let is_salvaged = false;
        Ok(Self { number, salt, path, file, capacity, is_without_floor, is_salvaged })
    }

    /// Numbers of the segments in `folder`, the oldest first.
    pub(super) fn list(folder: &Path) -> io::Result<Vec<u32>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(folder)? {
            numbers.extend(number_of(&entry?.path()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Opens a segment of which only a part may be readable, to read it alone. Returns whether its
    /// beginning is what was written; none where not even that is there. Even if the beginning is
    /// damaged its salt may be right: heads that fit it prove that.
    pub(super) fn open_damaged(
        folder: &Path,
        number: u32,
    ) -> Result<Option<(Self, bool)>, OpenError> {
        let path = Self::path(folder, number);
        let failed =
            |source: io::Error| OpenError::File { path: path.clone(), source: source.into() };
        let file = File::open(&path).map_err(failed)?;
        let capacity = file.metadata().map_err(failed)?.len();
        if capacity < START {
            return Ok(None);
        }
        let mut segment = Self {
            number,
            salt: Salt(0),
            path: path.clone(),
            file,
            capacity,
            is_without_floor: false,
            is_salvaged: true,
        };
        let found = segment.read(START as usize, 0).map_err(failed)?;
        let found: [u8; START as usize] = found.try_into().expect("its length");
        segment.salt = Salt(u64::from_le_bytes(found[16..SUM_AT].try_into().expect("8 bytes")));
        segment.is_without_floor = found == start(FORMAT_WITHOUT_FLOOR, number, segment.salt);
        let is_whole = found == start(FORMAT, number, segment.salt) || segment.is_without_floor;
        match not_ours(path, &found) {
            newer @ OpenError::Newer { .. } if !is_whole => Err(newer),
            _ => Ok(Some((segment, is_whole))),
        }
    }

    pub(super) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        write_all_at(&self.file, bytes, at)
    }

    /// Writes a part of it once more, durably. After a sync that failed the system may show what the
    /// disk has not got, and would never write it by itself.
    pub(super) fn write_again(&self, part: Range<u64>) -> io::Result<()> {
        let mut at = part.start;
        while at < part.end {
            let len = STEP.min(usize::try_from(part.end - at).unwrap_or(usize::MAX));
            self.write(&self.read(len, at)?, at)?;
            at += len as u64;
        }
        self.sync()
    }

    /// Returns when all that was written is on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(super) fn read(&self, len: usize, at: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_exact(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Reads a part into `bytes`, also after [`Segment::remove`].
    pub(super) fn read_into(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        read_exact_at(&self.file, bytes, at)
    }

    /// Reads as much of `bytes` as there is.
    pub(super) fn read_some(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let left = self.file.metadata()?.len().saturating_sub(at);
        let len = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.read_exact(&mut bytes[..len], at)?;
        Ok(len)
    }

    fn read_exact(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        match read_exact_at(&self.file, bytes, at) {
            Err(error) if self.is_salvaged && error.kind() != io::ErrorKind::UnexpectedEof => {
                tracing::warn!(path = %self.path.display(), at, %error, "a part cannot be read");
                let mut at = at;
                for sector in bytes.chunks_mut(SECTOR) {
                    if read_exact_at(&self.file, sector, at).is_err() {
                        sector.fill(0);
                    }
                    at += sector.len() as u64;
                }
                Ok(())
            }
            read => read,
        }
    }

    /// Takes the file away. Whoever still reads it may go on. It is gone for good before a younger
    /// one can be: what an older file says must never come back without what a younger one says.
    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            // It went the last time, when that could not be made durable.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        private_files::sync_folder(self.path.parent().expect("a file is in a folder"))
    }
}

fn start(format: u32, number: u32, salt: Salt) -> [u8; START as usize] {
    let mut bytes = [0; START as usize];
    bytes[..8].copy_from_slice(NAME);
    bytes[8..12].copy_from_slice(&format.to_le_bytes());
    bytes[12..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..SUM_AT].copy_from_slice(&salt.0.to_le_bytes());
    let sum = crc32fast::hash(&bytes[..SUM_AT]);
    bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Why a segment with another start is refused.
fn not_ours(path: PathBuf, found: &[u8; START as usize]) -> OpenError {
    let number = |at: usize| u32::from_le_bytes(found[at..at + 4].try_into().expect("4 bytes"));
    // Beside other files of ours it is one whose beginning is damaged.
    if &found[..8] != NAME && !path.with_file_name("facts").exists() {
        return OpenError::Foreign { path };
    }
    if number(SUM_AT) == crc32fast::hash(&found[..SUM_AT]) && number(8) > FORMAT {
        return OpenError::Newer { path, found: number(8).into(), known: FORMAT.into() };
    }
    OpenError::Damaged { path, what: "its beginning is not what was written".to_owned() }
}

/// Whether a file is a segment, by its name.
pub(super) fn is_segment(path: &Path) -> bool {
    number_of(path).is_some()
}

fn number_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

#[cfg(unix)]
pub(super) fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(unix)]
pub(super) fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
pub(super) fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, at)?;
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}

#[cfg(windows)]
pub(super) fn read_exact_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[read..];
        at += read as u64;
    }
    Ok(())
}
