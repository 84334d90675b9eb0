//! Answers that leave with those that expire when they do.

use super::*;

const TABLES: &str = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'answers%'";

#[tokio::test]
async fn expired_answers_leave_with_their_table_and_their_pages_are_used_again() {
    let folder = folder();
    let clock = Arc::new(SettableClock::new());
    let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
    let file = sqlite(&folder);
    let mut pages = Vec::new();
    for round in 0..4 {
        for at in 0..20 {
            complete_with(&store, &format!("{round}-{at}"), &[7; 64 * 1024]).await;
        }
        assert_eq!(number(&file, TABLES), 1);
        pages.push(number(&file, "PRAGMA page_count"));
        clock.pass(RETENTION + Duration::from_secs(15 * 60) + MARGIN);
        let swept = store.sweep(100).await.expect("the store works");
        assert_eq!((swept.removed, swept.finished), (20, true));
        assert_eq!(number(&file, TABLES), 0);
        assert_eq!(number(&file, "SELECT count(*) FROM keys"), 0);
    }
    assert!(pages[3] <= pages[0] + pages[0] / 10, "the file grew: {pages:?} pages");
}

#[tokio::test]
async fn a_full_table_leaves_in_slices_and_the_sweep_is_not_finished_before() {
    let folder = folder();
    let clock = Arc::new(SettableClock::new());
    let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
    for at in 0..12 {
        complete_with(&store, &format!("large-{at}"), &[7; 512 * 1024]).await;
    }
    clock.pass(RETENTION + Duration::from_secs(15 * 60) + MARGIN);
    complete(&store, "fresh").await;
    let mut steps = Vec::new();
    while steps.last().is_none_or(|(_, finished)| !finished) {
        let swept = store.sweep(100).await.expect("the store works");
        steps.push((swept.removed, swept.finished));
    }
    assert_eq!((steps[0], steps.len()), ((12, false), 4));
    assert_eq!(number(&sqlite(&folder), TABLES), 1);
    assert!(matches!(store.claim(&ask("fresh")).await, Ok(Claimed::Replay(_))));
}

#[tokio::test]
async fn a_sweep_drops_one_table_at_a_time() {
    let folder = folder();
    let clock = Arc::new(SettableClock::new());
    let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
    let file = sqlite(&folder);
    for hour in 0..3 {
        complete(&store, &format!("hour-{hour}")).await;
        clock.pass(Duration::from_secs(60 * 60));
    }
    clock.pass(RETENTION);
    for left in [2, 1, 0, 0] {
        store.sweep(1).await.expect("the store works");
        assert_eq!(number(&file, TABLES), left);
    }
    // Their keys are new, swept or not.
    for hour in 0..3 {
        complete(&store, &format!("hour-{hour}")).await;
    }
}

#[tokio::test]
async fn an_expired_checkpoint_leaves_with_its_key() {
    let folder = folder();
    let clock = Arc::new(SettableClock::new());
    let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
    for key in ["swept", "new-again"] {
        let lease = run(&store, &ask(key)).await;
        let saved = store.checkpoint(&lease, &checkpoint("paid")).await;
        assert_eq!(saved.ok(), Some(Fenced::Applied));
    }
    clock.pass(RETENTION + MARGIN);
    run(&store, &ask("new-again")).await;
    assert_eq!(store.sweep(100).await.expect("the store works").removed, 1);
    assert_eq!(number(&sqlite(&folder), "SELECT count(*) FROM checkpoints"), 0);
}

#[tokio::test]
async fn a_tombstone_needs_no_answer_table_and_keeps_no_checkpoint() {
    let folder = folder();
    let clock = Arc::new(SettableClock::new());
    let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
    let file = sqlite(&folder);
    let asks = [remembered("k"), Ask { remember: Duration::MAX, ..ask("for-ever") }];
    for ask in &asks {
        let lease = run(&store, ask).await;
        let saved = store.checkpoint(&lease, &checkpoint("paid")).await;
        assert_eq!(saved.ok(), Some(Fenced::Applied));
        let recorded = store.complete(&lease, &answer("done")).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))));
    }
    clock.pass(RETENTION + Duration::from_secs(15 * 60) + MARGIN);
    // Not one record is looked at, and their table goes.
    store.sweep(0).await.expect("the store works");
    assert_eq!(number(&file, TABLES), 0);
    for swept in [false, true] {
        for ask in &asks {
            let claimed = store.claim(&retry(ask)).await.expect("the store works");
            assert_eq!(claimed, Claimed::Expired, "swept: {swept}");
            let record = store.get(&ask.id).await.expect("the store works");
            assert!(record.is_some_and(|record| record.state == State::Tombstone));
        }
        let count = store.count().await.expect("the store works");
        assert_eq!(count, Count { tombstone: 2, ..Count::default() });
        store.sweep(100).await.expect("the store works");
    }
    assert_eq!(number(&file, "SELECT count(*) FROM checkpoints"), 0);
    assert_eq!(number(&file, "SELECT count(answer_row) FROM keys"), 0);
    clock.pass(REMEMBER * 1000);
    let count = store.count().await.expect("the store works");
    assert_eq!(count, Count { tombstone: 1, ..Count::default() });
}
