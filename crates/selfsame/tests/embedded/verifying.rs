//! Damage is found before anybody asks for what is damaged: in a folder that is closed, and in a store
//! that is open and idle.

use std::collections::BTreeMap;

use selfsame::stores::{VerificationPass, Verified};
use selfsame_core::{Erased, RecordId};

use super::*;

pub(crate) fn verified(path: &Path) -> Verified {
    EmbeddedStore::verify(path).expect("nobody has it open")
}

/// The files of a folder, each with what is in it and when it was written.
fn contents(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let files = opening::all_files(folder).into_iter();
    files
        .map(|path| {
            let written = fs::metadata(&path).and_then(|file| file.modified());
            let bytes = fs::read(&path).expect("it can be read");
            (path, (bytes, written.expect("the system tells")))
        })
        .collect()
}

/// Flips one bit of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("it can be read");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("it can be written");
}

/// Flips a bit of `text` in the only segment.
fn flip_text(folder: &TempDir, text: &[u8]) {
    let log = only_segment(folder);
    let at = position(&fs::read(&log).expect("the log is there"), text);
    flip(&log, at);
}

/// All that a pass finds.
async fn pass(store: &EmbeddedStore) -> Vec<(Option<RecordId>, String)> {
    let (mut pass, mut found) = (VerificationPass::default(), Vec::new());
    loop {
        let piece = store.verify_piece(&mut pass).await.expect("the disk can be read");
        found.extend(piece.damage.into_iter().map(|place| (place.record, place.what)));
        if piece.is_last {
            return found;
        }
    }
}

async fn ids_found(store: &EmbeddedStore) -> Vec<RecordId> {
    pass(store).await.into_iter().filter_map(|(id, _)| id).collect()
}

#[tokio::test]
async fn a_whole_store_is_sound_and_stays_as_it_is() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let asks = opening::fill(&folder, &clock).await;
    let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
    // As a crash leaves it, behind the tables of the index.
    complete_with(&store, "later", b"done").await;
    let running = run(&store, &ask("running")).await;
    let erased = complete_with(&store, "erased", &[7; 5000]).await;
    assert_eq!(store.erase(&[erased.id]).await.expect("works"), [Erased::Done]);
    let crashed = copy_of(&folder);
    assert_eq!(ids_found(&store).await, []);
    drop(store);
    for folder in [&folder, &crashed] {
        for has_index in [true, false] {
            if !has_index {
                remove_index(folder);
            }
            let before = contents(folder.path());
            let verified = verified(folder.path());
            assert_eq!((&*verified.damage, verified.damaged_places), (&[][..], 0));
            assert!(verified.records >= asks.len() as u64 + 3, "{verified:?}");
            assert!(contents(folder.path()) == before, "something was written");
        }
    }
    let _ = running;
}

#[tokio::test]
async fn what_a_crash_leaves_of_the_last_batch_is_no_damage() {
    let folder = folder();
    let store = open(&folder);
    complete(&store, "first").await;
    complete_with(&store, "torn", &[7; 3000]).await;
    let crashed = copy_of(&folder);
    let log = only_segment(&crashed);
    let mut bytes = fs::read(&log).expect("the log is there");
    let end = written(&bytes);
    bytes[end - 1000..end].fill(0);
    fs::write(&log, bytes).expect("it can be written");
    assert_eq!(verified(crashed.path()).damage, []);
}

#[tokio::test]
async fn whichever_byte_of_any_file_is_flipped_is_found() {
    let folder = folder();
    let store = open(&folder);
    store.set_fact("secret", b"hidden").await.expect("the store works");
    for key in ["first", "second", "third"] {
        complete_with(&store, key, b"a body of some length").await;
    }
    drop(store);
    let mut known = 0;
    for file in opening::all_files(folder.path()) {
        let bytes = fs::read(&file).expect("it can be read");
        let is_log = file.extension() == Some("log".as_ref());
        let end = match file.file_name().and_then(|name| name.to_str()) {
            Some("lock") => 0,
            _ if is_log => written(&bytes),
            _ => bytes.len(),
        };
        assert!(end > 0 || file.ends_with("lock"), "{}", file.display());
        for at in (0..end).step_by(if is_log { 1 } else { 5 }) {
            flip(&file, at);
            let found = verified(folder.path());
            let names_it = |path: &Path| path == file || file.starts_with(path);
            assert!(
                found.damage.iter().any(|place| names_it(&place.path)),
                "byte {at} of {}: {found:?}",
                file.display()
            );
            known += usize::from(found.damaged_records() == 1);
            flip(&file, at);
        }
    }
    assert!(known > 300, "{known} flips were in a record that is known");
    assert!(verified(folder.path()).is_sound());
}

