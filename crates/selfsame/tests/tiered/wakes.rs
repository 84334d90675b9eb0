//! Those who wait on one node for a run on another.

use std::time::Duration;

use selfsame::OnceError;
use tokio::time::sleep;

use crate::postgres::{DATABASE, PostgresBench, SERVER};
use crate::shared_waits::{SOON, ended_elsewhere, node};
use crate::support::{Tiered, away, cache, there};

/// Waits until two processes listen at the database, too.
async fn until_listening(schema: &str) {
    let sql = format!(
        "select count(*) from pg_stat_activity where query like 'listen {schema};%' \
         and state = 'idle'"
    );
    while SERVER.sql(DATABASE, &sql) != "2" {
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_wakes_by_the_cache_when_the_run_ends_on_another_node() {
    let redis = cache();
    let bench = Tiered::new(PostgresBench::new(), away);
    let open = async || bench.store_at(&redis.url(0), Duration::from_secs(1)).await;
    let (first, second) = (node(open().await).await, node(open().await).await);
    while redis.command(0, &["pubsub", "numsub", "selfsame:bell:0"]) != "selfsame:bell:0\n2" {
        sleep(Duration::from_millis(20)).await;
    }
    let (runs, waits, later) = ended_elsewhere(&first, &second, Ok("by the first")).await;
    assert_eq!(runs.expect("it runs"), "by the first");
    assert_eq!(waits.expect("it waits"), "by the first");
    assert!(later < SOON, "{later:?}");
    let asked = redis.command(0, &["info", "commandstats"]);
    assert!(asked.contains("cmdstat_publish"), "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_runs_when_another_node_frees_the_key() {
    let bench = Tiered::new(PostgresBench::new(), there);
    let (first, second) = (node(bench.store().await).await, node(bench.store().await).await);
    until_listening(&bench.durable.schema).await;
    let (runs, waits, later) = ended_elsewhere(&first, &second, Err("no luck")).await;
    assert!(matches!(runs, Err(OnceError::Failed("no luck"))));
    assert_eq!(waits.expect("it runs"), "by the second");
    assert!(later < SOON, "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_cache_a_waiter_wakes_by_the_durable_store() {
    let bench = Tiered::new(PostgresBench::new(), away);
    let (first, second) = (node(bench.store().await).await, node(bench.store().await).await);
    until_listening(&bench.durable.schema).await;
    let (runs, waits, later) = ended_elsewhere(&first, &second, Ok("by the first")).await;
    assert_eq!(runs.expect("it runs"), "by the first");
    assert_eq!(waits.expect("it waits"), "by the first");
    assert!(later < SOON, "{later:?}");
}
