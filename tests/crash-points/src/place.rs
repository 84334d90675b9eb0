//! [`Place`]: a folder in which one image after the other is laid out.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::body;
use crate::crash::Image;
use crate::recorder::fast_folder;

/// A folder that becomes one image after the other.
#[derive(Debug)]
pub struct Place {
    folder: TempDir,
}

impl Default for Place {
    fn default() -> Self {
        Self { folder: fast_folder() }
    }
}

impl Place {
    /// The folder whose content the recorder noted.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of the store.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Makes the folder what the image is. Files are written over where they are, which is cheaper
    /// than to make them anew.
    ///
    /// # Panics
    ///
    /// If the folder cannot be written.
    pub fn lay_out(&self, image: &Image) {
        let mut present = BTreeSet::new();
        list(self.root(), "", &mut present);
        // What is in a folder comes behind it.
        for path in present.iter().rev() {
            let full = self.root().join(path);
            match (image.files.get(path), full.is_dir()) {
                (Some(Some(_)), false) | (Some(None), true) => {}
                (_, true) => fs::remove_dir(full).expect("an empty folder can be removed"),
                (_, false) => fs::remove_file(full).expect("a file can be removed"),
            }
        }
        for (path, content) in &image.files {
            let full = self.root().join(path);
            match content {
                None if full.is_dir() => {}
                None => fs::create_dir(full).expect("a folder can be made"),
                Some(content) => write(&full, content),
            }
        }
    }

    /// Tells of which bodies anything is in any file, with one such file.
    ///
    /// # Panics
    ///
    /// If a file cannot be read.
    pub fn bodies_of(&self, tags: &BTreeSet<u64>) -> Option<(u64, String)> {
        let mut present = BTreeSet::new();
        list(self.root(), "", &mut present);
        for path in present {
            let full = self.root().join(&path);
            if full.is_file() {
                let content = fs::read(full).expect("a file can be read");
                if let Some(tag) = body::tags(&content).intersection(tags).next() {
                    return Some((*tag, path));
                }
            }
        }
        None
    }
}

fn write(path: &Path, content: &[u8]) {
    let file = fs::File::options().write(true).create(true).truncate(false).open(path);
    let mut file = file.expect("a file can be made");
    file.write_all(content).expect("a file can be written");
    file.set_len(content.len() as u64).expect("a file can be cut");
}

fn list(folder: &Path, path: &str, present: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let entry = entry.expect("it can be read");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        if entry.path().is_dir() {
            list(&entry.path(), &path, present);
        }
        present.insert(path);
    }
}
