use std::collections::BTreeMap;

use tempfile::TempDir;

use super::*;
use crate::stores::embedded::frame::Marks;

/// An id that looks like a hash.
pub(super) fn id(number: u64) -> RecordId {
    let mut bytes = [0; RecordId::LEN];
    let mut mixed = number;
    for part in bytes.as_chunks_mut::<8>().0 {
        mixed = (mixed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        *part = (mixed ^ mixed >> 29).to_be_bytes();
    }
    RecordId::from_bytes(bytes)
}

fn entry(segment: u32, offset: u32) -> Entry {
    Entry::new(Place { segment, offset, len: 1 }, Marks::NONE)
}

fn folder() -> TempDir {
    TempDir::new().expect("the system has a place for temporary folders")
}

fn open(folder: &TempDir) -> (Index, Option<Vec<u8>>) {
    let Opened { index, note } = Index::open(folder.path()).expect("the folder is the test's own");
    (index, note)
}

fn all(index: &Index, most: usize) -> BTreeMap<RecordId, Entry> {
    let (mut seen, mut from) = (BTreeMap::new(), Bound::Unbounded);
    loop {
        let mut ids = Vec::new();
        let last = index.walk(from, most, |id, entry| {
            ids.push(*id);
            seen.insert(*id, *entry);
        });
        assert!(ids.len() <= most && ids.is_sorted_by(|a, b| a < b));
        match last.expect("the tables are whole") {
            Some(last) => from = Bound::Excluded(last),
            None => return seen,
        }
    }
}

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Whatever is put, removed, written, merged and opened again: the index says what a map says.
#[test]
fn it_knows_what_a_map_knows() {
    let folder = folder();
    let mut random = Random(7);
    let mut expected = BTreeMap::new();
    let (mut index, mut note) = open(&folder);
    assert_eq!(note, None);
    for round in 0_u32..30 {
        let oldest = round / 3;
        for _ in 0..random.below(400) {
            let id = id(random.below(1000));
            match (random.below(4), expected.get(&id)) {
                (0, Some(before)) => {
                    index.remove_entry(id, before);
                    expected.remove(&id);
                }
                (0, None) => {}
                _ => {
                    let entry = entry(round + 1, random.below(1 << 30) as u32);
                    index.put(id, entry);
                    expected.insert(id, entry);
                }
            }
        }
        index.set_oldest_segment(oldest);
        expected.retain(|_, entry| entry.record.segment >= oldest);
        let written = round.to_le_bytes().to_vec();
        match random.below(3) {
            0 => index.rotate(written.clone()),
            1 => {
                assert!(index.close(written.clone()));
                drop(index);
                (index, note) = open(&folder);
                assert_eq!(note, Some(written));
                index.set_oldest_segment(oldest);
            }
            _ => {}
        }
        for number in 0..1100 {
            let found = index.get(&id(number)).expect("the tables are whole");
            assert_eq!(found, expected.get(&id(number)).copied(), "round {round}, {number}");
            assert!(found.is_none() || index.may_have(&id(number)), "round {round}, {number}");
        }
        for most in [37, 2000] {
            assert_eq!(all(&index, most), expected, "round {round}, {most} at a time");
        }
    }
    assert_eq!(all(&index, 1), expected);
    let tables = index.shared.layers().tables.len();
    assert!(tables < 10, "{tables} tables were not merged");
}

/// Fills an index with four tables that are not merged.
fn fill(folder: &TempDir) {
    for round in 0..3 {
        let (index, _) = open(folder);
        (0..500).for_each(|number| index.put(id(500 * round + number), entry(1, 28)));
        assert!(index.close(round.to_le_bytes().to_vec()));
    }
}

fn files(folder: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.path().join(FOLDER)).expect("there is an index");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.sort();
    files
}

