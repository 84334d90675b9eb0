//! Redis forgets: no answer is lost, and what runs is there again, or runs twice and is recorded once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join;
use selfsame::{Idempotency, Key};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{
    LEASE, MARGIN, RETENTION, answer, ask, checkpoint, kept, mismatch, remembered, retry,
};
use selfsame_core::{
    Ask, Claimed, Fenced, Inspect, Recorded, Recover, Release, State, Store, StoreError,
    StoreErrorKind,
};
use tokio::sync::Semaphore;

use crate::redis::key;
use crate::shared_waits::node;
use crate::support::{
    SplitBench, claim, complete, expect_replay, is_completed, known, record, run,
};

/// Expects that no new key is taken because of a loss, and returns for how long: a lease, or longer if the
/// process that noticed the loss first knew of none.
fn expect_closed(claimed: Result<Claimed, StoreError>) -> Duration {
    let error = claimed.expect_err("it may have run");
    assert_eq!(error.kind(), StoreErrorKind::RecordsLost, "{error}");
    assert!(error.is_retryable() && error.to_string().contains("lost records"), "{error}");
    error.retries_after().expect("it is told")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_lost_and_new_keys_are_refused_for_a_lease() {
    let bench = SplitBench::new();
    let (first, second) = (bench.store().await, bench.store().await);
    complete(&first, &ask("done")).await;
    run(&first, &ask("begun")).await;
    bench.forget();
    let mut closed_for = Duration::ZERO;
    for store in [&first, &second] {
        expect_replay(store, &retry(&ask("done")), "done").await;
        assert_eq!(claim(store, &mismatch(&ask("done"))).await, Claimed::Reused);
        expect_closed(store.claim(&retry(&ask("begun"))).await);
        closed_for = closed_for.max(expect_closed(store.claim(&ask("new")).await));
    }
    bench.pass(closed_for + MARGIN).await;
    for store in [&first, &second] {
        expect_replay(store, &retry(&ask("done")), "done").await;
    }
    complete(&second, &ask("new")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_there_again_before_new_keys_are_taken() {
    let bench = SplitBench::new();
    let (first, second) = (bench.store().await, bench.store().await);
    let begun = Ask { recover: Recover::Hold, ..ask("begun") };
    let lease = run(&first, &begun).await;
    let saved = first.checkpoint(&lease, &checkpoint("paid")).await;
    assert_eq!(saved.expect("the store works"), Fenced::Applied);
    bench.forget();
    // For longer than a lease.
    for _ in 0..4 {
        let other = second.claim(&retry(&begun)).await;
        assert!(matches!(other, Err(_) | Ok(Claimed::Busy { .. })), "{other:?}");
        assert_eq!(first.renew(&lease).await.expect("the store works"), Fenced::Applied);
        bench.pass(LEASE / 2).await;
    }
    assert!(matches!(claim(&second, &retry(&begun)).await, Claimed::Busy { .. }));
    assert_eq!(known(&second, &begun.id).await.checkpoint, Some(checkpoint("paid")));
    record(&first, &lease, "done").await;
    expect_replay(&second, &retry(&begun), "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ran_when_redis_forgot_can_still_be_held_or_freed() {
    let bench = SplitBench::new();
    let store = bench.store().await;
    let (held, freed) = (ask("held"), ask("freed"));
    let leases = [run(&store, &held).await, run(&store, &freed).await];
    bench.forget();
    for (lease, release) in leases.iter().zip([Release::Hold, Release::Retry]) {
        let released = store.release(lease, release).await.expect("the store works");
        assert_eq!(released, Fenced::Applied);
    }
    assert_eq!(claim(&store, &retry(&held)).await, Claimed::Held { newly: false });
    expect_closed(store.claim(&retry(&freed)).await);
    bench.pass(LEASE + MARGIN).await;
    complete(&store, &retry(&freed)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_run_that_redis_forgot_is_recorded() {
    let bench = SplitBench::new();
    let (first, second) = (bench.store().await, bench.store().await);
    let begun = ask("begun");
    let lease = run(&first, &begun).await;
    bench.forget();
    record(&first, &lease, "done").await;
    record(&first, &lease, "done").await;
    expect_replay(&second, &retry(&begun), "done").await;
    // Both have noticed before the time passes for which no new key is taken.
    let mut closed_for = LEASE;
    for store in [&first, &second] {
        closed_for = closed_for.max(expect_closed(store.claim(&ask("refused")).await));
    }
    // What was renewed is not known by heart, and read again.
    let renewed = ask("renewed");
    bench.pass(closed_for + MARGIN).await;
    let lease = run(&first, &renewed).await;
    assert_eq!(first.renew(&lease).await.expect("the store works"), Fenced::Applied);
    bench.forget();
    record(&first, &lease, "done").await;
    expect_replay(&second, &retry(&renewed), "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_loss_is_accepted_a_rival_may_run_and_the_first_answer_counts() {
    let bench = SplitBench::new();
    let (first, second) = (bench.careless().await, bench.careless().await);
    for (name, is_first_first) in [("a", true), ("b", false)] {
        let begun = ask(name);
        let lease = run(&first, &begun).await;
        bench.forget();
        // The second effect.
        let rival = run(&second, &retry(&begun)).await;
        let [(early, its_lease), (late, its_late_lease)] = match is_first_first {
            true => [(&first, &lease), (&second, &rival)],
            false => [(&second, &rival), (&first, &lease)],
        };
        record(early, its_lease, "early").await;
        let lost = late.complete(its_late_lease, &answer("late")).await.expect("the store works");
        assert_eq!(lost, Recorded::Lost);
        for store in [&first, &second] {
            let State::Completed { answer: told, .. } = known(store, &begun.id).await.state else {
                panic!("it is finished");
            };
            assert_eq!(told, answer("early"));
            expect_replay(store, &retry(&begun), "early").await;
        }
    }
    let count = first.count().await.expect("the store works");
    assert_eq!((count.completed, count.claimed), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_clients_are_told_the_answer_that_counts() {
    let bench = SplitBench::new();
    let (first, second) = (node(bench.careless().await).await, node(bench.careless().await).await);
    let (gate, effects) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let call = async |node: &Idempotency, body: &'static str| {
        let (gate, effects) = (gate.clone(), effects.clone());
        let work = move |_| async move {
            effects.fetch_add(1, Ordering::Relaxed);
            if body == "first's" {
                gate.acquire().await.expect("never closed").forget();
            }
            Ok::<_, String>(body.to_owned())
        };
        let key = Key::parse(b"k").expect("a key");
        node.once("charge", key).run(work).await.expect("it is told something")
    };
    let rival = async {
        while effects.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bench.forget();
        let told = call(&second, "rival's").await;
        gate.add_permits(1);
        told
    };
    let (runs, rival) = join(call(&first, "first's"), rival).await;
    assert_eq!(effects.load(Ordering::Relaxed), 2, "both ran");
    assert_eq!((runs, rival), ("rival's".to_owned(), "rival's".to_owned()), "it ended first");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_key_had_is_found_again_in_the_database() {
    let bench = SplitBench::new();
    let store = bench.careless().await;
    let mut named = ask("named");
    named.label.tenant_name = Some("no\0ne".into());
    let long = Ask { retention: Duration::from_secs(20 * 365 * 24 * 60 * 60), ..ask("long") };
    let again = ask("again");
    let lease = run(&store, &again).await;
    let released = store.release(&lease, Release::Retry).await.expect("the store works");
    assert_eq!(released, Fenced::Applied);
    for ask in [&named, &long, &again, &kept("kept"), &remembered("remembered")] {
        let ask = retry(ask);
        complete(&store, &ask).await;
        let before = known(&store, &ask.id).await;
        bench.forget();
        let after = known(&store, &ask.id).await;
        assert!(is_completed(&after));
        let same = |record: &selfsame_core::Record| {
            (
                (record.fingerprint, record.fence, record.attempt, record.attempt_id),
                (record.birth, record.recover, record.retention, record.remember),
                (record.label.key.clone(), record.label.route.clone(), record.keepsake.clone()),
            )
        };
        assert_eq!(same(&after), same(&before));
        for (after, before) in
            [(after.created_at, before.created_at), (after.expires_at, before.expires_at)]
        {
            let apart = after.as_millis().abs_diff(before.as_millis());
            assert!(apart < 5000, "{after:?} and {before:?}");
        }
        expect_replay(&store, &retry(&ask), "done").await;
    }
    bench.pass(RETENTION + MARGIN).await;
    assert_eq!(claim(&store, &retry(&ask("remembered"))).await, Claimed::Expired);
    complete(&store, &retry(&ask("kept"))).await;
    expect_replay(&store, &retry(&long), "done").await;
}

/// The store dies after PostgreSQL has the answer and before Redis has it.
async fn die_between(bench: &SplitBench, ask: &Ask) {
    let store = bench.store().await;
    let lease = run(&store, ask).await;
    bench.locks.command(&["copy", &key(ask), "before", "replace"]);
    record(&store, &lease, "done").await;
    bench.locks.command(&["copy", "before", &key(ask), "replace"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_before_redis_knows_its_answer_leaves_it_to_be_found() {
    let bench = SplitBench::new();
    let (resumed, held) = (ask("resumed"), Ask { recover: Recover::Hold, ..ask("held") });
    for ask in [&resumed, &held] {
        die_between(&bench, ask).await;
    }
    let store = bench.store().await;
    assert!(matches!(claim(&store, &retry(&resumed)).await, Claimed::Busy { .. }));
    assert!(is_completed(&known(&store, &resumed.id).await), "it is not asked whether it runs");
    bench.pass(LEASE + MARGIN).await;
    let locks = bench.locks.store().await;
    for ask in [&resumed, &held] {
        expect_replay(&store, &retry(ask), "done").await;
        assert!(is_completed(&known(&locks, &ask.id).await), "Redis knows it again");
    }
    assert_eq!(store.find(&selfsame_core::Find::Held, 10).await.expect("it works"), []);
}
