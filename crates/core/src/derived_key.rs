//! Keys for what a run does elsewhere, derived from the run's own record.

use crate::Key;
use crate::digest::Digester;

/// The key under which the phase `phase` of a run calls another service, so that an interrupted
/// call can be made again and is known there too.
///
/// The same for every attempt of one record, because `birth_nonce` is made with the record and
/// stays with it; another for each phase, and for a key that is used anew after its record has
/// expired. It looks like a UUID (version 8, RFC 9562), which every API takes for a key, and tells
/// nothing of the nonce or of the client's own key.
pub fn derived_key(birth_nonce: &[u8; 16], phase: &str) -> Key {
    let mut digester = Digester::new(None, "derived-key/1");
    digester.field(birth_nonce);
    digester.field(phase.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digester.finish()[..16]);
    let text = uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string();
    Key::from_stored(&text).expect("a UUID is printable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_has_one_key_in_each_record() {
        let charge = derived_key(&[1; 16], "charge_created");
        assert_eq!(charge, derived_key(&[1; 16], "charge_created"));
        assert_ne!(charge, derived_key(&[1; 16], "receipt_sent"));
        assert_ne!(charge, derived_key(&[2; 16], "charge_created"));
    }

    #[test]
    fn it_looks_like_a_uuid() {
        let key = derived_key(&[1; 16], "charge_created");
        let uuid: uuid::Uuid = key.as_str().parse().expect("a UUID");
        assert_eq!(uuid.get_version_num(), 8);
    }
}
