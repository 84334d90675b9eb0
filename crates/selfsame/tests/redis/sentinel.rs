//! A master that a sentinel watches.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Claimed, FullStore, Recorded, Store};
use selfsame_test_redis::Watched;
use tokio::time::sleep;

use crate::cluster::user;
use crate::failover::{REPLICATED, rivals_run_once_each};
use crate::shared_waits::{SOON, ended_elsewhere, node};
use crate::support::{USER, complete, run, unverified};

fn start() -> Watched {
    Watched::start_with(&[&user()])
}

async fn open(watched: &Watched, options: RedisOptions) -> RedisStore {
    RedisStore::open(&watched.url_as(USER), options).await.expect("the user may open it")
}

async fn until_master(watched: &Watched, at: usize) {
    until(watched, |watched| watched.is_master(at)).await;
}

/// Until one of the two follows the other. On a busy machine the new master may be taken for dead, too, and the old one
/// be made master again.
async fn until_one_follows(watched: &Watched) {
    until(watched, |watched| watched.is_master(0) != watched.is_master(1)).await;
}

async fn until(watched: &Watched, is_so: impl Fn(&Watched) -> bool) {
    for _ in 0..1200 {
        if is_so(watched) {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("the sentinel has not come to that in a minute");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_outlives_the_death_of_the_master() {
    let mut watched = start();
    let store = open(&watched, unverified().time_out(Duration::from_secs(60))).await;
    complete(&store, &ask("known")).await;
    let running = run(&store, &ask("running")).await;
    sleep(REPLICATED).await;
    watched.server_mut(0).crash();
    let new: Vec<_> = (0..20).map(|at| ask(&format!("new-{at}"))).collect();
    join_all(new.iter().map(|ask| complete(&store, ask))).await;
    assert!(watched.is_master(1));
    let known = store.claim(&retry(&ask("known"))).await.expect("it works");
    assert!(matches!(known, Claimed::Replay(_)), "{known:?}");
    let recorded = store.complete(&running, &answer("done")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))), "{recorded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_master_and_comes_back_is_left() {
    let watched = start();
    let store = open(&watched, unverified().wait_replicas(1)).await;
    complete(&store, &ask("before")).await;
    watched.server(0).signal("STOP");
    until_master(&watched, 1).await;
    watched.server(0).signal("CONT");
    // Nothing was asked meanwhile: all connections lead to the old one.
    let after = ask("after");
    let lease = loop {
        match store.claim(&after).await {
            Ok(Claimed::Run(grant)) => break grant.lease,
            Ok(other) => panic!("{other:?}"),
            // Until the old one follows the new one, there is no replica.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    };
    until_one_follows(&watched).await;
    let recorded = store.complete(&lease, &answer("done")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))), "{recorded:?}");
    until_one_follows(&watched).await;
    let known = store.claim(&retry(&after)).await.expect("it works");
    assert!(matches!(known, Claimed::Replay(_)), "{known:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rivals_run_once_while_the_master_is_killed_and_comes_back() {
    let mut watched = start();
    let stores = [(); 3].map(|()| open(&watched, unverified().wait_replicas(1)));
    let stores = join_all(stores).await;
    let all: Vec<_> = stores.iter().map(|store| store as &dyn FullStore).collect();
    rivals_run_once_each(&all, (4, 50), async {
        sleep(Duration::from_millis(500)).await;
        watched.server_mut(0).crash();
        until_master(&watched, 1).await;
        watched.server_mut(0).start_again();
        until_one_follows(&watched).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_wakes_after_another_server_became_the_master() {
    let mut watched = start();
    let first = node(open(&watched, unverified()).await).await;
    let second = node(open(&watched, unverified()).await).await;
    watched.server_mut(0).crash();
    until_master(&watched, 1).await;
    let listening = ["pubsub", "numsub", "selfsame:bell:0"];
    while !watched.server(1).command(0, &listening).ends_with("\n2") {
        sleep(Duration::from_millis(50)).await;
    }
    let (runs, waits, later) = ended_elsewhere(&first, &second, Ok("by the first")).await;
    assert!(runs.is_ok() && waits.is_ok(), "{runs:?} {waits:?}");
    assert!(later < SOON, "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_sentinel_knows_is_told() {
    let watched = start();
    let url = watched.url_as(USER).replace("/main/", "/other/");
    let error = RedisStore::open(&url, unverified()).await.expect_err("there is no such master");
    let error = error.to_string();
    assert!(error.contains("other") && !error.contains("horse"), "{error}");
}

/// A sentinel that names this server whatever has happened, and its port.
fn stale_sentinel(names: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut answers = stream.try_clone().expect("a second handle");
                let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
                // Each command is a count of words, and each word a length and itself.
                while let Some(count) = lines.next() {
                    let count: usize = count[1..].parse().expect("a count");
                    let words: Vec<_> = lines.by_ref().take(count * 2).collect();
                    let named = words.iter().any(|word| word.eq_ignore_ascii_case("sentinel"));
                    let port = names.to_string();
                    let said = match named {
                        true => format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len()),
                        false => "+OK\r\n".to_owned(),
                    };
                    if answers.write_all(said.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_names_the_wrong_server_is_not_the_only_one_that_is_asked() {
    let watched = start();
    let stale = stale_sentinel(watched.server(1).port());
    let url =
        watched.url_as(USER).replacen("127.0.0.1:", &format!("127.0.0.1:{stale},127.0.0.1:"), 1);
    // The user may ask for the role of a server, or finds out by its first write.
    for user in ["", USER] {
        let url = url.replacen(USER, user, 1);
        let store = RedisStore::open(&url, unverified()).await.expect("the other one knows");
        complete(&store, &ask(&format!("k-{user}"))).await;
    }
}