#[test]
fn one_that_lost_a_table_or_a_part_of_one_is_made_anew() {
    type Harm = fn(&Path);
    let harms: [Harm; 4] = [
        |path| fs::remove_file(path).expect("it can be removed"),
        |path| fs::write(path, []).expect("it can be written"),
        |path| {
            let bytes = fs::read(path).expect("it can be read");
            fs::write(path, &bytes[..bytes.len() / 2]).expect("it can be written");
        },
        |path| {
            let mut bytes = fs::read(path).expect("it can be read");
            let len = bytes.len();
            bytes[len - 100..].fill(0);
            fs::write(path, bytes).expect("it can be written");
        },
    ];
    for (at, harm) in harms.iter().enumerate() {
        let folder = folder();
        fill(&folder);
        assert_eq!(files(&folder).len(), 3);
        harm(&files(&folder)[1]);
        let (index, note) = open(&folder);
        assert_eq!(note, None, "harm {at}");
        assert_eq!(all(&index, 100), BTreeMap::new(), "harm {at}");
    }
}

/// The tables before it are what the index was earlier: the log is read from there.
#[test]
fn one_that_lost_its_newest_table_is_an_older_one() {
    let folder = folder();
    fill(&folder);
    fs::remove_file(&files(&folder)[2]).expect("it can be removed");
    let (index, note) = open(&folder);
    assert_eq!(note, Some(1_u64.to_le_bytes().to_vec()));
    assert_eq!(all(&index, 100).len(), 1000);
}

#[test]
fn a_flipped_bit_in_a_page_is_noticed_and_the_next_start_makes_the_index_anew() {
    let folder = folder();
    fill(&folder);
    let path = &files(&folder)[0];
    let mut bytes = fs::read(path).expect("it can be read");
    bytes[2000] ^= 1;
    fs::write(path, bytes).expect("it can be written");
    let (index, note) = open(&folder);
    assert!(note.is_some());
    let wrong = (0..500).filter(|number| index.get(&id(*number)).is_err()).count();
    assert!(wrong > 10, "a page has more than {wrong} entries");
    assert!(
        (0..1500).filter_map(|number| index.get(&id(number)).ok()).all(|found| found.is_some())
    );
    drop(index);
    assert_eq!(open(&folder).1, None);
}

#[test]
fn remains_of_what_was_cut_off_are_removed() {
    let folder = folder();
    fill(&folder);
    let tables = files(&folder);
    let unfinished = folder.path().join(FOLDER).join(UNFINISHED);
    fs::write(&unfinished, "half a table").expect("it can be written");
    // The tables it was merged from were not removed before the crash.
    let (index, _) = open(&folder);
    assert_eq!(files(&folder), tables);
    assert_eq!(all(&index, 1000).len(), 1500);
}

#[test]
fn tables_of_like_size_are_merged_and_removed_entries_leave_with_their_segment() {
    let folder = folder();
    let (index, _) = open(&folder);
    for round in 0_u8..4 {
        for number in 0..100 {
            index.put(id(number), entry(u32::from(round) + 1, 28));
        }
        index.put(id(1000 + u64::from(round)), entry(1, 28));
        index.remove_entry(id(u64::from(round)), &entry(1, 28));
        index.rotate(vec![round]);
    }
    index.shared.wait_until(|layers| layers.full.is_empty() && layers.tables.len() == 1);
    let layers = index.shared.layers();
    // The newest round has put three of the removed ones again.
    assert_eq!((layers.tables[0].count(), layers.tables[0].note().ok()), (104, Some(vec![3])));
    assert!(matches!(index.find(&id(3)), Ok(Found::Remains)));
    index.set_oldest_segment(2);
    assert!(matches!(index.find(&id(3)), Ok(Found::Nothing)));
    assert!(matches!(index.find(&id(2)), Ok(Found::Entry(_))));
    // Files are removed when nobody finds them any more.
    drop(index);
    assert_eq!(files(&folder).len(), 1);
}

#[test]
fn a_table_of_which_little_counts_is_written_anew() {
    let folder = folder();
    let (index, _) = open(&folder);
    (0..100).for_each(|number| index.put(id(number), entry(1 + u32::from(number > 90), 28)));
    assert!(index.close(Vec::new()));
    index.set_oldest_segment(2);
    index.shared.wait_until(|layers| layers.tables[0].count() == 9);
    assert_eq!(all(&index, 1000).len(), 9);
    drop(index);
    let (index, _) = open(&folder);
    assert_eq!(all(&index, 1000).len(), 9);
}
