//! [`Filter`]: tells most ids that are not in a table from those that may be.
//!
//! A Bloom filter in blocks of one cache line: ten bits for each id, and about one wrong answer in
//! seventy. Ids are keyed hashes, so their own bytes choose the bits.

use selfsame_core::RecordId;

const BLOCK_WORDS: usize = 8;
const BLOCK_LEN: usize = 8 * BLOCK_WORDS;
const BLOCK_BITS: u64 = 64 * BLOCK_WORDS as u64;
const BITS_PER_ID: u64 = 10;

/// Bits that an id sets in its block, each chosen by nine bits of the id.
const PROBES: u32 = 6;
const PROBE_BITS: u32 = 9;

/// A set of ids that may answer "yes" for others, too.
pub(super) struct Filter {
    blocks: Vec<[u64; BLOCK_WORDS]>,
}

impl Filter {
    /// An empty filter for that many ids.
    pub(super) fn for_ids(count: u64) -> Self {
        let blocks = (count * BITS_PER_ID).div_ceil(BLOCK_BITS).max(1);
        let blocks = usize::try_from(blocks).expect("memory is smaller than the address space");
        Self { blocks: vec![[0; BLOCK_WORDS]; blocks] }
    }

    pub(super) fn add(&mut self, id: &RecordId) {
        let block = self.block_of(id);
        for (word, mask) in probes(id) {
            self.blocks[block][word] |= mask;
        }
    }

    pub(super) fn may_contain(&self, id: &RecordId) -> bool {
        let block = &self.blocks[self.block_of(id)];
        probes(id).all(|(word, mask)| block[word] & mask != 0)
    }

    /// Number of its blocks.
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// A block as a table has it.
    pub(super) fn block_bytes(&self, block: usize) -> [u8; BLOCK_LEN] {
        let mut bytes = [0; BLOCK_LEN];
        for (part, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.blocks[block]) {
            *part = word.to_le_bytes();
        }
        bytes
    }

    /// Reads the blocks of a table.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_LEN>();
        let block = |bytes: &[u8; BLOCK_LEN]| {
            let words = bytes.as_chunks().0;
            std::array::from_fn(|at| u64::from_le_bytes(words[at]))
        };
        (rest.is_empty() && !blocks.is_empty())
            .then(|| Self { blocks: blocks.iter().map(block).collect() })
    }

    fn block_of(&self, id: &RecordId) -> usize {
        let hash = u128::from(part(id, 8));
        usize::try_from((hash * self.blocks.len() as u128) >> 64).expect("it is below the length")
    }
}

/// Words of a block, and the bits of them that stand for the id.
fn probes(id: &RecordId) -> impl Iterator<Item = (usize, u64)> {
    let bits = part(id, 16);
    (0..PROBES).map(move |probe| {
        let bit = (bits >> (probe * PROBE_BITS)) % BLOCK_BITS;
        ((bit / 64) as usize, 1 << (bit % 64))
    })
}

fn part(id: &RecordId, at: usize) -> u64 {
    u64::from_le_bytes(id.as_bytes()[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::id;
    use super::*;

    #[test]
    fn every_id_that_was_added_is_found_and_few_others() {
        let mut filter = Filter::for_ids(10_000);
        (0..10_000).for_each(|number| filter.add(&id(number)));
        let bytes: Vec<u8> =
            (0..filter.blocks()).flat_map(|block| filter.block_bytes(block)).collect();
        let read = Filter::from_bytes(&bytes).expect("it was just written");
        assert!((0..10_000).all(|number| read.may_contain(&id(number))));
        let wrong = (10_000..110_000).filter(|number| read.may_contain(&id(*number))).count();
        assert!(wrong < 3_000, "{wrong} of 100,000");
    }
}
