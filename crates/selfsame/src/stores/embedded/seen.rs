//! [`Seen`]: which keys were asked for lately, more or less.

use std::sync::atomic::{AtomicU32, Ordering};

use selfsame_core::RecordId;

/// How many keys are remembered: a megabyte's worth.
const PLACES: usize = 1 << 18;

/// Which keys were asked for lately. It forgets, and it may take one key for another; it only says
/// where to look first.
pub(super) struct Seen {
    places: Box<[AtomicU32]>,
}

impl Seen {
    pub(super) fn new() -> Self {
        Self { places: (0..PLACES).map(|_| AtomicU32::new(0)).collect() }
    }

    pub(super) fn knows(&self, id: &RecordId) -> bool {
        let (place, mark) = self.place(id);
        place.load(Ordering::Relaxed) == mark
    }

    pub(super) fn remember(&self, id: &RecordId) {
        let (place, mark) = self.place(id);
        place.store(mark, Ordering::Relaxed);
    }

    /// Ids are hashes: one part of them is as good as another.
    fn place(&self, id: &RecordId) -> (&AtomicU32, u32) {
        let [a, b, c, d, e, f, g, h, ..] = *id.as_bytes();
        let place = u32::from_be_bytes([a, b, c, d]) as usize % PLACES;
        (&self.places[place], u32::from_be_bytes([e, f, g, h]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_what_it_was_told_and_forgets_for_room() {
        let seen = Seen::new();
        let id = |first: u8, mark: u8| {
            let mut bytes = [first; RecordId::LEN];
            bytes[4..8].fill(mark);
            RecordId::from_bytes(bytes)
        };
        assert!(!seen.knows(&id(1, 1)));
        seen.remember(&id(1, 1));
        seen.remember(&id(2, 1));
        assert!(seen.knows(&id(1, 1)) && seen.knows(&id(2, 1)));
        seen.remember(&id(1, 2));
        assert!(seen.knows(&id(1, 2)) && !seen.knows(&id(1, 1)));
    }
}
