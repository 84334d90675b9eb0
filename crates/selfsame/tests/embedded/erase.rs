//! Erasure: nothing of an answer or a checkpoint is left in the log, and the log is whole.

use selfsame_core::Erased;

use super::*;

const BODY: &[u8] = b"4242-4242-4242-4242";

/// How often the files of the log hold `text`.
fn times(folder: &TempDir, text: &[u8]) -> usize {
    let count = |path: &PathBuf| {
        let log = fs::read(path).expect("readable");
        log.windows(text.len()).filter(|window| *window == text).count()
    };
    segments(folder).iter().map(count).sum()
}

async fn is_expired(store: &EmbeddedStore, ask: &Ask) -> bool {
    matches!(store.claim(&retry(ask)).await, Ok(Claimed::Expired))
}

/// Completes a key in its second attempt, with checkpoints: its body and its data lie in several frames.
async fn complete_often(store: &EmbeddedStore, key: &str) -> Ask {
    let first = ask(key);
    let lease = run(store, &first).await;
    let point = |name: &str| selfsame_core::Checkpoint::new(name, BODY);
    assert_eq!(store.checkpoint(&lease, &point("one")).await.expect("works"), Fenced::Applied);
    assert_eq!(store.renew(&lease).await.expect("works"), Fenced::Applied);
    assert_eq!(store.release(&lease, Release::Retry).await.expect("works"), Fenced::Applied);
    let lease = run(store, &retry(&first)).await;
    assert_eq!(store.checkpoint(&lease, &point("two")).await.expect("works"), Fenced::Applied);
    let recorded = store.complete(&lease, &answer(BODY)).await.expect("works");
    assert!(matches!(recorded, Recorded::Until(_)));
    first
}

#[tokio::test]
async fn nothing_of_what_was_erased_is_in_the_files() {
    let folder = folder();
    let store = open(&folder);
    let before = complete(&store, "before").await;
    let erased = complete_often(&store, "erased").await;
    let after = complete(&store, "after").await;
    assert!(is_replayed(&store, &before).await);
    assert!(times(&folder, BODY) >= 4);

    let outcomes = store.erase(&[erased.id]).await.expect("the store works");
    assert_eq!((outcomes, times(&folder, BODY)), (vec![Erased::Done], 0));
    let copy = copy_of(&folder);
    drop(store);
    for folder in [&copy, &folder] {
        let store = open(folder);
        assert!(is_expired(&store, &erased).await);
        assert!(store.get(&erased.id).await.expect("it is no damage").is_some());
        assert!(is_replayed(&store, &before).await && is_replayed(&store, &after).await);
        let new = complete(&store, "new").await;
        assert!(is_replayed(&store, &new).await);
    }
}

/// A key that had expired was used again: what the log has of its first use is erased, too.
#[tokio::test]
async fn what_an_erased_key_was_used_for_before_is_not_in_the_files_either() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let options = || EmbeddedOptions::default().leases(Leases::Keep).clock(clock.clone());
    let store = reopen(&folder, options());
    let first = complete_with(&store, "again", BODY).await;
    clock.pass(RETENTION + MARGIN);
    sweep_all(&store).await;
    assert!(store.get(&first.id).await.expect("the store works").is_none());
    assert_eq!(times(&folder, BODY), 1, "the file it is in is still written to");

    let second = complete_with(&store, "again", b"another").await;
    assert_eq!(second.id, first.id);
    assert_eq!(store.erase(&[second.id]).await.expect("the store works"), [Erased::Done]);
    assert_eq!((times(&folder, BODY), times(&folder, b"another")), (0, 0));
}

/// Where the process dies while it overwrites, the tombstone counts all the same, and erasing once more
/// ends what was begun.
#[tokio::test]
async fn an_erasure_that_was_cut_off_is_no_damage() {
    let folder = folder();
    let store = open(&folder);
    let other = complete(&store, "other").await;
    let erased = complete_often(&store, "erased").await;
    let log = only_segment(&folder);
    let whole = fs::read(&log).expect("readable");
    assert_eq!(store.erase(&[erased.id]).await.expect("works"), [Erased::Done]);
    let scrubbed = fs::read(&log).expect("readable");
    let crashed = copy_of(&folder);
    drop(store);

    let changed: Vec<usize> =
        (0..written(&whole)).filter(|at| whole[*at] != scrubbed[*at]).collect();
    for part in 0..8 {
        // Some of it had reached the disk, in whatever order.
        let mut torn = scrubbed.clone();
        for at in changed.iter().filter(|at| (*at / 64) % 8 == part) {
            torn[*at] = whole[*at];
        }
        let copy = copy_of(&crashed);
        fs::write(only_segment(&copy), &torn).expect("written");
        let store = open(&copy);
        assert!(is_expired(&store, &erased).await, "{part}");
        assert!(is_replayed(&store, &other).await, "{part}");
        assert_eq!(store.erase(&[erased.id]).await.expect("works"), [Erased::Done]);
        assert_eq!(times(&copy, BODY), 0, "{part}");
    }
}

