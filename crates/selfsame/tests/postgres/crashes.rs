//! The database crashes, or stops where it is.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame::stores::PostgresStore;
use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Claimed, Inspect, Recorded, Store, StoreErrorKind};
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

/// How often work was done, by key, and how often it was unknown whether a claim had landed.
#[derive(Default)]
struct Effects {
    of: Mutex<HashMap<String, usize>>,
    unheard: AtomicUsize,
    is_over: AtomicBool,
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
    *effects.of.lock().expect("no panic holds it").entry(key.to_owned()).or_default() += 1;
    loop {
        match store.complete(&lease, &answer(key.to_owned())).await {
            Ok(Recorded::Until(_)) => return,
            Ok(Recorded::Lost) => panic!("nobody else may have the claim"),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_runs_twice_and_no_answer_is_lost_when_the_database_crashes() {
    const CALLERS: usize = 40;
    let mut server = Server::start();
    let store = store_of(&server, Duration::from_secs(5)).await;
    let effects = Effects::default();

    let callers = (0..CALLERS).map(|caller| {
        let (store, effects) = (&store, &effects);
        async move {
            for at in 0.. {
                let key = format!("k-{caller}-{at}");
                join_all((0..3).map(|_| one_rival(store, effects, &key))).await;
                if effects.is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    let crashes = async {
        // Whether a claim is under way at that moment is chance.
        for crash in 1.. {
            sleep(Duration::from_millis(150)).await;
            let restart = tokio::task::spawn_blocking(move || {
                server.crash();
                server.start_again();
                server
            });
            server = restart.await.expect("it starts again");
            let begun = Instant::now();
            while store.now().await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "it serves again soon");
            let has_met_one = effects.unheard.load(Ordering::Relaxed) > 0;
            assert!(has_met_one || crash < 20, "no claim met a crash");
            if has_met_one && crash >= 2 {
                break;
            }
        }
        effects.is_over.store(true, Ordering::Relaxed);
        server
    };
    let (_, _server) = join(join_all(callers), crashes).await;

    let effects = effects.of.into_inner().expect("no panic holds it");
    assert!(effects.len() >= CALLERS);
    let store = &store;
    let replays = effects.iter().map(|(key, times)| async move {
        assert_eq!(*times, 1, "{key}");
        let Ok(Claimed::Replay(replay)) = store.claim(&retry(&ask(key))).await else {
            panic!("{key} was acknowledged");
        };
        assert_eq!(replay.answer, answer(key.clone()));
    });
    join_all(replays).await;
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
    assert!(taken < time_out, "{taken:?}: a claim is asked for twice within that");
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
