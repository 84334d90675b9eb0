//! One of the two is away, or crashes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame::stores::{PostgresStore, RedisOptions, SplitStore};
use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Claimed, Lease, Recorded, Store};
use selfsame_test_postgres::Server as Database;
use selfsame_test_redis::Server as Redis;
use tokio::time::{Instant, sleep};

use crate::postgres::options;
use crate::shared_crashes::{self, Effects, one_rival};
use crate::support::{complete, expect_replay, run};

/// Servers of the test's own. With `everysec`, a Redis whose disk is busy acknowledges what a crash takes away.
async fn start() -> (Database, Redis, SplitStore) {
    let (database, redis) = (Database::start(), Redis::start_with(&["appendfsync always"]));
    let time_out = Duration::from_secs(2);
    let url = database.url("postgres", "postgres");
    let answers = PostgresStore::open(&url, options("keys").time_out(time_out)).await;
    let answers = Arc::new(answers.expect("the superuser may do all"));
    let locks = RedisOptions::default().time_out(time_out);
    let store = SplitStore::open(answers, &redis.url(0), locks).await.expect("open to all");
    (database, redis, store)
}

/// Records `body` as soon as that can be done.
async fn record_later(store: &SplitStore, lease: &Lease) {
    let begun = Instant::now();
    loop {
        match store.complete(lease, &answer("done")).await {
            Ok(recorded) => return assert!(matches!(recorded, Recorded::Until(_))),
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_database_nothing_new_runs_and_what_runs_is_recorded_later() {
    let (mut database, _redis, store) = start().await;
    complete(&store, &ask("done")).await;
    let lease = run(&store, &ask("running")).await;
    database.crash();
    store.claim(&ask("new")).await.expect_err("it may have an answer");
    expect_replay(&store, &retry(&ask("done")), "done").await;
    store.complete(&lease, &answer("done")).await.expect_err("it would not be kept");
    database.start_again();
    record_later(&store, &lease).await;
    expect_replay(&store, &retry(&ask("running")), "done").await;
    // The claim that could not run was given back.
    let begun = Instant::now();
    let grant = loop {
        match store.claim(&retry(&ask("new"))).await {
            Ok(Claimed::Run(grant)) => break grant,
            other => assert!(begun.elapsed() < Duration::from_secs(60), "{other:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(grant.attempt, 1, "nothing was counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_nothing_new_runs_and_what_is_done_is_told() {
    let (_database, mut redis, store) = start().await;
    complete(&store, &ask("done")).await;
    let lease = run(&store, &ask("running")).await;
    redis.crash();
    store.claim(&ask("new")).await.expect_err("somebody may run it");
    store.claim(&retry(&ask("running"))).await.expect_err("somebody runs it");
    expect_replay(&store, &retry(&ask("done")), "done").await;
    store.complete(&lease, &answer("done")).await.expect_err("others would not know");
    redis.start_again();
    record_later(&store, &lease).await;
    expect_replay(&store, &retry(&ask("running")), "done").await;
    complete(&store, &ask("new")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_runs_twice_and_no_answer_is_lost_when_the_database_crashes() {
    let (mut database, _redis, store) = start().await;
    let (effects, is_over) = (Effects::default(), AtomicBool::new(false));
    let callers = (0..20).map(|caller| {
        let (store, effects, is_over) = (&store, &effects, &is_over);
        async move {
            for at in 0.. {
                let key = format!("k-{caller}-{at}");
                join_all((0..3).map(|_| one_rival(store, effects, &key))).await;
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    let crashes = async {
        for _ in 0..3 {
            sleep(Duration::from_millis(200)).await;
            let restart = tokio::task::spawn_blocking(move || {
                database.crash();
                database.start_again();
                database
            });
            database = restart.await.expect("it starts again");
        }
        sleep(Duration::from_millis(200)).await;
        is_over.store(true, Ordering::Relaxed);
        database
    };
    let (_, _database) = join(join_all(callers), crashes).await;
    effects.expect_once_each(&[&store]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_runs_twice_and_no_answer_is_lost_when_redis_crashes() {
    let (_database, redis, store) = start().await;
    let crash = |redis: &mut Redis| {
        redis.crash();
        redis.start_again();
    };
    shared_crashes::no_key_runs_twice_and_no_answer_is_lost(&store, redis, crash).await;
}