/// What a batch or two before has said is found wherever it lies, in many files and in many records at
/// once; what others have is left.
#[tokio::test]
async fn many_records_are_erased_at_once_from_all_files() {
    let folder = folder();
    let store = open(&folder);
    let large = vec![b'x'; 64 * 1024];
    let (mut erased, mut kept) = (Vec::new(), Vec::new());
    for n in 0..30 {
        let body = [BODY, &large].concat();
        erased.push(complete_with(&store, &format!("erased-{n}"), &body).await);
        kept.push(complete(&store, &format!("kept-{n}")).await);
    }
    assert!(segments(&folder).len() > 2);
    let running = ask("running");
    let lease = run(&store, &running).await;
    let mut ids: Vec<_> = erased.iter().map(|ask| ask.id).collect();
    ids.push(running.id);
    let outcomes = store.erase(&ids).await.expect("the store works");
    assert!(outcomes[..30].iter().all(|erased| *erased == Erased::Done));
    assert_eq!(outcomes[30], Erased::Running);
    assert_eq!(times(&folder, BODY), 0);
    assert!(matches!(store.complete(&lease, &answer("done")).await, Ok(Recorded::Until(_))));
    drop(store);
    let store = open(&folder);
    for (erased, kept) in erased.iter().zip(&kept) {
        assert!(is_expired(&store, erased).await && is_replayed(&store, kept).await);
    }
    sweep_all(&store).await;
    assert!(is_expired(&store, &erased[0]).await && is_replayed(&store, &running).await);
}

/// Readers that have just found the record do not take the overwritten one for a damaged one.
#[tokio::test]
async fn who_reads_beside_an_erasure_meets_no_damage() {
    let folder = folder();
    let store = open(&folder);
    for n in 0..20 {
        let first = complete(&store, &format!("k-{n}")).await;
        let reads = (0..4).map(|_| async {
            for _ in 0..50 {
                store.get(&first.id).await.expect("it is no damage");
                let claimed = store.claim(&retry(&first)).await.expect("it is no damage");
                assert!(matches!(claimed, Claimed::Replay(_) | Claimed::Expired));
            }
        });
        let ids = [first.id];
        let (erased, _) = tokio::join!(store.erase(&ids), join_all(reads));
        assert_eq!(erased.expect("the store works"), [Erased::Done]);
        assert!(is_expired(&store, &first).await);
    }
}

/// Whether a record has older frames is known after a crash, also without the index; and who erases
/// at the same time as others waits for one look through the log.
#[tokio::test]
async fn many_who_erase_at_once_after_a_crash_leave_nothing() {
    let folder = folder();
    let store = open(&folder);
    let (mut erased, mut kept) = (Vec::new(), Vec::new());
    for n in 0..24 {
        let key = format!("k-{n}");
        erased.push(match n % 2 {
            0 => complete_often(&store, &key).await,
            _ => complete_with(&store, &key, BODY).await,
        });
        kept.push(complete(&store, &format!("kept-{n}")).await);
    }
    for has_index in [true, false] {
        let crashed = copy_of(&folder);
        if !has_index {
            remove_index(&crashed);
        }
        let store = open(&crashed);
        assert!(times(&crashed, BODY) >= 24);
        let calls = erased.chunks(3).map(|few| {
            let ids: Vec<_> = few.iter().map(|ask| ask.id).collect();
            let store = &store;
            async move { store.erase(&ids).await.expect("the store works") }
        });
        for outcomes in join_all(calls).await {
            assert!(outcomes.iter().all(|erased| *erased == Erased::Done));
        }
        assert_eq!(times(&crashed, BODY), 0, "{has_index}");
        drop(store);
        let store = open(&crashed);
        for (erased, kept) in erased.iter().zip(&kept) {
            assert!(is_expired(&store, erased).await && is_replayed(&store, kept).await);
        }
    }
}
