//! What is checked before a store is used.

use std::time::Duration;

use selfsame::stores::{RedisOpenError, RedisOptions, RedisStore};
use selfsame_core::Store;
use selfsame_core::conformance::samples::{answer, ask};
use selfsame_test_redis::{Authority, Cluster, Server};

use crate::cluster::NO_FAILOVER;
use crate::support::{RedisBench, SERVER, USER, complete, make_user, run, unverified};

async fn refused(url: &str) -> RedisOpenError {
    let opened = RedisStore::open(url, RedisOptions::default()).await;
    opened.expect_err("it cannot be opened")
}

#[tokio::test]
async fn no_error_tells_a_password() {
    let url = SERVER.url_as("keys:correct-horse@", RedisBench::new().database);
    let store = RedisStore::open(&url, unverified()).await.expect("the password fits");
    assert!(!format!("{store:?}").contains("horse"), "{store:?}");
    let wrong = [
        url.replace("keys:correct", "nobody:correct"),
        url.replace("correct-horse", "wrong-horse"),
        url.replace("redis:", "mysql:"),
        url.replace(':', "!"),
        url.replace("127.0.0.1", "127.0.0.1:1"),
        format!("{url}?sslrootcert=/nowhere"),
        url.replace("redis:", "rediss:") + "?sslrootcert=/nowhere",
    ];
    for wrong in wrong {
        let error = refused(&wrong).await;
        assert!(!format!("{error} {error:?}").contains("horse"), "{error:?}");
    }
}

