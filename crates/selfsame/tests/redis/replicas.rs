//! Claims and answers that count once replicas have them.

use std::time::Duration;

use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Ask, Claimed, Recorded, Store, StoreErrorKind};
use selfsame_test_redis::Server;
use tokio::time::sleep;

use crate::support::{key, run};

/// A master and its replica, and a store that waits for it.
async fn pair() -> (Server, Server, RedisStore) {
    let master = Server::start();
    let replica = Server::start_with(&[&format!("replicaof 127.0.0.1 {}", master.port())]);
    while !replica.command(0, &["role"]).contains("connected") {
        sleep(Duration::from_millis(50)).await;
    }
    let options = RedisOptions::default().wait_replicas(1).time_out(Duration::from_secs(4));
    let store = RedisStore::open(&master.url(0), options).await.expect("a master");
    (master, replica, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_counts_is_on_the_replica() {
    let (_master, replica, store) = pair().await;
    for number in 0..50 {
        let ask = ask(&format!("k-{number}"));
        let lease = run(&store, &ask).await;
        assert_eq!(replica.command(0, &["exists", &key(&ask)]), "1");
        let before = replica.command(0, &["strlen", &key(&ask)]);
        let recorded = store.complete(&lease, &answer("done")).await.expect("it works");
        assert!(matches!(recorded, Recorded::Until(_)));
        assert_ne!(replica.command(0, &["strlen", &key(&ask)]), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_replica_has_not_got_may_have_landed_and_is_found_when_asked_again() {
    let (master, replica, store) = pair().await;
    // Leases that no slow machine outlasts.
    let lease = Duration::from_secs(600);
    let before = run(&store, &Ask { lease, ..ask("before") }).await;
    replica.signal("STOP");
    let unheard = Ask { lease, ..ask("unheard") };
    // Once is enough, unless the machine is too slow to send it in time.
    while master.command(0, &["exists", &key(&unheard)]) != "1" {
        let error = store.claim(&unheard).await.expect_err("the replica has not got it");
        assert_eq!(error.kind(), StoreErrorKind::MayHaveLanded, "{error}");
    }
    let done = answer("done");
    for _ in 0..2 {
        let error = store.complete(&before, &done).await.expect_err("nor this, also at a retry");
        assert_eq!(error.kind(), StoreErrorKind::MayHaveLanded, "{error}");
    }
    // Nobody else runs it meanwhile.
    let rival = store.claim(&retry(&unheard)).await.expect("nothing is written");
    assert!(matches!(rival, Claimed::Busy { .. }), "{rival:?}");
    replica.signal("CONT");
    run(&store, &unheard).await;
    let recorded = store.complete(&before, &done).await.expect("it works");
    assert!(matches!(recorded, Recorded::Until(_)));
}