#[tokio::test]
async fn a_missing_file_is_found() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    opening::fill(&folder, &clock).await;
    for file in opening::all_files(folder.path()) {
        let copy = copy_of(&folder);
        let name = file.strip_prefix(folder.path()).expect("it is in it");
        if name == Path::new("lock") {
            continue;
        }
        fs::remove_file(copy.path().join(name)).expect("it can be removed");
        let found = verified(copy.path());
        // Without its newest table an index is only older than it was.
        let is_index = name.starts_with("index");
        assert!(is_index || !found.is_sound(), "{}: {found:?}", name.display());
    }
}

#[tokio::test]
async fn a_store_that_is_open_is_not_verified_by_another_process() {
    let folder = folder();
    let store = open(&folder);
    let refused = EmbeddedStore::verify(folder.path());
    assert!(matches!(refused, Err(OpenError::InUse { .. })), "{refused:?}");
    drop(store);
    assert!(verified(folder.path()).is_sound());
}

#[tokio::test]
async fn a_pass_finds_a_flipped_bit_in_a_store_that_is_idle() {
    let folder = folder();
    let store = open(&folder);
    let mut damaged = Vec::new();
    for (key, body) in [("one", "a body to be found"), ("two", "another body")] {
        damaged.push(complete_with(&store, key, body.as_bytes()).await.id);
    }
    complete(&store, "sound").await;
    assert_eq!(pass(&store).await, []);
    flip_text(&folder, b"a body to be found");
    assert_eq!(ids_found(&store).await, damaged[..1]);
    flip_text(&folder, b"another body");
    let mut found = ids_found(&store).await;
    found.sort_by_key(|id| damaged.iter().position(|damaged| damaged == id));
    assert_eq!(found, damaged);
}

#[tokio::test]
async fn a_pass_names_the_record_of_a_head_that_cannot_be_read() {
    let folder = folder();
    let store = open(&folder);
    let asks = [complete(&store, "first").await, complete(&store, "second").await];
    flip(&only_segment(&folder), 28);
    assert_eq!(ids_found(&store).await, [asks[0].id]);
}

#[tokio::test]
async fn damage_that_nobody_needs_is_not_told() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
    complete_with(&store, "expired", b"a body to be found").await;
    let erased = complete_with(&store, "erased", b"another body").await;
    assert_eq!(store.erase(&[erased.id]).await.expect("works"), [Erased::Done]);
    flip_text(&folder, b"a body to be found");
    assert_eq!(ids_found(&store).await.len(), 1);
    clock.pass(RETENTION + MARGIN);
    assert_eq!(pass(&store).await, []);
}

#[tokio::test]
async fn a_pass_reads_a_store_of_many_segments_whole_beside_changes() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    opening::fill(&folder, &clock).await;
    let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
    let damaged = complete_with(&store, "damaged", b"a body to be found").await;
    let needle = b"a body to be found";
    let has_needle = |path: &&PathBuf| {
        let bytes = fs::read(path).expect("it can be read");
        bytes.windows(needle.len()).any(|window| window == needle)
    };
    let all = segments(&folder);
    let log = all.iter().find(has_needle).expect("it is in the log");
    flip(log, position(&fs::read(log).expect("it can be read"), needle));
    let (mut pass, mut found, mut bytes) = (VerificationPass::default(), Vec::new(), 0);
    for round in 0.. {
        let piece = store.verify_piece(&mut pass).await.expect("the disk can be read");
        found.extend(piece.damage.iter().filter_map(|place| place.record));
        bytes += piece.bytes;
        if piece.is_last {
            break;
        }
        let other = complete_with(&store, &format!("other-{round}"), &[7; 40_000]).await;
        assert_eq!(store.erase(&[other.id]).await.expect("works"), [Erased::Done]);
    }
    assert_eq!(found, [damaged.id]);
    assert!(bytes > 20 * 200 * 1024, "{bytes}");
}

#[tokio::test]
async fn a_summary_counts_records_and_the_room_they_take() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
    let long = |key: &str| Ask { retention: 10 * RETENTION, ..ask(key) };
    let first = long("first");
    let lease = run(&store, &first).await;
    let recorded = store.complete(&lease, &answer(vec![7; 10_000])).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))));
    complete_with(&store, "expired", &[7; 50_000]).await;
    let oldest = store.now().await.expect("works");
    clock.pass(2 * RETENTION);
    run(&store, &long("running")).await;
    let erased = complete_with(&store, "erased", &[7; 5000]).await;
    assert_eq!(store.erase(&[erased.id]).await.expect("works"), [Erased::Done]);
    let summary = store.summary().await.expect("works");
    let count = Count { claimed: 1, completed: 1, tombstone: 1, ..Count::default() };
    assert_eq!((summary.count, summary.damaged), (count, 0));
    assert_eq!((summary.kept, summary.encrypted), (1, 0));
    assert_eq!(summary.oldest, Some(oldest));
    assert_eq!(summary.newest, Some(oldest + 2 * RETENTION));
    assert_eq!(summary.day_records, 2);
    assert!((500..13_000).contains(&summary.live_bytes), "{summary:?}");
    assert!(summary.day_bytes < 2000 && summary.log_bytes > 60_000, "{summary:?}");
}
