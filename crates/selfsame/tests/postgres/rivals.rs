//! Stores of several processes: exactly one of many rivals runs.

use crate::shared_rivals::{self, Nodes};
use crate::support::PostgresBench;

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_rivals_runs_through_all_of_a_keys_life() {
    shared_rivals::one_of_many_rivals_runs_through_all_of_a_keys_life(
        &Nodes::start(PostgresBench::new()).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_and_rivals_meet_at_the_end_of_a_keys_life() {
    shared_rivals::a_sweep_and_rivals_meet_at_the_end_of_a_keys_life(
        &Nodes::start(PostgresBench::new()).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_and_a_hold_meet() {
    shared_rivals::a_checkpoint_and_a_hold_meet(&Nodes::start(PostgresBench::new()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_decisions_counts() {
    shared_rivals::one_of_many_decisions_counts(&Nodes::start(PostgresBench::new()).await).await;
}
