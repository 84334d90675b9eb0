//! [`BodyBuffer`]: the data of a body, collected piece by piece in bounded memory.
//!
//! A piece of one byte costs forty where it is kept as it came, and holds the connection's read buffer besides.
//! So only a single piece is kept as it is; from the second one on, all are copied into one allocation.

use bytes::Bytes;

use crate::buffer_limit::UNCOUNTED_BYTES;

/// Capacity of the first allocation.
const CAPACITY_MIN: usize = 512;

/// The data of a body, collected piece by piece. Allocates at most twice as much as was collected, or
/// [`CAPACITY_MIN`].
#[derive(Debug, Default)]
pub(crate) struct BodyBuffer {
    /// The first piece, while it is the only one.
    single: Bytes,
    joined: Vec<u8>,
}

impl BodyBuffer {
    /// Appends `piece`, behind which at most `to_come` bytes follow.
    pub(crate) fn push(&mut self, piece: Bytes, to_come: Option<u64>) {
        if piece.is_empty() {
            return;
        }
        if self.single.is_empty() && self.joined.is_empty() {
            self.single = piece;
            return;
        }
        let capacity = self.capacity_with(&piece, to_come);
        let first = std::mem::take(&mut self.single);
        self.joined.reserve_exact(capacity - self.joined.len());
        self.joined.extend_from_slice(&first);
        self.joined.extend_from_slice(&piece);
    }

    /// Number of bytes that were collected.
    pub(crate) fn len(&self) -> usize {
        self.single.len() + self.joined.len()
    }

    /// Bytes that are held once `piece` is appended, behind which at most `to_come` follow.
    pub(crate) fn held_with(&self, piece: &Bytes, to_come: Option<u64>) -> usize {
        match (self.len(), piece.len()) {
            (_, 0) => self.single.len() + self.joined.capacity(),
            (0, len) => len,
            _ => self.capacity_with(piece, to_come),
        }
    }

    /// Capacity for what was collected and `piece`, and for some of what follows.
    fn capacity_with(&self, piece: &Bytes, to_come: Option<u64>) -> usize {
        let needed = self.len() + piece.len();
        if needed <= self.joined.capacity() {
            return self.joined.capacity();
        }
        let to_come = to_come.and_then(|bytes| usize::try_from(bytes).ok());
        let whole = to_come.map_or(usize::MAX, |to_come| needed.saturating_add(to_come));
        let twice = needed.saturating_mul(2).max(CAPACITY_MIN).min(whole);
        // A small body takes no room that is counted.
        if needed <= UNCOUNTED_BYTES { twice.min(UNCOUNTED_BYTES) } else { twice }
    }

    /// All that was collected, in one piece.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self.joined.is_empty() {
            true => self.single,
            false => self.joined.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn collected(pieces: impl IntoIterator<Item = Bytes>) -> BodyBuffer {
        let mut buffer = BodyBuffer::default();
        for piece in pieces {
            let told = buffer.held_with(&piece, None);
            buffer.push(piece, None);
            let collected = buffer.len();
            let held = buffer.single.len() + buffer.joined.capacity();
            assert_eq!(told, held);
            assert!(held <= (2 * collected).max(CAPACITY_MIN), "{held} for {collected}");
        }
        buffer
    }

    #[test]
    fn a_single_piece_is_not_copied() {
        let piece = Bytes::from(vec![7; 100]);
        let whole = collected([Bytes::new(), piece.clone(), Bytes::new()]).into_bytes();
        assert_eq!(whole.as_ptr(), piece.as_ptr());
        assert!(collected([]).into_bytes().is_empty());
    }

    #[test]
    fn pieces_of_any_size_hold_at_most_twice_their_bytes() {
        // Slices of one buffer, as a connection gives them.
        let sent: Bytes = (0..MIB).map(|n| n as u8).collect();
        for len in [1, 7, 1024, 100_000, MIB] {
            let pieces = (0..MIB).step_by(len).map(|at| sent.slice(at..MIB.min(at + len)));
            let buffer = collected(pieces);
            assert!(buffer.into_bytes() == sent, "pieces of {len}");
        }
    }

    #[test]
    fn an_announced_length_is_all_that_is_allocated() {
        let mut buffer = BodyBuffer::default();
        for left in (0..3000).rev() {
            buffer.push(Bytes::from_static(b"x"), Some(left));
        }
        assert_eq!((buffer.joined.len(), buffer.joined.capacity()), (3000, 3000));
    }

    #[test]
    fn empty_pieces_hold_nothing() {
        let buffer = collected((0..10_000).map(|_| Bytes::new()));
        assert_eq!((buffer.joined.capacity(), buffer.into_bytes().len()), (0, 0));
    }
}
