//! The database crashes, or stops where it is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use selfsame::stores::PostgresStore;
use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Ask, Claimed, Inspect, Recorded, Store, StoreErrorKind};
use selfsame_test_postgres::Server;
use tokio::time::{Instant, sleep};

use crate::support::{DATABASE, USER, grants, make_roles, options, run};

/// A store of the test's own server, used by the role that may do no more than it must.
async fn store_of(server: &Server, time_out: Duration) -> PostgresStore {
    make_roles(server);
    let (owner, user) = ("postgres", server.url(USER, DATABASE));
    let made = PostgresStore::open(&server.url(owner, DATABASE), options("keys")).await;
    drop(made.expect("the superuser may make the schema"));
    server.sql(DATABASE, &grants("keys"));
    let options = options("keys").time_out(time_out);
    PostgresStore::open(&user, options).await.expect("the user may open it")
}

/// How often work was done, by key, and what was acknowledged.
#[derive(Default)]
struct Effects {
    of: HashMap<String, AtomicUsize>,
    acknowledged: AtomicUsize,
    unheard: AtomicUsize,
}

/// A caller that claims, works and records, and asks again for as long as the database is away.
async fn one_rival(store: &PostgresStore, effects: &Effects, key: &str) {
    let ask = ask(key);
    let lease = loop {
        match store.claim(&ask).await {
            Ok(Claimed::Run(grant)) => break grant.lease,
            Ok(Claimed::Replay(replay)) => {
                assert_eq!(replay.answer, answer(key.to_owned()));
                return;
            }
            Ok(Claimed::Busy { .. }) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) if error.kind() == StoreErrorKind::MayHaveLanded => {
                effects.unheard.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    };
    effects.of[key].fetch_add(1, Ordering::Relaxed);
    loop {
        match store.complete(&lease, &answer(key.to_owned())).await {
            Ok(Recorded::Until(_)) => break,
            Ok(Recorded::Lost) => panic!("nobody else may have the claim"),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
    effects.acknowledged.fetch_add(1, Ordering::Relaxed);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_runs_twice_and_no_answer_is_lost_when_the_database_crashes() {
    const KEYS: usize = 600;
    let mut server = Server::start();
    let store = store_of(&server, Duration::from_secs(5)).await;
    let keys: Vec<_> = (0..KEYS).map(|at| format!("k-{at}")).collect();
    let of = keys.iter().map(|key| (key.clone(), AtomicUsize::new(0))).collect();
    let effects = Arc::new(Effects { of, ..Effects::default() });

    let load = async {
        for some in keys.chunks(60) {
            let rivals = some.iter().flat_map(|key| [key, key, key]);
            join_all(rivals.map(|key| one_rival(&store, &effects, key))).await;
        }
    };
    let crashes = async {
        for _ in 0..3 {
            sleep(Duration::from_millis(150)).await;
            tokio::task::block_in_place(|| {
                server.crash();
                server.start_again();
            });
            let begun = Instant::now();
            while store.now().await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "it serves again soon");
        }
    };
    futures_util::future::join(load, crashes).await;

    assert_eq!(effects.acknowledged.load(Ordering::Relaxed), KEYS);
    for key in &keys {
        assert_eq!(effects.of[key].load(Ordering::Relaxed), 1, "{key}");
        let again: Ask = retry(&ask(key));
        let Ok(Claimed::Replay(replay)) = store.claim(&again).await else {
            panic!("{key} was acknowledged");
        };
        assert_eq!(replay.answer, answer(key.clone()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_hangs_is_given_up_in_time() {
    let time_out = Duration::from_millis(700);
    let server = Server::start();
    let store = store_of(&server, time_out).await;
    let lease = run(&store, &ask("before")).await;
    // All connections are there: what is sent over them may land.
    for at in 0..8 {
        run(&store, &ask(&format!("warm-{at}"))).await;
    }
    server.signal_all("STOP");
    let begun = Instant::now();
    let hung = ask("hung");
    let claims = join_all((0..8).map(|_| store.claim(&hung))).await;
    let taken = begun.elapsed();
    let renewed = store.renew(&lease).await;
    server.signal_all("CONT");
    assert!(taken < time_out * 3, "{taken:?}");
    assert!(claims.iter().all(Result::is_err) && renewed.is_err());
    // One of them was sent and may have landed. Whoever asks again is told the truth.
    let sent = claims.iter().filter(|claim| {
        claim.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::MayHaveLanded)
    });
    assert!(sent.count() >= 1);
    let begun = Instant::now();
    loop {
        match store.claim(&hung).await {
            Ok(Claimed::Run(_)) => break,
            Ok(other) => panic!("the same wish finds its own claim, not {other:?}"),
            Err(_) => assert!(begun.elapsed() < Duration::from_secs(10)),
        }
        sleep(Duration::from_millis(20)).await;
    }
    let done = store.complete(&lease, &answer("done")).await.expect("it serves again");
    assert!(matches!(done, Recorded::Until(_)));
}
