//! Redis crashes, or stops where it is.

use std::time::Duration;

use futures_util::future::join_all;
use selfsame::stores::RedisStore;
use selfsame_core::conformance::samples::{answer, ask};
use selfsame_core::{Claimed, Recorded, Store, StoreErrorKind};
use selfsame_test_redis::Server;
use tokio::time::{Instant, sleep};

use crate::shared_crashes;
use crate::support::{USER, make_user, run, unverified};

/// A store of the test's own server, used by the user that may do no more than it must.
async fn store_of(server: &Server, time_out: Duration) -> RedisStore {
    make_user(server);
    let options = unverified().time_out(time_out);
    RedisStore::open(&server.url_as(USER, 0), options).await.expect("the user may open it")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_runs_twice_and_no_answer_is_lost_when_redis_crashes() {
    // With `everysec`, a Redis whose disk is busy acknowledges what a crash takes away.
    let server = Server::start_with(&["appendfsync always"]);
    let store = store_of(&server, Duration::from_secs(5)).await;
    let crash = |server: &mut Server| {
        server.crash();
        server.start_again();
        make_user(server);
    };
    shared_crashes::no_key_runs_twice_and_no_answer_is_lost(&store, server, crash).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_given_up_in_time() {
    let time_out = Duration::from_secs(4);
    let server = Server::start();
    let store = store_of(&server, time_out).await;
    let lease = run(&store, &ask("before")).await;
    // All connections are there: what is sent over them may land.
    for at in 0..8 {
        run(&store, &ask(&format!("warm-{at}"))).await;
    }
    server.signal("STOP");
    let begun = Instant::now();
    let hung = ask("hung");
    let claims = join_all((0..8).map(|_| store.claim(&hung))).await;
    let taken = begun.elapsed();
    let renewed = store.renew(&lease).await;
    server.signal("CONT");
    assert!(taken < time_out * 2, "{taken:?}: a claim is asked for twice within half of that");
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
