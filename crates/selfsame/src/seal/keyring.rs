//! [`Keyring`]: the keys of a key file, and what is done with one of them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use selfsame_core::RecordId;

use super::{Kind, Unopened};

const VERSION: u8 = 1;
const KEY_LEN: usize = 32;
const NONCE_LEN: usize = 24;
const TAG_LEN: usize = 16;
const ID_CHARACTERS_MAX: usize = 32;
/// A file of keys is short; anything longer is another file.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The keys that values are sealed with: the first seals, all of them open.
///
/// Their file has a line for each, `ID BASE64-OF-32-BYTES`; empty lines and those that begin with `#`
/// are not read. To change the key, put a new one above the others. The old one must stay for as
/// long as there are records that it sealed: without it they are errors.
#[derive(Clone, PartialEq, Eq)]
pub struct Keyring {
    first: NamedKey,
    others: Vec<NamedKey>,
}

#[derive(Clone, PartialEq, Eq)]
struct NamedKey {
    id: String,
    bytes: [u8; KEY_LEN],
}

/// What is wrong with a text of keys, and in which line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeyring {
    /// There is no key in it.
    #[error("holds no key; add the line that `selfsame config new-key` prints")]
    Empty,
    /// A line is not an id and a key.
    #[error(
        "line {line}: expected an id, a space and a key, as `selfsame config new-key` prints them"
    )]
    Line {
        /// Which one, counted from 1.
        line: usize,
    },
    /// An id is too long, or has characters that ids do not have.
    #[error(
        "line {line}: an id has 1 to {ID_CHARACTERS_MAX} letters, digits, dots, dashes or underscores"
    )]
    Id {
        /// Which one, counted from 1.
        line: usize,
    },
    /// A key is not 32 bytes in base64.
    #[error(
        "line {line}: the key is not {KEY_LEN} bytes in base64; `selfsame config new-key` makes one"
    )]
    Key {
        /// Which one, counted from 1.
        line: usize,
    },
    /// An id stands for two keys.
    #[error("line {line}: the id {id:?} stands here twice; give each key one of its own")]
    Twice {
        /// Which one, counted from 1.
        line: usize,
        /// The id.
        id: String,
    },
}

/// Why a file of keys is not taken.
#[derive(Debug, thiserror::Error)]
pub enum InvalidKeyFile {
    /// It cannot be read.
    #[error("the key file {} cannot be read: {error}", path.display())]
    Unreadable {
        /// Where it should be.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Everybody on this machine can read it.
    #[error("the key file {0} can be read or written by everybody; run chmod o-rwx {0}", path.display())]
    Open {
        /// Where it is.
        path: PathBuf,
    },
    /// There is something else in it.
    #[error("the key file {} {invalid}", path.display())]
    Invalid {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        invalid: InvalidKeyring,
    },
}

impl Keyring {
    /// The keys in a file that is not for everybody's eyes. Blocks.
    pub fn read(path: &Path) -> Result<Self, InvalidKeyFile> {
        let unreadable = |error| InvalidKeyFile::Unreadable { path: path.into(), error };
        let file = File::open(path).map_err(unreadable)?;
        if is_open_to_everybody(&file).map_err(unreadable)? {
            return Err(InvalidKeyFile::Open { path: path.into() });
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
        Self::parse(&text).map_err(|invalid| InvalidKeyFile::Invalid { path: path.into(), invalid })
    }

    /// The keys in `text`.
    pub fn parse(text: &str) -> Result<Self, InvalidKeyring> {
        let mut keys: Vec<NamedKey> = Vec::new();
        for (line, written) in (1..).zip(text.lines().map(str::trim)) {
            if written.is_empty() || written.starts_with('#') {
                continue;
            }
            let key = NamedKey::parse(written, line)?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(InvalidKeyring::Twice { line, id: key.id });
            }
            keys.push(key);
        }
        let mut keys = keys.into_iter();
        let first = keys.next().ok_or(InvalidKeyring::Empty)?;
        Ok(Self { first, others: keys.collect() })
    }

    /// A line for a file of keys: this id, and a new random key.
    pub fn new_line(id: &str) -> Result<String, InvalidKeyring> {
        let line = format!("{id} {}", STANDARD.encode(random::<KEY_LEN>()));
        NamedKey::parse(&line, 1).map(|_| line)
    }

    /// Version, length of the key's id, id, nonce, what was encrypted, tag.
    pub(super) fn close(&self, record: &RecordId, kind: Kind, plain: &[u8]) -> Vec<u8> {
        let NamedKey { id, bytes } = &self.first;
        let id_len = u8::try_from(id.len()).expect("an id is short");
        let nonce = random::<NONCE_LEN>();
        let head = [&[VERSION, id_len], id.as_bytes(), &nonce].concat();
        let mut sealed = Vec::with_capacity(head.len() + plain.len() + TAG_LEN);
        sealed.extend_from_slice(&head);
        sealed.extend_from_slice(plain);
        let tag = XChaCha20Poly1305::new(bytes.into())
            .encrypt_inout_detached(
                &nonce.into(),
                &place(record, kind),
                (&mut sealed[head.len()..]).into(),
            )
            .expect("bodies are far below 256 GiB");
        sealed.extend_from_slice(&tag);
        sealed
    }

