//! What processes that share a store say to each other about runs, whatever carries it: who waits says
//! so, and who ends a run that somebody waits for says that.

use std::collections::HashSet;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use selfsame_core::{RecordId, Sleepers};

use super::durable::id_from_hex;

/// How many runs are known, twice over, that others wait for.
const WANTED_MAX: usize = 16_384;

/// What processes say to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    /// Somebody waits for the run of this.
    Wanted(RecordId),
    /// The run of this has ended.
    Ended(RecordId),
}

/// Who is woken here, and for which runs others wait.
#[derive(Default)]
pub(super) struct Ears {
    is_listening: AtomicBool,
    wanted: Mutex<Wanted>,
    sleepers: Mutex<Vec<Weak<dyn Sleepers>>>,
}

/// Runs that others wait for. Those that go on elsewhere are never heard of again, and make room by
/// their age.
#[derive(Default)]
struct Wanted {
    new: HashSet<RecordId>,
    old: HashSet<RecordId>,
}

impl Ears {
    /// Hears what others said together.
    pub(super) fn hear_all(&self, words: &[u8]) {
        words.chunks(Word::LEN).filter_map(Word::read).for_each(|word| self.hear(word));
    }

    fn hear(&self, word: Word) {
        match word {
            Word::Wanted(id) => self.wanted.lock().insert(id),
            Word::Ended(id) => {
                let sleepers: Vec<_> =
                    self.sleepers.lock().iter().filter_map(Weak::upgrade).collect();
                sleepers.iter().for_each(|sleepers| sleepers.wake_here(&id));
            }
        }
    }

    /// Whether others wait for the run of `id` and are to be told now.
    pub(super) fn take_wanted(&self, id: &RecordId) -> bool {
        self.wanted.lock().remove(id)
    }

    pub(super) fn wakes(&self, sleepers: Weak<dyn Sleepers>) {
        let mut known = self.sleepers.lock();
        known.retain(|sleepers| sleepers.strong_count() > 0);
        known.push(sleepers);
    }

    pub(super) fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::Relaxed)
    }

    pub(super) fn set_listening(&self, is_listening: bool) {
        self.is_listening.store(is_listening, Ordering::Relaxed);
    }
}

impl Wanted {
    fn insert(&mut self, id: RecordId) {
        if self.new.len() >= WANTED_MAX {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(id);
    }

    fn remove(&mut self, id: &RecordId) -> bool {
        // Both, or it would be said twice.
        self.new.remove(id) | self.old.remove(id)
    }
}

impl Word {
    /// How long each is when it is written.
    const LEN: usize = 1 + 2 * RecordId::LEN;

    /// Words to be said together, each once.
    pub(super) fn write_all(mut words: Vec<Self>) -> String {
        words.sort_unstable();
        words.dedup();
        words.into_iter().map(Self::write).collect()
    }

    fn write(self) -> String {
        match self {
            Self::Wanted(id) => format!("?{id}"),
            Self::Ended(id) => format!("!{id}"),
        }
    }

    /// Anybody may notify: what is no word is not heard.
    fn read(text: &[u8]) -> Option<Self> {
        let (kind, hex) = text.split_first()?;
        let id = id_from_hex(hex)?;
        match kind {
            b'?' => Some(Self::Wanted(id)),
            b'!' => Some(Self::Ended(id)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> RecordId {
        let mut bytes = [7; RecordId::LEN];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        RecordId::from_bytes(bytes)
    }

    #[test]
    fn words_are_read_as_they_were_written() {
        for word in [Word::Wanted(id(1)), Word::Ended(id(usize::MAX))] {
            assert_eq!(Word::read(word.write().as_bytes()), Some(word));
        }
        let whole = Word::Ended(id(1)).write();
        for text in ["", "!", "hello", &whole[..64], &whole.replace('!', "#"), "!+1"] {
            assert_eq!(Word::read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_nobody_ends_makes_room() {
        let mut wanted = Wanted::default();
        for number in 0..3 * WANTED_MAX {
            wanted.insert(id(number));
        }
        assert!(wanted.new.len() + wanted.old.len() <= 2 * WANTED_MAX);
        assert!(wanted.remove(&id(3 * WANTED_MAX - 1)) && !wanted.remove(&id(0)));
    }
}
