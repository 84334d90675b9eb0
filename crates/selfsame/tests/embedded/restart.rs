//! What a restart finds.

use super::*;

#[tokio::test]
async fn claims_of_an_earlier_boot_are_dead_where_they_died_with_it() {
    let folder = folder();
    let (resumed, held) = (ask("resumed"), Ask { recover: Recover::Hold, ..ask("held") });
    let store = open(&folder);
    run(&store, &resumed).await;
    run(&store, &held).await;
    assert!(matches!(store.claim(&retry(&resumed)).await, Ok(Claimed::Busy { .. })));
    drop(store);

    let store = open(&folder);
    let count = store.count().await.expect("the store works");
    assert_eq!(count, Count { claimed: 1, held: 1, ..Count::default() });
    let claimed = store.claim(&retry(&resumed)).await.expect("the store works");
    assert!(matches!(claimed, Claimed::Run(grant) if grant.took_over && grant.attempt == 2));
    assert!(matches!(store.claim(&retry(&held)).await, Ok(Claimed::Held { newly: true })));
    // A claim of this boot lives.
    assert!(matches!(store.claim(&retry(&resumed)).await, Ok(Claimed::Busy { .. })));
}

#[tokio::test]
async fn claims_of_an_earlier_boot_live_on_where_they_are_kept() {
    let folder = folder();
    let first = ask("k");
    run(&open(&folder), &first).await;
    let store = reopen(&folder, EmbeddedOptions::default().leases(Leases::Keep));
    assert!(matches!(store.claim(&retry(&first)).await, Ok(Claimed::Busy { .. })));
}

#[tokio::test]
async fn what_was_asked_for_is_done_before_the_folder_is_given_back() {
    let folder = folder();
    let first = ask("k");
    let store = open(&folder);
    let lease = run(&store, &first).await;
    let done = answer("done");
    // Asked for, and not awaited.
    tokio::select! {
        biased;
        _ = store.complete(&lease, &done) => panic!("no disk is that fast"),
        () = ready(()) => {}
    }
    drop(store);
    assert!(is_replayed(&open(&folder), &first).await);
}

#[tokio::test]
async fn what_never_expires_is_still_there() {
    let folder = folder();
    let store = open(&folder);
    let forever = Ask { retention: Duration::MAX, ..ask("k") };
    let lease = run(&store, &forever).await;
    let recorded = store.complete(&lease, &answer("done")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))));
    drop(store);
    let store = open(&folder);
    assert!(store.sweep(10).await.expect("the store works").finished);
    assert!(is_replayed(&store, &forever).await);
    let count = store.count().await.expect("the store works");
    assert_eq!(count, Count { completed: 1, ..Count::default() });
}
