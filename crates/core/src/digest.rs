//! Length-prefixed hashing, so that no two lists of fields give the same bytes; and the
//! installation's [`Secret`].

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The secret of an installation: record ids, tenants and fingerprints are keyed with it.
#[derive(Clone)]
pub struct Secret {
    bytes: [u8; Secret::LEN],
    /// Keyed once: each digest begins with a copy.
    keyed: Hmac<Sha256>,
    id: u32,
}

impl Secret {
    /// How many bytes a secret has.
    pub const LEN: usize = 32;

    /// A new, random secret.
    pub fn random() -> Self {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        bytes[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        // A version-4 UUID has six fixed bits; hashing leaves none to be seen.
        Self::of(Sha256::digest(bytes).into())
    }

    /// The secret behind these bytes; anything but [`Secret::LEN`] of them is hashed down.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        match bytes.try_into() {
            Ok(exact) => Self::of(exact),
            Err(_) => Self::of(Sha256::digest(bytes).into()),
        }
    }

    fn of(bytes: [u8; Self::LEN]) -> Self {
        let keyed = Hmac::new_from_slice(&bytes).expect("HMAC takes a key of any length");
        let mut secret = Self { bytes, keyed, id: 0 };
        let digest = secret.tag("secret-id", &[]);
        secret.id = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        secret
    }

    /// The bytes, for the store that keeps them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A number that names this secret and gives nothing of it away.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The HMAC of `fields` for `purpose`.
    pub fn tag(&self, purpose: &str, fields: &[&[u8]]) -> [u8; 32] {
        let mut digester = Digester::new(Some(self), purpose);
        for field in fields {
            digester.field(field);
        }
        digester.finish()
    }

    /// Whether `shown` is the [`tag`](Self::tag) of the same. How long that takes tells nothing of
    /// where they differ.
    pub fn is_tag(&self, purpose: &str, fields: &[&[u8]], shown: &[u8; 32]) -> bool {
        let pairs = self.tag(purpose, fields).into_iter().zip(shown);
        pairs.fold(0, |differing, (right, shown)| differing | (right ^ shown)) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How much is gathered before it is hashed: adding many short pieces costs more than copying them.
const GATHERED: usize = 256;

/// SHA-256, or HMAC-SHA-256 under a secret, over fields that cannot run into each other.
pub(crate) struct Digester {
    hash: Hash,
    gathered: [u8; GATHERED],
    len: usize,
}

enum Hash {
    Plain(Sha256),
    Keyed(Hmac<Sha256>),
}

impl Digester {
    pub(crate) fn new(secret: Option<&Secret>, purpose: &str) -> Self {
        let hash = match secret {
            None => Hash::Plain(Sha256::new()),
            Some(secret) => Hash::Keyed(secret.keyed.clone()),
        };
        let mut digester = Self { hash, gathered: [0; GATHERED], len: 0 };
        digester.field(b"selfsame");
        digester.field(purpose.as_bytes());
        digester
    }

    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.update(&(bytes.len() as u64).to_be_bytes());
        self.update(bytes);
    }

    /// A field that may be absent, which is not the same as empty.
    pub(crate) fn optional(&mut self, bytes: Option<&[u8]>) {
        self.update(&[u8::from(bytes.is_some())]);
        self.field(bytes.unwrap_or_default());
    }

    /// How many fields follow, where that is not fixed.
    pub(crate) fn count(&mut self, fields: usize) {
        self.update(&(fields as u64).to_be_bytes());
    }

    fn update(&mut self, bytes: &[u8]) {
        if bytes.len() > GATHERED - self.len {
            self.hash.update(&self.gathered[..self.len]);
            self.len = 0;
        }
        match self.gathered[self.len..].get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.hash.update(bytes),
        }
    }

    pub(crate) fn finish(mut self) -> [u8; 32] {
        self.hash.update(&self.gathered[..self.len]);
        self.hash.finish()
    }
}

impl Hash {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(hash) => Digest::update(hash, bytes),
            Self::Keyed(mac) => Mac::update(mac, bytes),
        }
    }

    fn finish(self) -> [u8; 32] {
        match self {
            Self::Plain(hash) => hash.finalize().into(),
            Self::Keyed(mac) => mac.finalize().into_bytes().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_known_again_and_no_other_is() {
        let secret = Secret::from_bytes(&[7; Secret::LEN]);
        let tag = secret.tag("a", &[b"b"]);
        assert!(secret.is_tag("a", &[b"b"], &tag));
        assert!(!secret.is_tag("b", &[b"b"], &tag) && !secret.is_tag("a", &[b"c"], &tag));
        assert!(!Secret::random().is_tag("a", &[b"b"], &tag));
        for at in 0..tag.len() {
            let mut other = tag;
            other[at] ^= 1;
            assert!(!secret.is_tag("a", &[b"b"], &other), "{at}");
        }
    }
}
