//! Damaged folders are repaired, and folders are restored from copies: no key that was used runs again.

use super::closed::assert_closed;
use super::opening::{HARMS, Harm, all_files, fill};
use super::*;

/// What else is done to a file.
const MORE_HARMS: [(&str, Harm); 4] = [
    ("without its first page", |path| zero(path, |_| 0, 4096)),
    ("without a page in its middle", |path| zero(path, |len| len / 2 / 4096 * 4096, 4096)),
    ("with a flipped byte near its begin", |path| zero(path, |_| 50, 1)),
    ("without a sector", |path| zero(path, |len| len / 3, 512)),
];

fn zero(path: &Path, begin: fn(usize) -> usize, len: usize) {
    let mut bytes = fs::read(path).expect("it can be read");
    let begin = begin(bytes.len()).min(bytes.len());
    let end = (begin + len).min(bytes.len());
    bytes[begin..end].iter_mut().for_each(|byte| *byte = !*byte);
    if len > 1 {
        bytes[begin..end].fill(0);
    }
    fs::write(path, bytes).expect("it can be written");
}

async fn repair(folder: &Path, options: EmbeddedOptions) -> Result<Option<Repaired>, RepairError> {
    EmbeddedStore::repair(folder, options, RepairOptions::default()).await
}

/// None of these keys, which were used, is free. Returns how many get their answers.
async fn answered(store: &EmbeddedStore, asks: &[Ask]) -> usize {
    let mut answered = 0;
    for ask in asks {
        match store.claim(&retry(ask)).await {
            Ok(Claimed::Replay(_)) => answered += 1,
            Ok(Claimed::Held { .. }) => {}
            Err(error) if error.is_damaged() || error.is_of_lost_records() => {}
            other => panic!("{other:?}"),
        }
    }
    answered
}

#[tokio::test]
async fn no_key_runs_again_after_a_repair_whichever_file_is_harmed() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let options = || EmbeddedOptions::default().clock(clock.clone());
    let asks = fill(&folder, &clock).await;
    let (mut repaired, mut sound, mut kept) = (0, 0, 0);
    for file in all_files(folder.path()) {
        for (name, harm) in HARMS.into_iter().chain(MORE_HARMS) {
            let is_of_index = file.parent() != Some(folder.path());
            for has_index in [true, false] {
                if is_of_index && !has_index {
                    continue;
                }
                let what = format!("{} {name}, index: {has_index}", file.display());
                let copy = copy_of(&folder);
                harm(&copy.path().join(file.strip_prefix(folder.path()).expect("it is in it")));
                if !has_index {
                    remove_index(&copy);
                }
                let opens = EmbeddedStore::open(copy.path(), options()).is_ok();
                let done = match repair(copy.path(), options()).await {
                    Ok(done) => done,
                    Err(RepairError::Facts { .. }) if file.ends_with("facts") => continue,
                    Err(error) => panic!("{what}: {error}"),
                };
                assert_eq!(done.is_none(), opens, "{what}");
                let store = EmbeddedStore::open(copy.path(), options());
                let store = store.unwrap_or_else(|error| panic!("{what}: {error}"));
                let here = answered(&store, &asks).await;
                let secret = store.fact_or("secret", b"another").await;
                assert_eq!(secret.expect("the store works"), b"hidden");
                let Some(done) = done else {
                    sound += 1;
                    continue;
                };
                assert_eq!(done.completed, here as u64, "{what}: {done:?}");
                assert!(
                    done.damaged_places + done.damaged > 0 || here == asks.len(),
                    "{what}: {done:?}"
                );
                assert_eq!(done.closed_for, RETENTION);
                assert_closed(&store, &ask("unknown")).await;
                // It is a store like any other, also after a restart.
                drop(store);
                assert!(matches!(repair(copy.path(), options()).await, Ok(None)));
                let store = reopen(&copy, options());
                assert_eq!(answered(&store, &asks).await, here, "{what}");
                repaired += 1;
                kept += here;
            }
        }
    }
    assert!(repaired > 20 && sound > 10, "{repaired} repaired, {sound} sound");
    assert!(kept > repaired * asks.len() / 2, "{kept} answers kept in {repaired} repairs");
}

