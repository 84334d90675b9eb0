//! What was erased is not replayed by the cache.

use std::time::Duration;

use selfsame::stores::TieredStore;
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{MARGIN, answer, ask, retry};
use selfsame_core::{Ask, Claimed, Erased, Inspect, Recorded, Store};
use tokio::time::{Instant, sleep};

use crate::postgres::PostgresBench;
use crate::support::{Tiered, away, cache, complete, run, there};

async fn claimed(store: &TieredStore, first: &Ask) -> Claimed {
    store.claim(&retry(first)).await.expect("the store works")
}

async fn erase(store: &TieredStore, first: &Ask) {
    let erased = store.erase(&[first.id]).await.expect("the store works");
    assert_eq!(erased, [Erased::Done]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_on_one_node_counts_on_all_at_once() {
    let bench = Tiered::new(PostgresBench::new(), there);
    let (first, second) = (bench.store().await, bench.store().await);
    for at in 0..20 {
        let ask = ask(&format!("k-{at}"));
        complete(&first, &ask).await;
        assert!(matches!(claimed(&second, &ask).await, Claimed::Replay(_)));
        erase(&second, &ask).await;
        assert_eq!(claimed(&first, &ask).await, Claimed::Expired);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_late_to_the_cache_stays_erased() {
    let bench = Tiered::new(PostgresBench::new(), away);
    let redis = cache();
    let open = async || bench.store_at(&redis.url(0), Duration::from_millis(100)).await;
    let (owner, eraser) = (open().await, open().await);
    let ask = ask("k");
    let lease = run(&owner, &ask).await;
    // Its answer waits in a connection until Redis goes on, which is behind the erasure.
    redis.signal("STOP");
    let recorded = owner.complete(&lease, &answer("personal")).await.expect("it is durable");
    assert!(matches!(recorded, Recorded::Until(_)));
    // Nobody waits for Redis, which is stopped.
    erase(&eraser, &ask).await;
    redis.signal("CONT");
    let begun = Instant::now();
    loop {
        let keys = redis.command(0, &["keys", "selfsame:{0}:cache:*"]);
        let value = redis.command(0, &["get", &keys]);
        // A mark is in the place of the answer.
        if value.starts_with("SC\u{1}\u{4}") {
            assert!(!value.contains("personal"));
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{value:?}");
        sleep(Duration::from_millis(20)).await;
    }
    for store in [&owner, &eraser, &open().await] {
        assert_eq!(claimed(store, &ask).await, Claimed::Expired);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_that_the_cache_never_hears_of_counts_everywhere_ten_minutes_later() {
    let bench = Tiered::new(PostgresBench::new(), away);
    let redis = cache();
    let owner = bench.store_at(&redis.url(0), Duration::from_secs(5)).await;
    let eraser = bench.store().await;
    let ask = ask("k");
    complete(&owner, &ask).await;
    erase(&eraser, &ask).await;
    assert_eq!(claimed(&eraser, &ask).await, Claimed::Expired);
    assert!(matches!(claimed(&owner, &ask).await, Claimed::Replay(_)), "so docs/TIERED.md says");
    bench.pass(Duration::from_secs(600) + MARGIN).await;
    assert_eq!(claimed(&owner, &ask).await, Claimed::Expired);
}
