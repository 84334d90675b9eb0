//! Leases of many runs.

use selfsame_core::conformance::Bench;

use crate::postgres::PostgresBench;
use crate::shared_leases;
use crate::support::{Tiered, there};

#[tokio::test(flavor = "multi_thread")]
async fn no_lease_is_lost_of_many_runs() {
    let bench = Tiered::new(PostgresBench::new(), there);
    shared_leases::are_kept(bench.open().await, bench.open().await).await;
}
