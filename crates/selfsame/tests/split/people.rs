//! What people decide and erase is so in both, whichever forgets.

use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{LEASE, MARGIN, answer, ask, retry};
use selfsame_core::{
    Ask, Claimed, Erased, Fenced, Find, Inspect, Record, Recover, Release, Resolution, Resolved,
    Store,
};

use crate::support::{SplitBench, claim, complete, expect_replay, known, run};
use selfsame::stores::SplitStore;

async fn held(store: &SplitStore, name: &str) -> Record {
    let ask = ask(name);
    let lease = run(store, &ask).await;
    let released = store.release(&lease, Release::Hold).await.expect("the store works");
    assert_eq!(released, Fenced::Applied);
    known(store, &ask.id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_outlives_a_redis_that_forgets() {
    let bench = SplitBench::new();
    let store = bench.careless().await;
    let record = held(&store, "k").await;
    let decision = Resolution::complete(answer("by hand"));
    let decide = async || store.resolve(&record.id, record.fence, &decision).await;
    assert_eq!(decide().await.expect("it works"), Resolved::Done);
    assert_eq!(decide().await.expect("it works"), Resolved::NotHeld);
    bench.forget();
    expect_replay(&store, &retry(&ask("k")), "by hand").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_erased_is_gone_from_both() {
    let bench = SplitBench::new();
    let store = bench.careless().await;
    let (done, forgotten, running) = (ask("done"), ask("forgotten"), ask("running"));
    complete(&store, &forgotten).await;
    bench.forget();
    complete(&store, &done).await;
    run(&store, &running).await;
    let ids = [done.id, forgotten.id, running.id, ask("unknown").id];
    let erased = store.erase(&ids).await.expect("the store works");
    assert_eq!(erased, [Erased::Done, Erased::Done, Erased::Running, Erased::Missing]);
    assert_eq!(claim(&store, &retry(&done)).await, Claimed::Expired);
    bench.forget();
    for ask in [&done, &forgotten] {
        assert_eq!(claim(&store, &retry(ask)).await, Claimed::Expired);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_claimed_before_the_lock_moved_is_still_known() {
    let bench = SplitBench::new();
    let before = bench.answers.store().await;
    let [done, running, dead, failed] = ["done", "running", "dead", "failed"].map(ask);
    let dead = Ask { recover: Recover::Hold, ..dead };
    crate::postgres::complete(&before, &done).await;
    crate::postgres::run(&before, &dead).await;
    let lease = crate::postgres::run(&before, &failed).await;
    let freed = before.release(&lease, Release::Retry).await.expect("the store works");
    assert_eq!(freed, Fenced::Applied);
    bench.pass(LEASE + MARGIN).await;
    crate::postgres::run(&before, &running).await;
    drop(before);

    let store = bench.store().await;
    expect_replay(&store, &retry(&done), "done").await;
    assert!(matches!(claim(&store, &retry(&running)).await, Claimed::Busy { .. }));
    assert!(matches!(claim(&store, &retry(&dead)).await, Claimed::Held { .. }));
    complete(&store, &retry(&failed)).await;
    expect_replay(&store, &retry(&failed), "done").await;

    let held = store.find(&Find::Held, 10).await.expect("the store works");
    let [record] = &held[..] else { panic!("one waits for a person, not {held:?}") };
    let freed = store.resolve(&record.id, record.fence, &Resolution::free()).await;
    assert_eq!(freed.expect("the store works"), Resolved::Done);
    complete(&store, &retry(&dead)).await;
}
