//! A cache that is a cluster.

use std::time::Duration;

use selfsame_core::conformance::samples::{ask, retry};
use selfsame_core::{Claimed, Store};
use selfsame_test_redis::Cluster;
use tokio::time::{Instant, sleep};

use crate::postgres::PostgresBench;
use crate::support::{Tiered, away, complete};

/// How many entries the servers have.
fn entries(cluster: &Cluster) -> usize {
    let masters = cluster.masters();
    let keys = masters.iter().map(|at| cluster.server(*at).command(0, &["keys", "*:cache:*"]));
    keys.map(|keys| keys.lines().filter(|key| !key.is_empty()).count()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_lie_in_a_cluster_and_one_that_loses_a_master_costs_nothing_but_time() {
    let mut cluster = Cluster::start_with(&["appendonly no", "maxmemory-policy allkeys-lru"]);
    let bench = Tiered::new(PostgresBench::new(), away);
    let first = bench.store_at(&cluster.url(), Duration::from_secs(1)).await;
    let second = bench.store_at(&cluster.url(), Duration::from_secs(1)).await;
    for at in 0..60 {
        complete(&first, &ask(&format!("k-{at}"))).await;
    }
    assert_eq!(entries(&cluster), 60);
    for at in cluster.masters() {
        let keys = cluster.server(at).command(0, &["keys", "*:cache:*"]);
        assert!(!keys.is_empty(), "they are spread");
    }
    let [lost, ..] = cluster.masters()[..] else { panic!("there are masters") };
    cluster.server_mut(lost).crash();
    let begun = Instant::now();
    for at in 0..60 {
        let replay = second.claim(&retry(&ask(&format!("k-{at}")))).await.expect("no call fails");
        assert!(matches!(replay, Claimed::Replay(_)), "{replay:?}");
        complete(&first, &ask(&format!("new-{at}"))).await;
    }
    let taken = begun.elapsed();
    cluster.server_mut(lost).start_again();
    cluster.wait_until_whole();
    for at in 0.. {
        let before = entries(&cluster);
        for key in 0..20 {
            complete(&second, &ask(&format!("after-{at}-{key}"))).await;
        }
        if entries(&cluster) == before + 20 {
            break;
        }
        assert!(begun.elapsed() < taken + Duration::from_secs(60), "it is not used again");
        sleep(Duration::from_millis(200)).await;
    }
}