#[tokio::test]
async fn an_encrypted_connection_leads_to_the_right_server() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let server = Server::start_encrypted(&ours.server("localhost"));
    let trusting = |authority: &Authority, name: &str| {
        let file = server.keep(name, &authority.pem());
        format!("{}?sslrootcert={}", server.url(0), file.display())
    };
    let url = trusting(&ours, "ours.crt");
    let store = RedisStore::open(&url, RedisOptions::default()).await.expect("it is the right one");
    complete(&store, &ask("k")).await;
    for wrong in [
        trusting(&others, "others.crt"),
        server.url(0),
        url.replace("localhost", "127.0.0.1"),
        server.url(0).replace("rediss:", "redis:"),
    ] {
        let error = refused(&wrong).await;
        assert!(matches!(error, RedisOpenError::Connection { .. }), "{wrong}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_loses_records_is_refused_unless_that_is_accepted() {
    for (settings, told) in [
        (&["maxmemory-policy allkeys-lru"][..], "maxmemory-policy is allkeys-lru"),
        (&["maxmemory-policy volatile-ttl"], "maxmemory-policy is volatile-ttl"),
        (&["appendonly no"], "appendonly is no"),
        (&["appendfsync no"], "appendfsync is no"),
        (&["appendonly no", "maxmemory-policy allkeys-lfu"], "; appendonly is no"),
    ] {
        let server = Server::start_with(settings);
        let url = server.url(0);
        let error = refused(&url).await;
        assert!(matches!(error, RedisOpenError::Unsafe { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains(told) && error.contains("accept_loss"), "{error}");
        let opened = RedisStore::open(&url, RedisOptions::default().accept_unverified()).await;
        opened.expect_err("it was verified");
        let store = RedisStore::open(&url, RedisOptions::default().accept_loss()).await;
        complete(&store.expect("it was accepted"), &ask("k")).await;
    }
    for settings in [&["appendfsync always"], &["appendfsync everysec"]] {
        let server = Server::start_with(settings);
        let store = RedisStore::open(&server.url(0), RedisOptions::default()).await;
        store.expect("it keeps records");
    }
}

#[tokio::test]
async fn settings_that_are_not_told_are_refused_unless_somebody_knows_them() {
    let server = Server::start();
    make_user(&server);
    let url = server.url_as(USER, 0);
    let error = refused(&url).await;
    assert!(matches!(error, RedisOpenError::Unverified { .. }), "{error}");
    let error = error.to_string();
    for word in ["ROLE", "CONFIG GET appendonly", "accept_unverified"] {
        assert!(error.contains(word), "{error}");
    }
    let lost = RedisStore::open(&url, RedisOptions::default().accept_loss()).await;
    lost.expect_err("that is not what was accepted");
    server.command(0, &["acl", "setuser", "keys", "+role", "+config|get"]);
    let store = RedisStore::open(&url, RedisOptions::default()).await.expect("it tells now");
    complete(&store, &ask("k")).await;
}

#[tokio::test]
async fn a_replica_is_refused_and_so_is_what_a_master_becomes() {
    let master = Server::start();
    let setting = format!("replicaof 127.0.0.1 {}", master.port());
    let replica = Server::start_with(&[&setting]);
    let everything = RedisOptions::default().accept_loss().accept_unverified();
    let error = RedisStore::open(&replica.url(0), everything).await.expect_err("it is a replica");
    assert!(matches!(error, RedisOpenError::Replica { .. }), "{error}");
    let store = RedisStore::open(&master.url(0), RedisOptions::default()).await.expect("a master");
    let lease = run(&store, &ask("k")).await;
    master.command(0, &["replicaof", "127.0.0.1", &replica.port().to_string()]);
    let error = store.claim(&ask("new")).await.expect_err("nothing can be written there");
    assert!(error.is_retryable(), "{error}");
    let error = store.complete(&lease, &answer("done")).await.expect_err("nor this");
    assert!(error.is_retryable(), "{error}");
}

/// Ends all connections but that which says so.
fn cut(server: &Server) {
    server.command(0, &["client", "kill", "type", "normal"]);
}

#[tokio::test]
async fn a_server_that_begins_to_lose_records_takes_no_new_key_until_it_keeps_them_again() {
    let server = Server::start();
    let store = RedisStore::open(&server.url(0), RedisOptions::default()).await;
    let store = store.expect("it keeps records");
    complete(&store, &ask("known")).await;
    let running = run(&store, &ask("running")).await;
    server.command(0, &["config", "set", "maxmemory-policy", "allkeys-lru"]);
    cut(&server);
    // The first one may have been sent before its connection was known to be cut.
    let _unheard = store.claim(&ask("new")).await.expect_err("it would not be kept");
    let error = store.claim(&ask("new")).await.expect_err("still");
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("maxmemory-policy is allkeys-lru"), "{error}");
    // What is known is told, and what runs may end.
    assert!(store.get(&ask("known").id).await.expect("it works").is_some());
    let recorded = store.complete(&running, &answer("done")).await;
    assert!(recorded.is_ok(), "it is better recorded than not: {recorded:?}");
    server.command(0, &["config", "set", "maxmemory-policy", "noeviction"]);
    // It is looked at again in a second.
    for _ in 0..200 {
        if store.claim(&ask("another")).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    complete(&store, &ask("new")).await;
}

#[tokio::test]
async fn a_server_that_no_longer_tells_takes_no_new_key() {
    let server = Server::start();
    make_user(&server);
    server.command(0, &["acl", "setuser", "keys", "+role", "+config|get"]);
    let store = RedisStore::open(&server.url_as(USER, 0), RedisOptions::default()).await;
    let store = store.expect("it tells");
    complete(&store, &ask("known")).await;
    server.command(0, &["acl", "setuser", "keys", "-config|get"]);
    cut(&server);
    let error = store.claim(&ask("new")).await.expect_err("nobody knows");
    assert!(error.to_string().contains("accept_unverified"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_opened_as_one_and_its_masters_keep_records() {
    let cluster = Cluster::start_with(&[NO_FAILOVER]);
    let server = cluster.server(1).url(0);
    let error = refused(&server).await;
    assert!(matches!(error, RedisOpenError::Cluster { .. }), "{error}");
    let error = refused(&SERVER.url(0).replace("redis:", "redis-cluster:")).await;
    assert!(error.to_string().contains("cluster support disabled"), "{error}");
    cluster.server(2).command(0, &["config", "set", "appendonly", "no"]);
    let error = refused(&cluster.url()).await;
    assert!(matches!(error, RedisOpenError::Unsafe { .. }), "{error}");
    cluster.server(2).command(0, &["config", "set", "appendonly", "yes"]);
    let store = RedisStore::open(&cluster.url(), RedisOptions::default()).await.expect("they do");
    complete(&store, &ask("k")).await;
    // One of three begins to lose records: a third of the keys.
    cluster.server(1).command(0, &["config", "set", "appendfsync", "no"]);
    cut(cluster.server(1));
    let mut refused = 0;
    for at in 0..60 {
        match store.claim(&ask(&format!("new-{at}"))).await {
            Ok(_) => {}
            Err(error) => {
                assert!(error.to_string().contains("appendfsync is no"), "{error}");
                refused += 1;
            }
        }
    }
    assert!((5..40).contains(&refused), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_cluster_is_the_right_one() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let cluster = Cluster::start_encrypted(&ours);
    let trusting = |authority: &Authority, name: &str| {
        let file = cluster.keep(name, &authority.pem());
        format!("{}?sslrootcert={}", cluster.url(), file.display())
    };
    let store = RedisStore::open(&trusting(&ours, "ours.crt"), RedisOptions::default()).await;
    let store = store.expect("it is the right one");
    for at in 0..20 {
        complete(&store, &ask(&format!("k-{at}"))).await;
    }
    refused(&trusting(&others, "others.crt")).await;
    refused(&cluster.url()).await;
}
