//! Compaction: tables of like size become one, and tables of which little counts are written anew.

use std::io;
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use tokio::time::Instant;

use super::MEMTABLE_MAX;
use super::merge::{Merge, Source};
use super::table::{Table, TableWriter};

/// Tables of like size that become one. More would make every look-up ask more of them, fewer would
/// write every entry more often.
const TABLES_MAX: usize = 4;

/// Pages that are read at once.
const PAGES: usize = 64;

pub(super) const UNFINISHED: &str = "compaction.new";

/// The tables to compact, if any: neighbours in `tables`, whose newest is first.
pub(super) fn choose(tables: &[Arc<Table>], oldest_segment: u32) -> Option<Range<usize>> {
    let mut ranks: Vec<u32> = tables.iter().map(|table| rank(table)).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for rank_max in ranks {
        let newest = tables.iter().take_while(|table| rank(table) <= rank_max).count();
        let alike = tables[..newest].iter().filter(|table| rank(table) == rank_max).count();
        if alike >= TABLES_MAX {
            return Some(0..newest);
        }
    }
    let wasteful = tables.iter().position(|table| is_wasteful(table, oldest_segment))?;
    Some(wasteful..wasteful + 1)
}

/// Order of magnitude of the table's size.
fn rank(table: &Table) -> u32 {
    let memtables = table.count() / MEMTABLE_MAX as u64;
    memtables.max(1).ilog(TABLES_MAX as u64)
}

/// Whether most entries of the table depend on segments that are gone.
fn is_wasteful(table: &Table, oldest_segment: u32) -> bool {
    let dead: u64 = table.segments.range(..oldest_segment).map(|(_, count)| count).sum();
    dead > 0 && 2 * dead > table.count()
}

/// Writes one table in the place of these, of which the newest is first, as far as entries still
/// count. Half of the time is left to others, unless `is_needed` ends it.
pub(super) fn compact(
    folder: &Path,
    tables: &[Arc<Table>],
    oldest_segment: u32,
    is_needed: impl Fn() -> bool,
) -> io::Result<Option<Table>> {
    let (newest, oldest) = (&tables[0], &tables[tables.len() - 1]);
    let counts = tables
        .iter()
        .map(|table| table.segments.range(oldest_segment..).map(|(_, count)| count).sum::<u64>());
    let mut writer = TableWriter::new(folder, UNFINISHED, counts.sum())?;
    let sources =
        tables.iter().map(|table| Box::new(table.walk(Bound::Unbounded, PAGES)) as Source<'_>);
    let mut begun = Instant::now();
    for change in Merge::new(sources.collect()) {
        let (id, slot) = change?;
        // A record that was removed stays known as long as the log has frames of it: an erasure has to
        // find them if its key is used again.
        if slot.segment() < oldest_segment {
            continue;
        }
        if writer.add(&id, &slot)? {
            if !is_needed() {
                return Ok(None);
            }
            thread::sleep(begun.elapsed());
            begun = Instant::now();
        }
    }
    let made_of = oldest.made_of().start..newest.made_of().end;
    writer.finish(made_of, &newest.note()?).map(Some)
}
