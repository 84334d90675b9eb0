//! Keys for what a run does elsewhere, derived from the birth of its record.

use crate::digest::Digester;
use crate::{Birth, Key};

impl Birth {
    /// The key under which the phase `phase` of a run calls another service, so that an
    /// interrupted call can be made again and is known there too: the same for each attempt at
    /// the same work, another for each phase.
    ///
    /// It looks like a UUID (version 8, RFC 9562), which every API takes for a key, and tells
    /// nothing of the birth or of the client's own key. `vectors/README.md` says how it is made.
    pub fn derived_key(&self, phase: &str) -> Key {
        let mut digester = Digester::new(None, "derived-key/1");
        digester.field(self.as_bytes());
        digester.field(phase.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digester.finish()[..16]);
        let text = uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string();
        Key::from_stored(&text).expect("a UUID is printable")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(birth: u8, phase: &str) -> Key {
        Birth::from_bytes([birth; Birth::LEN]).derived_key(phase)
    }

    #[test]
    fn a_phase_has_one_key_in_each_record() {
        let charge = derived(1, "charge_created");
        assert_eq!(charge, derived(1, "charge_created"));
        assert_ne!(charge, derived(1, "receipt_sent"));
        assert_ne!(charge, derived(2, "charge_created"));
    }

    #[test]
    fn it_looks_like_a_uuid() {
        let uuid: uuid::Uuid = derived(1, "charge_created").as_str().parse().expect("a UUID");
        assert_eq!(uuid.get_version_num(), 8);
    }
}
