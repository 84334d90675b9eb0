//! Stores of several processes: exactly one of many rivals runs, and who waits is woken.

use std::time::Duration;

use futures_util::future::join_all;
use selfsame::{Key, OnceError, Run};
use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Claimed, Recorded, Store};
use tokio::time::sleep;

use crate::shared_rivals::{self, Nodes};
use crate::shared_waits::{SOON, ended_elsewhere, node};
use crate::support::{SplitBench, claim};

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_rivals_runs_through_all_of_a_keys_life() {
    shared_rivals::one_of_many_rivals_runs_through_all_of_a_keys_life(
        &Nodes::start(SplitBench::new()).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_and_rivals_meet_at_the_end_of_a_keys_life() {
    shared_rivals::a_sweep_and_rivals_meet_at_the_end_of_a_keys_life(
        &Nodes::start(SplitBench::new()).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_and_a_hold_meet() {
    shared_rivals::a_checkpoint_and_a_hold_meet(&Nodes::start(SplitBench::new()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_decisions_counts() {
    shared_rivals::one_of_many_decisions_counts(&Nodes::start(SplitBench::new()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_rivals_on_each_of_three_nodes_one_runs_and_all_are_told_its_answer() {
    let bench = SplitBench::new();
    let stores = [bench.store().await, bench.store().await, bench.store().await];
    let first = ask("k");
    let rivals = stores.iter().flat_map(|store| {
        let first = &first;
        (0..50).map(move |_| async move {
            loop {
                match claim(store, &retry(first)).await {
                    Claimed::Run(grant) => {
                        sleep(Duration::from_millis(20)).await;
                        let done = store.complete(&grant.lease, &answer("done")).await;
                        assert!(matches!(done, Ok(Recorded::Until(_))), "{done:?}");
                        return 1;
                    }
                    Claimed::Replay(replay) => {
                        assert_eq!(replay.answer, answer("done"));
                        return 0;
                    }
                    Claimed::Busy { .. } => sleep(Duration::from_millis(5)).await,
                    other => panic!("{other:?}"),
                }
            }
        })
    });
    assert_eq!(join_all(rivals).await.into_iter().sum::<usize>(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_wakes_when_the_run_ends_on_another_node() {
    let bench = SplitBench::new();
    let (first, second) = (node(bench.store().await).await, node(bench.store().await).await);
    let bell = format!("selfsame:bell:{}", bench.locks.database);
    while bench.locks.command(&["pubsub", "numsub", &bell]) != format!("{bell}\n2") {
        sleep(Duration::from_millis(20)).await;
    }
    let (runs, waits, later) = ended_elsewhere(&first, &second, Ok("by the first")).await;
    assert_eq!(runs.expect("it runs"), "by the first");
    assert_eq!(waits.expect("it waits"), "by the first");
    assert!(later < SOON, "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_phases_where_claims_are_not_in_the_database() {
    let node = node(SplitBench::new().store().await).await;
    let work = |run: Run| async move { run.phases().await.map(drop).map_err(|e| e.to_string()) };
    let key = Key::parse(b"k").expect("a key");
    let told = node.once("charge", key).run(work).await;
    let Err(OnceError::Failed(error)) = told else { panic!("there is no journal") };
    assert!(error.contains("need a PostgresStore with the claims in it"), "{error}");
}
