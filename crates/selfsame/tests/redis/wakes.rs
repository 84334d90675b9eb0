//! Those who wait on one node for a run on another.

use std::time::Duration;

use selfsame::OnceError;
use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_test_redis::Server;
use tokio::time::sleep;

use crate::shared_waits::{SOON, ended_elsewhere, node};
use crate::support::{RedisBench, SERVER};

/// Waits until so many processes listen in `database`.
async fn until_listening(server: &Server, database: usize, count: usize) {
    let channel = format!("selfsame:bell:{database}");
    let said = format!("{channel}\n{count}");
    while server.command(0, &["pubsub", "numsub", &channel]) != said {
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_wakes_when_the_run_ends_on_another_node() {
    let bench = RedisBench::new();
    let (first, second) = (node(bench.store().await).await, node(bench.store().await).await);
    until_listening(&SERVER, bench.database, 2).await;
    let (runs, waits, later) = ended_elsewhere(&first, &second, Ok("by the first")).await;
    assert_eq!(runs.expect("it runs"), "by the first");
    assert_eq!(waits.expect("it waits"), "by the first");
    assert!(later < SOON, "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_runs_when_another_node_frees_the_key() {
    let bench = RedisBench::new();
    let (first, second) = (node(bench.store().await).await, node(bench.store().await).await);
    until_listening(&SERVER, bench.database, 2).await;
    let (runs, waits, later) = ended_elsewhere(&first, &second, Err("no luck")).await;
    assert!(matches!(runs, Err(OnceError::Failed("no luck"))));
    assert_eq!(waits.expect("it runs"), "by the second");
    assert!(later < SOON, "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wake_ups_come_again_after_redis_was_away() {
    let mut server = Server::start();
    let url = server.url(0);
    let open = || RedisStore::open(&url, RedisOptions::default());
    let first = node(open().await.expect("it is open to all")).await;
    let second = node(open().await.expect("it is open to all")).await;
    until_listening(&server, 0, 2).await;
    server.crash();
    server.start_again();
    until_listening(&server, 0, 2).await;
    let (runs, waits, later) = ended_elsewhere(&first, &second, Ok("by the first")).await;
    assert!(runs.is_ok() && waits.is_ok(), "{runs:?} {waits:?}");
    assert!(later < SOON, "{later:?}");
}
