//! [`FactsFile`]: small values under a name, in a file of their own.
//!
//! Seldom written, and then anew as a whole. The file is there from the store's beginning: without the
//! installation's secret every key would be a new one, so that it is missing must not go unnoticed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::OpenError;
use super::trouble::Failure;
use crate::private_files;

/// The name of the file.
pub(super) const NAME: &str = "facts";
const UNFINISHED: &str = "facts.new";
const SUM_LEN: usize = 4;

/// Small values under a name.
pub(super) struct FactsFile {
    folder: PathBuf,
    known: BTreeMap<String, Vec<u8>>,
}

impl FactsFile {
    /// Reads the file, which is made where the store `is_new`.
    pub(super) fn open(folder: &Path, is_new: bool) -> Result<Self, OpenError> {
        let path = folder.join(NAME);
        let folder = folder.to_owned();
        let known = match fs::read(&path) {
            Ok(bytes) => decode(&bytes).ok_or_else(|| OpenError::Damaged {
                path: path.clone(),
                what: "its checksum does not fit".to_owned(),
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_new => {
                let new = Self { folder, known: BTreeMap::new() };
                new.write().map_err(|failure| {
                    let (Failure::Refused(source) | Failure::Disk(source)) = failure;
                    OpenError::File { path, source: source.into() }
                })?;
                return Ok(new);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::Damaged { path, what: "it is missing".to_owned() });
            }
            Err(source) => return Err(OpenError::File { path, source: source.into() }),
        };
        Ok(Self { folder, known })
    }

    /// Checks the file without changing anything. Returns its length.
    pub(super) fn check(folder: &Path) -> Result<u64, OpenError> {
        let path = folder.join(NAME);
        match fs::read(&path) {
            Ok(bytes) if decode(&bytes).is_some() => Ok(bytes.len() as u64),
            Ok(_) => Err(OpenError::Damaged { path, what: "its checksum does not fit".to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(OpenError::Damaged { path, what: "it is missing".to_owned() })
            }
            Err(source) => Err(OpenError::File { path, source: source.into() }),
        }
    }

    /// The bytes of the file.
    pub(super) fn encoded(&self) -> Vec<u8> {
        encode(&self.known)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Vec<u8>> {
        self.known.get(name)
    }

    pub(super) fn all(&self) -> Vec<(String, Vec<u8>)> {
        self.known.clone().into_iter().collect()
    }

    /// Puts `value` under `name`, durably.
    pub(super) fn set(&mut self, name: &str, value: Vec<u8>) -> Result<(), Failure> {
        let before = self.known.insert(name.to_owned(), value);
        self.write().inspect_err(|_| {
            match before {
                Some(before) => self.known.insert(name.to_owned(), before),
                None => self.known.remove(name),
            };
        })
    }

    fn write(&self) -> Result<(), Failure> {
        let unfinished = self.folder.join(UNFINISHED);
        self.write_unfinished(&unfinished).map_err(Failure::Refused)?;
        // From here on the next start may find it.
        fs::rename(unfinished, self.folder.join(NAME))
            .and_then(|()| private_files::sync_folder(&self.folder))
            .map_err(Failure::Disk)
    }

    fn write_unfinished(&self, path: &Path) -> io::Result<()> {
        let mut file = private_files::options().create(true).truncate(true).open(path)?;
        file.write_all(&encode(&self.known))?;
        file.sync_all()
    }
}

fn encode(facts: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in facts.iter().flat_map(|(name, value)| [name.as_bytes(), value]) {
        let len = u32::try_from(part.len()).expect("facts are small");
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(part);
    }
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
    let (mut rest, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM_LEN)?)?;
    if crc32fast::hash(rest).to_le_bytes() != sum {
        return None;
    }
    let mut part = || {
        let (len, behind) = rest.split_first_chunk::<4>()?;
        let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        rest = behind;
        Some(part.to_vec())
    };
    let mut facts = BTreeMap::new();
    while let Some(name) = part() {
        facts.insert(String::from_utf8(name).ok()?, part()?);
    }
    Some(facts)
}
