//! A Redis that has no memory left answers for the keys it knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_core::conformance::samples::{
    LEASE, MARGIN, RETENTION, ask, mismatch, remembered, retry,
};
use selfsame_core::{Ask, Claimed, Release, Store};
use selfsame_test_redis::Server;
use tokio::time::sleep;

use crate::support::{complete, run};

/// Longer than the time of Redis is carried on by our own clock: then a script claims.
const STALE: Duration = Duration::from_millis(1100);

#[tokio::test(flavor = "multi_thread")]
async fn known_keys_are_answered_at_maxmemory_and_nothing_runs() {
    let server = Server::start();
    let ahead = Arc::new(AtomicU64::new(0));
    let options = RedisOptions::default().settle(Duration::ZERO).ahead_ms(ahead.clone());
    let store = RedisStore::open(&server.url(0), options).await.expect("it is open to all");
    let pass = |time: Duration| {
        ahead.fetch_add(u64::try_from(time.as_millis()).expect("short"), Ordering::SeqCst);
    };
    let (done, running, held) = (ask("done"), ask("running"), ask("held"));
    let (expired, failed, dead) = (remembered("expired"), ask("failed"), ask("dead"));
    complete(&store, &expired).await;
    pass(RETENTION + MARGIN);
    run(&store, &dead).await;
    pass(LEASE + MARGIN);
    complete(&store, &done).await;
    for (ask, release) in [(&held, Release::Hold), (&failed, Release::Retry)] {
        let lease = run(&store, ask).await;
        let _released = store.release(&lease, release).await.expect("there is memory");
    }
    run(&store, &running).await;
    server.command(0, &["config", "set", "maxmemory", "1"]);
    for pause in [Duration::ZERO, STALE] {
        sleep(pause).await;
        let claim = async |ask: Ask| store.claim(&ask).await.expect("a known key needs no memory");
        assert!(matches!(claim(retry(&done)).await, Claimed::Replay(_)));
        assert_eq!(claim(mismatch(&done)).await, Claimed::Reused);
        assert!(matches!(claim(retry(&running)).await, Claimed::Busy { .. }));
        assert_eq!(claim(retry(&held)).await, Claimed::Held { newly: false });
        assert_eq!(claim(retry(&expired)).await, Claimed::Expired);
        for ask in [&ask("new"), &retry(&failed), &retry(&dead), &running] {
            let error = store.claim(ask).await.expect_err("it would have to be written");
            assert!(error.is_retryable() && error.to_string().contains("OOM"), "{error}");
        }
    }
    server.command(0, &["config", "set", "maxmemory", "0"]);
    for ask in [&ask("new"), &retry(&failed), &retry(&dead)] {
        complete(&store, ask).await;
    }
}
