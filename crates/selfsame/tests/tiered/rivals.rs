//! Stores of several processes behind one cache: exactly one of many rivals runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use selfsame::{Key, OnConflict, OnceError, Policy};

use crate::postgres::PostgresBench;
use crate::shared_rivals::{self, Nodes};
use crate::shared_waits::node;
use crate::support::{Tiered, flushed, there};

async fn nodes() -> Nodes<Tiered<PostgresBench>> {
    Nodes::start(Tiered::new(PostgresBench::new(), there)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_rivals_runs_through_all_of_a_keys_life() {
    shared_rivals::one_of_many_rivals_runs_through_all_of_a_keys_life(&nodes().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_and_rivals_meet_at_the_end_of_a_keys_life() {
    shared_rivals::a_sweep_and_rivals_meet_at_the_end_of_a_keys_life(&nodes().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_and_a_hold_meet() {
    shared_rivals::a_checkpoint_and_a_hold_meet(&nodes().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_decisions_counts() {
    shared_rivals::one_of_many_decisions_counts(&nodes().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_rivals_on_each_of_three_nodes_have_one_effect() {
    for cache in [there, flushed] {
        let bench = Tiered::new(PostgresBench::new(), cache);
        let nodes = [bench.store().await, bench.store().await, bench.store().await];
        let nodes = join_all(nodes.map(node)).await;
        let effects = Arc::new(AtomicUsize::new(0));
        let waiting = Policy::new().on_conflict(OnConflict::Wait).wait_max(Duration::from_secs(30));
        let rivals = nodes.iter().flat_map(|node| {
            let (waiting, effects) = (&waiting, &effects);
            (0..50).map(move |_| {
                let key = Key::parse(b"k").expect("a key");
                let effects = effects.clone();
                let work = move |_| async move {
                    let effect = effects.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Ok::<_, &str>(effect)
                };
                node.once("charge", key).policy(waiting.clone()).run(work)
            })
        });
        let told: Vec<Result<usize, OnceError<&str>>> = join_all(rivals).await;
        assert_eq!(told.len(), 150);
        assert!(told.iter().all(|told| matches!(told, Ok(0))), "{told:?}");
        assert_eq!(effects.load(Ordering::SeqCst), 1);
    }
}