    pub(super) fn open(
        &self,
        record: &RecordId,
        kind: Kind,
        sealed: &[u8],
    ) -> Result<Vec<u8>, Unopened> {
        let Parts { id, nonce, encrypted, tag } = Parts::of(sealed).ok_or(Unopened::NoSeal)?;
        let key = [&self.first].into_iter().chain(&self.others).find(|key| key.id == id);
        let key = key.ok_or_else(|| Unopened::UnknownKey { id: id.to_owned() })?;
        let mut plain = encrypted.to_vec();
        XChaCha20Poly1305::new((&key.bytes).into())
            .decrypt_inout_detached(
                nonce.into(),
                &place(record, kind),
                plain.as_mut_slice().into(),
                tag.into(),
            )
            .map_err(|_| Unopened::Refused { id: id.to_owned() })?;
        Ok(plain)
    }
}

impl NamedKey {
    fn parse(written: &str, line: usize) -> Result<Self, InvalidKeyring> {
        let mut words = written.split_whitespace();
        let (Some(id), Some(key), None) = (words.next(), words.next(), words.next()) else {
            return Err(InvalidKeyring::Line { line });
        };
        let fits = |character: char| character.is_ascii_alphanumeric() || ".-_".contains(character);
        if id.len() > ID_CHARACTERS_MAX || !id.chars().all(fits) {
            return Err(InvalidKeyring::Id { line });
        }
        let bytes = STANDARD.decode(key).ok().and_then(|bytes| bytes.try_into().ok());
        let bytes = bytes.ok_or(InvalidKeyring::Key { line })?;
        Ok(Self { id: id.to_owned(), bytes })
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Their ids are no secret.
        let ids = [&self.first].into_iter().chain(&self.others).map(|key| &key.id);
        f.debug_list().entries(ids).finish()
    }
}

/// A sealed value in its parts.
struct Parts<'a> {
    id: &'a str,
    nonce: &'a [u8; NONCE_LEN],
    encrypted: &'a [u8],
    tag: &'a [u8; TAG_LEN],
}

impl<'a> Parts<'a> {
    fn of(sealed: &'a [u8]) -> Option<Self> {
        let (&[version, id_len], rest) = sealed.split_first_chunk()?;
        let (id, rest) = rest.split_at_checked(usize::from(id_len))?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (encrypted, tag) = rest.split_last_chunk()?;
        let id = std::str::from_utf8(id).ok().filter(|_| version == VERSION)?;
        Some(Self { id, nonce, encrypted, tag })
    }
}

/// Where a value belongs: it opens nowhere else.
fn place(record: &RecordId, kind: Kind) -> Vec<u8> {
    [b"selfsame", &[VERSION, kind as u8][..], record.as_bytes()].concat()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    bytes
}

#[cfg(unix)]
fn is_open_to_everybody(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(file.metadata()?.permissions().mode() & 0o007 != 0)
}

#[cfg(not(unix))]
fn is_open_to_everybody(_: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn comments_and_empty_lines_are_not_read() {
        let text = format!("# from the vault\n\n  2026-11\t{KEY}\r\n#a {KEY}\nb.c_d {KEY}\n");
        let keyring = Keyring::parse(&text).expect("valid");
        assert_eq!(format!("{keyring:?}"), r#"["2026-11", "b.c_d"]"#);
    }

    #[test]
    fn a_new_line_is_a_key_of_its_own() {
        let lines = ["a", "b"].map(|id| Keyring::new_line(id).expect("a fitting id"));
        let keyring = Keyring::parse(&lines.join("\n")).expect("valid");
        assert_ne!(keyring.first.bytes, keyring.others[0].bytes);
        assert_eq!(Keyring::new_line("a b"), Err(InvalidKeyring::Line { line: 1 }));
        assert_eq!(Keyring::new_line("ä"), Err(InvalidKeyring::Id { line: 1 }));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let long = "x".repeat(ID_CHARACTERS_MAX + 1);
        let table = [
            ("".to_owned(), InvalidKeyring::Empty),
            ("# only this".to_owned(), InvalidKeyring::Empty),
            (format!("a {KEY}\nb"), InvalidKeyring::Line { line: 2 }),
            (format!("a {KEY} {KEY}"), InvalidKeyring::Line { line: 1 }),
            (format!("\n{long} {KEY}"), InvalidKeyring::Id { line: 2 }),
            (format!("a/b {KEY}"), InvalidKeyring::Id { line: 1 }),
            ("a AAEC".to_owned(), InvalidKeyring::Key { line: 1 }),
            ("a no-base64!".to_owned(), InvalidKeyring::Key { line: 1 }),
            (format!("a {KEY}\na {KEY}"), InvalidKeyring::Twice { line: 2, id: "a".into() }),
        ];
        for (text, expected) in table {
            assert_eq!(Keyring::parse(&text), Err(expected), "{text:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_everybody_can_read_is_not_taken() {
        use std::fs::{self, Permissions};
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        assert!(matches!(Keyring::read(&path), Err(InvalidKeyFile::Unreadable { .. })));
        fs::write(&path, format!("a {KEY}")).expect("written");
        for (mode, is_taken) in [(0o600, true), (0o440, true), (0o644, false), (0o602, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
            let read = Keyring::read(&path);
            assert_eq!(read.is_ok(), is_taken, "{mode:o}: {read:?}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
        fs::write(&path, "a").expect("written");
        let said = Keyring::read(&path).expect_err("no key").to_string();
        assert!(said.contains("line 1: expected an id"), "{said}");
    }
}
