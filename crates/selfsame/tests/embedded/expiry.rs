//! Segments that leave when nothing of them is needed.

use super::*;

const MIB: usize = 1024 * 1024;

/// How much the log takes on the disk.
fn size(folder: &TempDir) -> usize {
    let len = |path: &PathBuf| fs::metadata(path).map_or(0, |file| file.len());
    usize::try_from(segments(folder).iter().map(len).sum::<u64>()).expect("it is small")
}

/// Files are taken away by a thread of their own.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

fn open_at(folder: &TempDir, clock: &Arc<SettableClock>) -> EmbeddedStore {
    reopen(folder, EmbeddedOptions::default().leases(Leases::Keep).clock(clock.clone()))
}

#[tokio::test]
async fn what_expired_leaves_with_its_segments() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let store = open_at(&folder, &clock);
    for round in 0..6 {
        for at in 0..48 {
            complete_with(&store, &format!("{round}-{at}"), &vec![7; 512 * 1024]).await;
        }
        assert!(size(&folder) >= 24 * MIB);
        clock.pass(RETENTION + MARGIN);
        let swept = store.sweep(1000).await.expect("the store works");
        assert_eq!(swept.removed, 48);
        sweep_all(&store).await;
        eventually("the files are gone", || size(&folder) < 12 * MIB).await;
    }
    drop(store);
    let store = open_at(&folder, &clock);
    assert_eq!(store.count().await.expect("the store works"), Count::default());
}

#[tokio::test]
async fn an_end_whose_claim_left_with_its_segment_is_nothing() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let store = open_at(&folder, &clock);
    let straddling = ask("straddling");
    let lease = run(&store, &straddling).await;
    for at in 0..4 {
        complete_with(&store, &format!("{at}"), &vec![7; MIB]).await;
    }
    let recorded = store.complete(&lease, &answer("done")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))));
    clock.pass(Duration::from_secs(60 * 60));
    let later = complete(&store, "later").await;
    clock.pass(RETENTION - Duration::from_secs(30 * 60));
    let first = segments(&folder).remove(0);
    sweep_all(&store).await;
    eventually("the claim's file is gone", || !first.exists()).await;
    drop(store);
    let store = open_at(&folder, &clock);
    assert!(is_replayed(&store, &later).await);
    run(&store, &straddling).await;
}

#[tokio::test]
async fn what_is_needed_for_longer_is_written_anew() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let mut store = open_at(&folder, &clock);
    let forever = Ask { retention: Duration::MAX, ..ask("forever") };
    let lease = run(&store, &forever).await;
    let recorded = store.complete(&lease, &answer("done")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))));
    let held = Ask { recover: Recover::Hold, ..ask("held") };
    let lease = run(&store, &held).await;
    assert_eq!(store.release(&lease, Release::Hold).await.ok(), Some(Fenced::Applied));
    let forgotten = ask("forgotten");
    let lease = run(&store, &forgotten).await;
    assert_eq!(store.release(&lease, Release::Forget).await.ok(), Some(Fenced::Applied));
    let first = segments(&folder).remove(0);

    for round in 0..4 {
        for at in 0..24 {
            complete_with(&store, &format!("{round}-{at}"), &vec![7; MIB]).await;
        }
        clock.pass(RETENTION + MARGIN);
        sweep_all(&store).await;
        eventually("the files are gone", || size(&folder) < 16 * MIB).await;
        assert!(!first.exists());
        if round % 2 == 1 {
            drop(store);
            store = open_at(&folder, &clock);
        }
        assert!(is_replayed(&store, &forever).await);
        assert_eq!(store.claim(&retry(&held)).await.ok(), Some(Claimed::Held { newly: false }));
        let count = store.count().await.expect("the store works");
        assert_eq!(count, Count { completed: 1, held: 1, ..Count::default() });
    }
    run(&store, &forgotten).await;
}

#[tokio::test]
async fn a_tombstone_keeps_no_answer() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let store = open_at(&folder, &clock);
    let asks = [remembered("k"), Ask { remember: Duration::MAX, ..ask("for-ever") }];
    for ask in &asks {
        let lease = run(&store, ask).await;
        let saved = store.checkpoint(&lease, &checkpoint("paid")).await;
        assert_eq!(saved.ok(), Some(Fenced::Applied));
        let recorded = store.complete(&lease, &answer(vec![7; 12 * MIB])).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))));
    }
    clock.pass(RETENTION + MARGIN);
    for swept in [false, true] {
        for ask in &asks {
            let claimed = store.claim(&retry(ask)).await.expect("the store works");
            assert_eq!(claimed, Claimed::Expired, "swept: {swept}");
            let record = store.get(&ask.id).await.expect("the store works");
            assert!(record.is_some_and(|record| record.state == State::Tombstone));
        }
        let count = store.count().await.expect("the store works");
        assert_eq!(count, Count { tombstone: 2, ..Count::default() });
        sweep_all(&store).await;
    }
    // What is written next needs a segment, and the large ones are no longer needed.
    complete_with(&store, "next", &vec![7; 2 * MIB]).await;
    sweep_all(&store).await;
    eventually("the answers are gone", || size(&folder) < 12 * MIB).await;
    drop(store);
    let store = open_at(&folder, &clock);
    clock.pass(REMEMBER * 1000);
    let count = store.count().await.expect("the store works");
    assert_eq!(count, Count { tombstone: 1, ..Count::default() });
}

/// A claim's frame, which a short completion would refer to, must not stay for the request in it.
#[tokio::test]
async fn a_kept_request_leaves_when_there_is_an_outcome() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let store = open_at(&folder, &clock);
    let request = Keepsake { request: Some(vec![7; 512 * 1024].into()), ..Keepsake::default() };
    let keepsake = Some(Box::new(request));
    let asks: Vec<_> =
        (0..48).map(|at| Ask { keepsake: keepsake.clone(), ..ask(&format!("k-{at}")) }).collect();
    for ask in &asks {
        let lease = run(&store, ask).await;
        let recorded = store.complete(&lease, &answer("done")).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))));
    }
    assert!(size(&folder) >= 24 * MIB);
    sweep_all(&store).await;
    eventually("the files are gone", || size(&folder) < 12 * MIB).await;
    drop(store);
    let store = open_at(&folder, &clock);
    for ask in &asks {
        assert!(is_replayed(&store, ask).await);
        let record = store.get(&ask.id).await.expect("the store works").expect("completed");
        assert_eq!(record.keepsake, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replays_go_on_while_segments_are_written_anew() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let store = Arc::new(open_at(&folder, &clock));
    let mut kept = Vec::new();
    for at in 0..300 {
        let ask = Ask { retention: RETENTION * 100, ..ask(&format!("kept-{at}")) };
        let lease = run(&store, &ask).await;
        // Larger than what is kept at hand, so that each replay is read.
        let recorded = store.complete(&lease, &answer(vec![3; 70 * 1024])).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))));
        kept.push(ask);
        complete_with(&store, &format!("short-{at}"), &vec![7; 200 * 1024]).await;
    }
    clock.pass(RETENTION + MARGIN);
    let sweeping = async {
        for _ in 0..40 {
            store.sweep(100).await.expect("the store works");
        }
    };
    let replaying = async {
        for ask in kept.iter().cycle().take(2000) {
            let claimed = store.claim(&retry(ask)).await;
            assert!(matches!(claimed, Ok(Claimed::Replay(_))), "{claimed:?}");
        }
    };
    let before = segments(&folder);
    tokio::join!(sweeping, replaying);
    assert!(!before[0].exists(), "nothing was moved");
}
