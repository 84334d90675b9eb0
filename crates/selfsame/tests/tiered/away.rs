//! Redis goes away, hangs or forgets under load: nothing runs twice, no call fails, and it is used again.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame::stores::TieredStore;
use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Claimed, Recorded, Store};
use selfsame_test_redis::Server;
use tokio::time::{Instant, sleep, timeout};

use crate::postgres::PostgresBench;
use crate::support::{Tiered, away, cache, complete};

const CALLERS: usize = 20;

/// How long a call may take: the cache's 100 ms, the database's own time, and a machine with much to do.
const CALL_MAX: Duration = Duration::from_secs(20);

/// Three nodes over one database, and a Redis of their own.
struct Nodes {
    bench: Tiered<PostgresBench>,
    redis: Server,
    stores: [TieredStore; 3],
}

/// How often work was done, by key.
#[derive(Default)]
struct Effects {
    of: Mutex<HashMap<String, usize>>,
    replays: AtomicUsize,
    is_over: AtomicBool,
}

impl Nodes {
    async fn start() -> Self {
        let (bench, redis) = (Tiered::new(PostgresBench::new(), away), cache());
        let open = async || bench.store_at(&redis.url(0), Duration::from_millis(100)).await;
        let stores = [open().await, open().await, open().await];
        Self { bench, redis, stores }
    }

    /// Rivals go on, on all nodes, while `trouble` is made; then all is as it must be.
    async fn bear(self, trouble: impl AsyncFnOnce(Server) -> Server) -> Self {
        let effects = Effects::default();
        let Self { bench, redis, stores } = self;
        let callers = (0..CALLERS).map(|caller| {
            let (effects, stores) = (&effects, &stores);
            async move {
                for at in 0.. {
                    let key = format!("k-{caller}-{at}");
                    join_all(stores.iter().map(|store| rival(store, effects, &key))).await;
                    if effects.is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
        let trouble = async {
            sleep(Duration::from_millis(300)).await;
            let redis = trouble(redis).await;
            sleep(Duration::from_millis(300)).await;
            effects.is_over.store(true, Ordering::Relaxed);
            redis
        };
        let (_, redis) = join(join_all(callers), trouble).await;
        let effects_of = effects.of.into_inner().expect("no panic holds it");
        assert!(effects_of.len() > CALLERS, "they went on: {}", effects_of.len());
        assert!(effects.replays.load(Ordering::Relaxed) > CALLERS);
        assert!(effects_of.values().all(|times| *times == 1), "{effects_of:?}");
        Self { bench, redis, stores }
    }

    /// Waits until the cache is used again.
    async fn expect_used(&self) {
        let begun = Instant::now();
        for at in 0.. {
            for (node, store) in self.stores.iter().enumerate() {
                complete(store, &ask(&format!("after-{node}-{at}"))).await;
            }
            let entries = self.redis.command(0, &["keys", "selfsame:{0}:cache:*"]);
            if entries.lines().count() >= 9 {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it is not used again");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A caller that claims, works and records. Its key may be another's, and no call may fail.
async fn rival(store: &TieredStore, effects: &Effects, key: &str) {
    let first = ask(key);
    loop {
        let claimed = timeout(CALL_MAX, store.claim(&retry(&first))).await;
        match claimed.expect("no call hangs").expect("no call fails") {
            Claimed::Run(grant) => {
                *effects.of.lock().expect("no panic holds it").entry(key.into()).or_default() += 1;
                sleep(Duration::from_millis(5)).await;
                let answer = answer(key.to_owned());
                let recorded = timeout(CALL_MAX, store.complete(&grant.lease, &answer)).await;
                let recorded = recorded.expect("no call hangs");
                assert!(matches!(recorded, Ok(Recorded::Until(_))), "{recorded:?}");
                return;
            }
            Claimed::Replay(replay) => {
                assert_eq!(replay.answer, answer(key.to_owned()));
                effects.replays.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Claimed::Busy { .. } => sleep(Duration::from_millis(5)).await,
            other => panic!("{other:?}"),
        }
    }
}

/// Stops or starts the server on another thread: callers go on meanwhile.
async fn beside_callers(mut redis: Server, act: fn(&mut Server)) -> Server {
    let acting = tokio::task::spawn_blocking(move || {
        act(&mut redis);
        redis
    });
    acting.await.expect("it does as it is told")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_redis_costs_nothing_but_time() {
    let nodes = Nodes::start().await;
    let nodes = nodes
        .bear(async |redis| {
            let redis = beside_callers(redis, Server::crash).await;
            sleep(Duration::from_secs(1)).await;
            let redis = beside_callers(redis, Server::start_again).await;
            sleep(Duration::from_millis(700)).await;
            let redis = beside_callers(redis, Server::crash).await;
            beside_callers(redis, Server::start_again).await
        })
        .await;
    nodes.expect_used().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_hangs_costs_nothing_but_time() {
    let nodes = Nodes::start().await;
    let nodes = nodes
        .bear(async |redis| {
            for _ in 0..2 {
                redis.signal("STOP");
                sleep(Duration::from_secs(1)).await;
                redis.signal("CONT");
                sleep(Duration::from_millis(500)).await;
            }
            redis
        })
        .await;
    nodes.expect_used().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_forgets_everything_costs_nothing_but_time() {
    let nodes = Nodes::start().await;
    let nodes = nodes
        .bear(async |redis| {
            for _ in 0..50 {
                redis.command(0, &["flushall"]);
                sleep(Duration::from_millis(10)).await;
            }
            redis
        })
        .await;
    nodes.expect_used().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_that_does_not_reach_redis_and_two_that_do_agree() {
    let mut nodes = Nodes::start().await;
    let split_off = nodes.bench.store().await;
    nodes.stores[1] = split_off;
    let _nodes = nodes
        .bear(async |redis| {
            sleep(Duration::from_secs(1)).await;
            redis
        })
        .await;
}
