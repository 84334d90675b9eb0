//! Leases of many runs.

use std::sync::Arc;

use crate::shared_leases;
use crate::support::SplitBench;

#[tokio::test(flavor = "multi_thread")]
async fn no_lease_is_lost_of_many_runs() {
    let bench = SplitBench::new();
    let (here, there) = (bench.store().await, bench.store().await);
    shared_leases::are_kept(Arc::new(here), Arc::new(there)).await;
}
