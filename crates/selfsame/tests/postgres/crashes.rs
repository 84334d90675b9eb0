//! The database crashes, or stops where it is.

use std::time::Duration;

use futures_util::future::join_all;
use selfsame::stores::PostgresStore;
use selfsame_core::conformance::samples::{answer, ask};
use selfsame_core::{Claimed, Recorded, Store, StoreErrorKind};
use selfsame_test_postgres::Server;
use tokio::time::{Instant, sleep};

use crate::shared_crashes;
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

#[tokio::test(flavor = "multi_thread")]
async fn no_key_runs_twice_and_no_answer_is_lost_when_the_database_crashes() {
    let server = Server::start();
    let store = store_of(&server, Duration::from_secs(5)).await;
    let crash = |server: &mut Server| {
        server.crash();
        server.start_again();
    };
    shared_crashes::no_key_runs_twice_and_no_answer_is_lost(&store, server, crash).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_hangs_is_given_up_in_time() {
    let time_out = Duration::from_secs(4);
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
            Err(_) => assert!(begun.elapsed() < Duration::from_secs(60)),
        }
        sleep(Duration::from_millis(20)).await;
    }
    let done = store.complete(&lease, &answer("done")).await.expect("it serves again");
    assert!(matches!(done, Recorded::Until(_)));
}
