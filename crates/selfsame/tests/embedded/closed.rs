//! A store that has lost records refuses keys that it does not know, until those that were lost would have
//! expired.

use super::*;

const WINDOW: Duration = Duration::from_secs(48 * 60 * 60);

/// The claim is refused as one that may repeat lost work. Returns for how long.
pub(super) async fn assert_closed(store: &EmbeddedStore, ask: &Ask) -> Duration {
    let error = store.claim(ask).await.expect_err("it may have run");
    assert!(error.is_of_lost_records(), "{error}");
    assert_eq!(store.get(&ask.id).await.ok(), Some(None), "nothing was written");
    error.retries_after().expect("the store knows for how long")
}

#[tokio::test]
async fn a_closed_store_answers_known_keys_and_refuses_others_over_restarts_until_its_time_is_over()
{
    let folder = folder();
    let clock = Arc::new(SettableClock::new());
    let options = || EmbeddedOptions::default().leases(Leases::Keep).clock(clock.clone());
    let mut store = reopen(&folder, options());
    let done = complete(&store, "done").await;
    let failed = ask("failed");
    let lease = run(&store, &failed).await;
    assert_eq!(store.release(&lease, Release::Retry).await.ok(), Some(Fenced::Applied));
    assert_eq!(store.health().closed_for(), None);
    store.close_for_unknown_keys(WINDOW).await.expect("the store works");
    // A shorter time takes nothing back.
    store.close_for_unknown_keys(Duration::from_secs(1)).await.expect("the store works");

    for round in 0..2 {
        assert_eq!(store.health().closed_for(), Some(WINDOW));
        assert_eq!(assert_closed(&store, &ask("unknown")).await, WINDOW);
        assert!(is_replayed(&store, &done).await);
        if round == 0 {
            drop(store);
            store = reopen(&folder, options());
        }
    }
    let again = store.claim(&retry(&failed)).await;
    assert!(
        matches!(again, Ok(Claimed::Run(grant)) if grant.attempt == 2),
        "it is known to be free"
    );

    // One that expired meanwhile may have been used again by a claim that was lost.
    clock.pass(RETENTION + MARGIN);
    let left = assert_closed(&store, &retry(&done)).await;
    assert!(left <= WINDOW - RETENTION, "{left:?}");
    sweep_all(&store).await;
    assert_closed(&store, &retry(&done)).await;

    clock.pass(WINDOW - RETENTION - 2 * MARGIN);
    assert_closed(&store, &ask("unknown")).await;
    clock.pass(2 * MARGIN);
    assert_eq!(store.health().closed_for(), None);
    run(&store, &ask("unknown")).await;
    run(&store, &retry(&done)).await;
}

#[tokio::test]
async fn an_operator_reopens_a_closed_store_for_good() {
    let folder = folder();
    let store = open(&folder);
    assert_eq!(store.reopen().await.ok(), Some(false));
    store.close_for_unknown_keys(WINDOW).await.expect("the store works");
    assert_closed(&store, &ask("first")).await;
    assert_eq!(store.reopen().await.ok(), Some(true));
    assert_eq!(store.reopen().await.ok(), Some(false));
    run(&store, &ask("first")).await;
    drop(store);
    let store = open(&folder);
    assert_eq!(store.health().closed_for(), None);
    run(&store, &ask("second")).await;
}

#[tokio::test]
async fn a_copy_of_a_closed_store_in_another_folder_is_closed() {
    let (folder, other) = (self::folder(), self::folder());
    let store = open(&folder);
    store.close_for_unknown_keys(WINDOW).await.expect("the store works");
    let copy = open(&other);
    for (name, value) in store.facts().await.expect("the store works") {
        copy.set_fact(&name, &value).await.expect("the store works");
    }
    assert_closed(&copy, &ask("unknown")).await;
}