#[tokio::test]
async fn what_is_unfinished_is_held_and_what_was_erased_stays_erased() {
    let folder = folder();
    let store = open(&folder);
    let running = ask("running");
    run(&store, &running).await;
    let failed = ask("failed");
    let lease = run(&store, &failed).await;
    assert_eq!(store.release(&lease, Release::Retry).await.ok(), Some(Fenced::Applied));
    let erased = complete(&store, "erased").await;
    store.erase(&[erased.id]).await.expect("the store works");
    let body = b"a body to be found";
    let damaged = complete_with(&store, "damaged", body).await;
    let done = complete(&store, "done").await;
    let lost = complete(&store, "lost").await;
    complete(&store, "behind").await;
    drop(store);
    let log = only_segment(&folder);
    let mut bytes = fs::read(&log).expect("the log is there");
    let at = position(&bytes, body);
    bytes[at] ^= 1;
    // Both frames of one key, so that nothing tells of it.
    while let Some(at) = bytes.windows(32).position(|window| window == lost.id.as_bytes()) {
        bytes[at - 32..at + 32].fill(0);
    }
    fs::write(&log, &bytes).expect("the log can be written");
    remove_index(&folder);

    let repaired = repair(folder.path(), EmbeddedOptions::default()).await;
    let repaired = repaired.expect("it can be repaired").expect("it was damaged");
    let Repaired { completed, newly_held, tombstones, damaged: refused, .. } = repaired;
    assert_eq!((completed, newly_held, tombstones, refused), (2, 2, 1, 1), "{repaired:?}");
    assert_eq!(repaired.damaged_places, 1, "{repaired:?}");
    let set_aside = repaired.set_aside.expect("the damaged files are kept");
    assert!(set_aside.join("records-00000001.log").exists() && set_aside.join("facts").exists());

    let store = open(&folder);
    for ask in [&running, &failed] {
        assert!(matches!(store.claim(&retry(ask)).await, Ok(Claimed::Held { .. })));
    }
    assert!(matches!(store.claim(&retry(&erased)).await, Ok(Claimed::Expired)));
    assert!(store.claim(&retry(&damaged)).await.is_err_and(|error| error.is_damaged()));
    assert!(is_replayed(&store, &done).await);
    assert_closed(&store, &retry(&lost)).await;
    // A person decides, and what was interrupted may still tell its outcome.
    let record = store.get(&failed.id).await.expect("readable").expect("it is there");
    let freed = store.resolve(&failed.id, record.fence, &selfsame_core::Resolution::free()).await;
    assert_eq!(freed.ok(), Some(selfsame_core::Resolved::Done));
    run(&store, &retry(&failed)).await;
}

#[tokio::test]
async fn an_answer_is_not_given_to_the_claim_of_an_earlier_life_of_its_key() {
    let folder = folder();
    let clock = Arc::new(SettableClock::new());
    let options = || EmbeddedOptions::default().leases(Leases::Keep).clock(clock.clone());
    let store = reopen(&folder, options());
    // The first life ends without an outcome; it expires, and the key is used for another request.
    let first = Ask { recover: Recover::Resume, ..ask("reused") };
    run(&store, &first).await;
    clock.pass(RETENTION + MARGIN);
    let second =
        Ask { recover: Recover::Resume, ..selfsame_core::conformance::samples::mismatch(&first) };
    let lease = run(&store, &second).await;
    let recorded = store.complete(&lease, &answer("of the second")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))));
    complete(&store, "behind").await;
    drop(store);
    // The second claim is lost.
    let log = only_segment(&folder);
    let mut bytes = fs::read(&log).expect("the log is there");
    let windows = bytes.windows(32).enumerate();
    let places: Vec<_> =
        windows.filter(|(_, window)| *window == first.id.as_bytes()).map(|(at, _)| at).collect();
    assert_eq!(places.len(), 3);
    bytes[places[1] - 32..places[1] + 32].fill(0);
    fs::write(&log, &bytes).expect("the log can be written");
    remove_index(&folder);

    repair(folder.path(), options()).await.expect("it can be repaired").expect("it was damaged");
    let store = reopen(&folder, options());
    for ask in [&first, &second] {
        assert!(store.claim(&retry(ask)).await.is_err_and(|error| error.is_damaged()));
    }
}

#[tokio::test]
async fn the_store_s_time_goes_on_and_the_closing_lasts_as_long_as_keys_live() {
    let folder = folder();
    let clock = Arc::new(SettableClock::new());
    let options = || EmbeddedOptions::default().clock(clock.clone());
    let store = reopen(&folder, options());
    let long = Ask { retention: 3 * RETENTION, ..remembered("long") };
    let lease = run(&store, &long).await;
    assert!(matches!(store.complete(&lease, &answer("done")).await, Ok(Recorded::Until(_))));
    complete(&store, "lost").await;
    drop(store);
    let cut = |folder: &TempDir| {
        fs::remove_dir_all(folder.path().join("index")).expect("there is an index");
        let log = only_segment(folder);
        let mut bytes = fs::read(&log).expect("the log is there");
        bytes[8] ^= 1;
        fs::write(&log, bytes).expect("the log can be written");
    };
    cut(&folder);
    let copy = copy_of(&folder);
    let done = repair(folder.path(), options()).await.expect("it works").expect("it was damaged");
    assert_eq!(done.closed_for, 3 * RETENTION + REMEMBER);
    assert_eq!(done.completed, 2, "the salt was whole");
    let asked = RepairOptions::default().closed_for(MARGIN);
    let done = EmbeddedStore::repair(copy.path(), options(), asked).await.expect("it works");
    assert_eq!(done.expect("it was damaged").closed_for, MARGIN);

    // What was closed before for longer stays so.
    let store = reopen(&copy, options());
    assert_closed(&store, &ask("unknown")).await;
    store.close_for_unknown_keys(50 * RETENTION).await.expect("the store works");
    drop(store);
    cut(&copy);
    let done = repair(copy.path(), options()).await.expect("it works").expect("it was damaged");
    assert_eq!(done.closed_for, 50 * RETENTION);
}

