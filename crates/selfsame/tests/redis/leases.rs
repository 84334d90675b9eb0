//! Leases of many runs, renewed over a connection of their own.

use std::sync::Arc;

use crate::shared_leases;
use crate::support::RedisBench;

#[tokio::test(flavor = "multi_thread")]
async fn no_lease_is_lost_of_many_runs() {
    let bench = RedisBench::new();
    let (here, there) = (bench.store().await, bench.store().await);
    shared_leases::are_kept(Arc::new(here), Arc::new(there)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_blocks_its_thread_keeps_its_lease() {
    let bench = Arc::new(RedisBench::new());
    shared_leases::is_kept_by_who_blocks(move || {
        let bench = bench.clone();
        async move { bench.store().await }
    })
    .await;
}
