//! Merging of memtables and tables: the newest slot of each id, in the order of ids.

use std::io;
use std::iter::Peekable;

use super::memtable::Change;

/// Slots in the order of ids.
pub(super) type Source<'a> = Box<dyn Iterator<Item = io::Result<Change>> + 'a>;

/// The newest slot of each id.
pub(super) struct Merge<'a> {
    /// The newest first.
    sources: Vec<Peekable<Source<'a>>>,
}

impl<'a> Merge<'a> {
    /// Merges sources, of which the newest is first.
    pub(super) fn new(sources: Vec<Source<'a>>) -> Self {
        Self { sources: sources.into_iter().map(Iterator::peekable).collect() }
    }
}

impl Iterator for Merge<'_> {
    type Item = io::Result<Change>;

    fn next(&mut self) -> Option<io::Result<Change>> {
        let mut first = None;
        for (at, source) in self.sources.iter_mut().enumerate() {
            match source.peek() {
                None => {}
                Some(Err(_)) => return source.next(),
                Some(Ok((id, _))) if first.is_none_or(|(_, least)| *id < least) => {
                    first = Some((at, *id));
                }
                Some(Ok(_)) => {}
            }
        }
        let (newest, id) = first?;
        let change = self.sources[newest].next();
        // Older slots of the same id are hidden by it.
        for source in &mut self.sources[newest + 1..] {
            source.next_if(|change| matches!(change, Ok((other, _)) if *other == id));
        }
        change
    }
}
