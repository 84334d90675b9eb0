//! Encryption at rest: [`Seal`] closes what a record keeps, so that who reads the store's files or a
//! backup of them reads none of it.
//!
//! A sealed value is bound to its record and its [`Kind`]: put into another place, it does not open.
//! One that does not open is damaged: neither served nor run again. Keys are changed by adding one,
//! see [`Keyring`].

mod keyring;
mod values;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use selfsame_core::{RecordId, StoreError, StoreErrorKind};

pub use keyring::{InvalidKeyFile, InvalidKeyring, Keyring};

/// What a sealed value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The headers, the body and the trailers of an answer.
    Answer = 1,
    /// The data of a checkpoint.
    Checkpoint = 2,
    /// A request that is kept for as long as its work is not done.
    Request = 3,
}

/// The keys that count now, if there are any. Cheap to clone; keys that are put in their place
/// count for all clones.
#[derive(Debug, Clone, Default)]
pub struct Seal {
    keyring: Arc<RwLock<Option<Arc<Keyring>>>>,
}

impl Seal {
    /// Without keys: nothing is sealed, and nothing that is can be opened.
    pub fn none() -> Self {
        Self::default()
    }

    /// With these keys.
    pub fn new(keyring: Keyring) -> Self {
        let seal = Self::none();
        seal.replace(Some(keyring));
        seal
    }

    /// From now on these keys count.
    pub fn replace(&self, keyring: Option<Keyring>) {
        *self.keyring.write() = keyring.map(Arc::new);
    }

    /// Whether there is a key to seal with.
    pub fn has_key(&self) -> bool {
        self.keyring.read().is_some()
    }

    /// `plain`, sealed for this record; nothing where there is no key.
    pub fn close(&self, id: &RecordId, kind: Kind, plain: &[u8]) -> Option<Bytes> {
        self.keys().map(|keyring| keyring.close(id, kind, plain).into())
    }

    /// What [`Seal::close`] sealed for this record.
    ///
    /// # Errors
    /// A [damaged](StoreErrorKind::Damaged) one, if the key it was sealed with is not here, or if it
    /// was changed, or sealed for another record or as another kind.
    pub fn open(&self, id: &RecordId, kind: Kind, sealed: &[u8]) -> Result<Bytes, StoreError> {
        let opened = match self.keys() {
            Some(keyring) => keyring.open(id, kind, sealed),
            None => Err(Unopened::NoKeys),
        };
        opened.map(Bytes::from).map_err(StoreError::from)
    }

    fn keys(&self) -> Option<Arc<Keyring>> {
        self.keyring.read().clone()
    }
}

/// Why a sealed value stays closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unopened {
    #[error("it is encrypted, and no encryption key is configured")]
    NoKeys,
    #[error("it is encrypted with the key {id:?}, which is not in the key file")]
    UnknownKey { id: String },
    #[error("it was not encrypted with this key {id:?}, or not for this place, or it was changed")]
    Refused { id: String },
    #[error("its seal is cut off, or written by a version this build does not know")]
    NoSeal,
}

impl From<Unopened> for StoreError {
    fn from(error: Unopened) -> Self {
        Self::new(StoreErrorKind::Damaged, "a stored record cannot be opened").caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    const ONE: &str = "one AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const TWO: &str = "two AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn keys(lines: &[&str]) -> Keyring {
        Keyring::parse(&lines.join("\n")).expect("valid")
    }

    fn id(byte: u8) -> RecordId {
        RecordId::from_bytes([byte; RecordId::LEN])
    }

    fn sealed(seal: &Seal) -> Bytes {
        seal.close(&id(1), Kind::Answer, b"paid").expect("there is a key")
    }

    fn cause(opened: Result<Bytes, StoreError>) -> String {
        let error = opened.expect_err("it stays closed");
        assert!(error.is_damaged());
        error.source().expect("a cause").to_string()
    }

    #[test]
    fn what_was_sealed_opens_and_shows_nothing() {
        let seal = Seal::new(keys(&[ONE]));
        let closed = sealed(&seal);
        assert!(!closed.windows(4).any(|part| part == b"paid"));
        assert_eq!(seal.open(&id(1), Kind::Answer, &closed).expect("opens"), "paid");
        assert_ne!(closed, sealed(&seal), "a nonce is used once");
        let empty = seal.close(&id(1), Kind::Request, b"").expect("there is a key");
        assert_eq!(seal.open(&id(1), Kind::Request, &empty).expect("opens"), "");
    }

    #[test]
    fn a_value_in_another_place_stays_closed() {
        let seal = Seal::new(keys(&[ONE]));
        let closed = sealed(&seal);
        for opened in
            [seal.open(&id(2), Kind::Answer, &closed), seal.open(&id(1), Kind::Checkpoint, &closed)]
        {
            assert!(cause(opened).contains("not for this place"));
        }
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_noticed() {
        let seal = Seal::new(keys(&[ONE]));
        let closed = sealed(&seal);
        for at in 0..closed.len() {
            let mut changed = closed.to_vec();
            changed[at] ^= 1;
            assert!(seal.open(&id(1), Kind::Answer, &changed).is_err(), "byte {at}");
            assert!(seal.open(&id(1), Kind::Answer, &closed[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn the_first_key_seals_and_all_of_them_open() {
        let seal = Seal::new(keys(&[ONE]));
        let old = sealed(&seal);
        let elsewhere = seal.clone();
        seal.replace(Some(keys(&[TWO, ONE])));
        assert_eq!(elsewhere.open(&id(1), Kind::Answer, &old).expect("opens"), "paid");
        let new = sealed(&elsewhere);
        seal.replace(Some(keys(&[TWO])));
        assert_eq!(seal.open(&id(1), Kind::Answer, &new).expect("opens"), "paid");
        assert!(cause(seal.open(&id(1), Kind::Answer, &old)).contains("key \"one\""));
    }

    #[test]
    fn another_key_of_the_same_name_opens_nothing() {
        let closed = sealed(&Seal::new(keys(&[ONE])));
        let other = Seal::new(keys(&[&TWO.replace("two", "one")]));
        assert!(cause(other.open(&id(1), Kind::Answer, &closed)).contains("not encrypted with"));
    }

    #[test]
    fn without_keys_nothing_is_sealed_and_nothing_opens() {
        let closed = sealed(&Seal::new(keys(&[ONE])));
        let none = Seal::none();
        assert!(!none.has_key());
        assert_eq!(none.close(&id(1), Kind::Answer, b"paid"), None);
        assert!(cause(none.open(&id(1), Kind::Answer, &closed)).contains("no encryption key"));
    }

    #[test]
    fn what_an_older_build_sealed_still_opens() {
        let mut closed = b"\x01\x03one".to_vec();
        closed.extend_from_slice(&[7; 24]);
        closed.extend_from_slice(&GOLDEN);
        let seal = Seal::new(keys(&[ONE]));
        assert_eq!(seal.open(&id(1), Kind::Answer, &closed).expect("opens"), "paid");
    }

    /// "paid" under the key "one", as another implementation has it.
    const GOLDEN: [u8; 20] = [
        0x96, 0xde, 0x32, 0xbc, 0xd3, 0xc0, 0x12, 0x98, 0x39, 0xb3, 0x7f, 0xe4, 0xbf, 0x03, 0xb1,
        0x4d, 0x21, 0x20, 0x6c, 0x07,
    ];
}
