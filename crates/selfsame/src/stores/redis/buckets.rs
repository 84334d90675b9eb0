//! [`Buckets`]: which records lie together, and under which keys.
//!
//! A script may only use keys of one slot of a cluster, and slots move from server to server. So records are
//! spread over buckets, and all keys of a bucket have its tag in braces, which tells their slot: its records, and the
//! guard that moves, or goes back in time, with them. A single server has one bucket.

use selfsame_core::RecordId;

use crate::stores::durable::id_from_hex;

/// What all our keys begin with.
const PREFIX: &str = "selfsame:{";

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// How many buckets there are in a cluster: so many that they can be shared out among servers, so few that all their
/// guards can be counted ten times a second.
const IN_A_CLUSTER: u16 = 128;

/// One of the buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    at: u16,
}

impl Bucket {
    /// The one that also has what there is once.
    pub(super) const FIRST: Self = Self { at: 0 };

    pub(super) fn at(self) -> usize {
        usize::from(self.at)
    }
}

/// All buckets.
pub(super) struct Buckets {
    tags: Vec<Tag>,
}

struct Tag {
    text: String,
    slot: u16,
}

impl Buckets {
    /// Those of a single server.
    pub(super) fn one() -> Self {
        Self { tags: vec![Tag::of(0)] }
    }

    /// Those of a cluster: their slots are spread evenly.
    pub(super) fn of_a_cluster() -> Self {
        let every = SLOTS / IN_A_CLUSTER;
        let first_within = |bucket: u16| {
            let mut tags = (0..).map(Tag::of);
            tags.find(|tag| tag.slot / every == bucket).expect("there are more than enough numbers")
        };
        Self { tags: (0..IN_A_CLUSTER).map(first_within).collect() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Bucket> + use<> {
        let count = u16::try_from(self.tags.len()).expect("there are few");
        (0..count).map(|at| Bucket { at })
    }

    /// Where the record of `id` lies. Ids are hashes: their first byte spreads them.
    pub(super) fn of(&self, id: &RecordId) -> Bucket {
        let at = usize::from(id.as_bytes()[0]) * self.tags.len() / 256;
        Bucket { at: u16::try_from(at).expect("there are few") }
    }

    pub(super) fn slot(&self, bucket: Bucket) -> u16 {
        self.tags[bucket.at()].slot
    }

    /// The key of a record.
    pub(super) fn key(&self, id: &RecordId) -> String {
        let tag = &self.tags[self.of(id).at()].text;
        // Each call about a record begins with this.
        [PREFIX, tag, "}:", &id.to_string()].concat()
    }

    /// The key of what else lies in a bucket.
    pub(super) fn beside(&self, bucket: Bucket, name: &str) -> String {
        format!("{PREFIX}{}}}:{name}", self.tags[bucket.at()].text)
    }

    /// The record whose key this is.
    pub(super) fn id_of(&self, key: &[u8]) -> Option<RecordId> {
        let mut parts = key.strip_prefix(PREFIX.as_bytes())?.splitn(2, |byte| *byte == b'}');
        let (tag, id) = (parts.next()?, id_from_hex(parts.next()?.strip_prefix(b":")?)?);
        (tag == self.tags[self.of(&id).at()].text.as_bytes()).then_some(id)
    }
}

/// What the keys of records look like whose id begins so, in hexadecimal.
pub(super) fn pattern(id_prefix: &str) -> String {
    format!("{PREFIX}*}}:{}*", id_prefix.to_ascii_lowercase())
}

impl Tag {
    fn of(number: u32) -> Self {
        let text = number.to_string();
        Self { slot: slot(text.as_bytes()), text }
    }
}

/// The slot of keys with this in braces: Redis takes it from their CRC-16.
fn slot(tag: &[u8]) -> u16 {
    let step = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    let with = |crc: u16, byte: &u8| (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| step(crc));
    tag.iter().fold(0, with) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // By CLUSTER KEYSLOT.
        for (tag, expected) in [("123456789", 12_739), ("foo", 12_182), ("0", 13_907)] {
            assert_eq!(slot(tag.as_bytes()), expected, "{tag}");
        }
    }

    #[test]
    fn buckets_are_spread_evenly_over_the_slots() {
        let buckets = Buckets::of_a_cluster();
        for bucket in buckets.all() {
            assert_eq!(buckets.slot(bucket) / 128, bucket.at);
            assert!(buckets.tags[bucket.at()].text.len() <= 4);
        }
        // Other tags would be other keys: what is known would be unknown.
        let tags: Vec<_> = buckets.tags.iter().map(|tag| &tag.text[..]).take(4).collect();
        assert_eq!(tags, ["14", "10", "100", "18"]);
    }

    #[test]
    fn a_key_tells_its_record() {
        for buckets in [Buckets::one(), Buckets::of_a_cluster()] {
            for byte in [0, 0xa7, 0xff] {
                let id = RecordId::from_bytes([byte; RecordId::LEN]);
                let key = buckets.key(&id);
                assert_eq!(buckets.id_of(key.as_bytes()), Some(id));
                let elsewhere = key.replace("{", "{1");
                for other in
                    ["selfsame:{0}:guard", "selfsame:{0}", "selfsame:{}:a7", "", &elsewhere]
                {
                    assert_eq!(buckets.id_of(other.as_bytes()), None, "{other}");
                }
            }
        }
    }
}