#[tokio::test]
async fn only_a_damaged_folder_that_nobody_serves_is_repaired() {
    let folder = folder();
    assert!(matches!(
        repair(folder.path(), EmbeddedOptions::default()).await,
        Err(RepairError::NoStore { .. })
    ));
    assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
    let store = open(&folder);
    let done = complete(&store, "done").await;
    assert!(matches!(
        repair(folder.path(), EmbeddedOptions::default()).await,
        Err(RepairError::Open(OpenError::InUse { .. }))
    ));
    drop(store);
    assert!(matches!(repair(folder.path(), EmbeddedOptions::default()).await, Ok(None)));
    let store = open(&folder);
    assert!(is_replayed(&store, &done).await);
    assert_eq!(store.health().closed_for(), None);
}

#[tokio::test]
async fn without_its_facts_a_store_is_repaired_only_if_that_is_accepted() {
    let folder = folder();
    let store = open(&folder);
    store.set_fact("secret", b"hidden").await.expect("the store works");
    let done = complete(&store, "done").await;
    drop(store);
    fs::remove_file(folder.path().join("facts")).expect("they are there");
    let refused = repair(folder.path(), EmbeddedOptions::default()).await;
    assert!(matches!(refused, Err(RepairError::Facts { .. })), "{refused:?}");
    let accepting = RepairOptions::default().accept_lost_facts();
    let repaired =
        EmbeddedStore::repair(folder.path(), EmbeddedOptions::default(), accepting).await;
    assert_eq!(repaired.expect("it works").expect("it was damaged").completed, 1);
    let store = open(&folder);
    assert!(is_replayed(&store, &done).await);
    assert_closed(&store, &ask("unknown")).await;
}

#[tokio::test]
async fn a_copy_is_restored_and_keys_that_were_used_since_are_refused() {
    let (folder, other) = (self::folder(), self::folder());
    let target = other.path().join("restored");
    let store = open(&folder);
    store.set_fact("secret", b"hidden").await.expect("the store works");
    let done = complete(&store, "done").await;
    let running = ask("running");
    let lease = run(&store, &running).await;
    let copy = copy_of(&folder);
    // Another process leaves this in a copy that it makes.
    fs::write(copy.path().join("backup"), "selfsame backup 1\nmade: 2026-01-31T12:00:00Z\n")
        .expect("it can be written");
    assert!(matches!(store.complete(&lease, &answer("done")).await, Ok(Recorded::Until(_))));
    let later = complete(&store, "later").await;

    let (options, with) = (EmbeddedOptions::default, RepairOptions::default);
    let served = EmbeddedStore::restore(folder.path(), &target, options(), with()).await;
    assert!(matches!(served, Err(RepairError::Open(OpenError::InUse { .. }))), "{served:?}");
    let nothing = EmbeddedStore::restore(other.path(), &target, options(), with()).await;
    assert!(matches!(nothing, Err(RepairError::NoStore { .. })), "{nothing:?}");
    let before: Vec<_> = all_files(copy.path()).iter().map(|file| fs::read(file).ok()).collect();

    let restored = EmbeddedStore::restore(copy.path(), &target, options(), with()).await;
    let restored = restored.expect("it can be restored");
    assert_eq!((restored.completed, restored.newly_held), (1, 1), "{restored:?}");
    assert_eq!((restored.damaged_places, &restored.set_aside), (0, &None));
    let after: Vec<_> = all_files(copy.path()).iter().map(|file| fs::read(file).ok()).collect();
    assert!(before == after, "the copy stays as it is");
    let again = EmbeddedStore::restore(copy.path(), &target, options(), with()).await;
    assert!(matches!(again, Err(RepairError::Occupied { .. })), "{again:?}");

    let store = EmbeddedStore::open(&target, options()).expect("it is a store");
    assert!(is_replayed(&store, &done).await);
    assert!(matches!(store.claim(&retry(&running)).await, Ok(Claimed::Held { .. })));
    assert_closed(&store, &retry(&later)).await;
    // An answer that waited in the spool is the truth.
    assert!(matches!(store.complete(&lease, &answer("done")).await, Ok(Recorded::Until(_))));
    assert!(is_replayed(&store, &running).await);
}
