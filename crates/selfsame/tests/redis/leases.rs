//! Leases of many runs, renewed over a connection of their own.

use std::sync::Arc;
use std::time::Duration;

use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_core::conformance::samples::ask;
use selfsame_core::{Ask, Fenced, Lease, Store};
use selfsame_test_redis::Server;
use tokio::time::Instant;

use crate::relay::Relay;
use crate::shared_leases;
use crate::support::{RedisBench, run, unverified};

/// Leases that are shorter than two time-outs of a call.
const SHORT: [Duration; 3] =
    [Duration::from_secs(3), Duration::from_secs(4), Duration::from_secs(8)];

/// One run for each of those.
async fn short_runs(store: &RedisStore) -> Vec<Lease> {
    let mut leases = Vec::new();
    for lease in SHORT {
        leases.push(run(store, &Ask { lease, ..ask(&format!("{lease:?}")) }).await);
    }
    leases
}

/// A renewal fails before its lease ends, also where answers are slow because the machine has much to do.
async fn expect_failure_in_time(store: &RedisStore, lease: &Lease) {
    let begun = Instant::now();
    store.renew(lease).await.expect_err("nobody answers");
    let (took, length) = (begun.elapsed(), lease.length);
    assert!(took < length, "{took:?} of {length:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_over_a_dead_connection_is_tried_again_before_the_lease_ends() {
    let server = Server::start();
    let relay = Relay::to(&server);
    let store = RedisStore::open(&relay.url(), RedisOptions::default()).await.expect("it is open");
    let leases = short_runs(&store).await;
    for lease in &leases {
        assert_eq!(store.renew(lease).await.expect("it works"), Fenced::Applied);
        relay.kill_silently();
        expect_failure_in_time(&store, lease).await;
        let renewed = store.renew(lease).await.expect("another connection is made");
        assert_eq!(renewed, Fenced::Applied);
    }
}

/// A connection that is slow is not taken for a dead one: another would be as slow, and late.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_over_a_slow_connection_is_waited_for() {
    let server = Server::start();
    let relay = Relay::to(&server);
    let store = RedisStore::open(&relay.url(), unverified()).await.expect("it is open");
    let length = Duration::from_secs(3);
    let lease = run(&store, &Ask { lease: length, ..ask("k") }).await;
    let delay = length / 5;
    relay.slow_down(delay);
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(store.renew(&lease).await.expect("it is waited for"), Fenced::Applied);
        assert!(begun.elapsed() >= delay, "answers are slow");
    }
}

/// Where there are several servers, the call itself asks another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_waits_for_a_part_of_its_lease_only() {
    let server = Server::start();
    let store = RedisStore::open(&server.url(0), unverified()).await.expect("it is open");
    let lease = run(&store, &Ask { lease: SHORT[0], ..ask("k") }).await;
    assert_eq!(store.renew(&lease).await.expect("it works"), Fenced::Applied);
    server.signal("STOP");
    expect_failure_in_time(&store, &lease).await;
    server.signal("CONT");
}

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
