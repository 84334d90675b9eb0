//! Bodies that can be found in files: each has a tag, and each of its sectors contains that tag.

use std::collections::BTreeSet;

use bytes::Bytes;
use memchr::memmem;

use crate::random::Random;

/// How each marker of a body begins.
const MAGIC: [u8; 4] = [0xe7, b'C', 0xd1, b'p'];
const MARKER: usize = 20;

/// The body of this tag and length: markers with the tag, counted.
pub fn body(tag: u64, len: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(len + MARKER);
    for count in 0_u32.. {
        if bytes.len() >= len {
            break;
        }
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&check(tag));
        bytes.extend_from_slice(&count.to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// Tells a whole tag from one of which a part is missing.
fn check(tag: u64) -> [u8; 4] {
    let [.., a, b, c, d] = Random::new(tag).number().to_be_bytes();
    [a, b, c, d]
}

/// The tags whose markers are in `bytes`.
pub fn tags(bytes: &[u8]) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let mut last = 0;
    for at in memmem::find_iter(bytes, &MAGIC) {
        let Some((tag, sum)) = bytes.get(at + 4..at + 16).map(|marker| marker.split_at(8)) else {
            break;
        };
        let tag = u64::from_le_bytes(tag.try_into().expect("8 bytes"));
        if tag != last && sum == check(tag) {
            found.insert(tag);
            last = tag;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sector_of_a_body_contains_its_tag() {
        let body = [&[1, 2, 3], &body(77, 2000)[..]].concat();
        for start in (0..1488).step_by(100) {
            assert_eq!(tags(&body[start..start + 512]), BTreeSet::from([77]));
        }
        assert!(tags(&[0xe7; 4096]).is_empty());
    }
}
