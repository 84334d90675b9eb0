//! Redis loses records, and whoever misses them says so.

use std::time::Duration;

use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{LEASE, MARGIN, RETENTION, answer, ask, retry};
use selfsame_core::{Ask, Claimed, Facts, Fenced, Recorded, Release, Store};
use selfsame_test_redis::Server;
use tokio::time::{Instant, sleep};

use crate::relay::Relay;
use crate::support::{RedisBench, complete, run};

/// Where name and count lie.
const GUARD: &str = "selfsame:{0}:guard";
/// The command that reads the count.
const COUNT: [&str; 3] = ["hget", GUARD, "beats"];

/// Waits until all that `stores` have written is counted, and each of them knows the count.
async fn until_counted(count: impl Fn() -> String, stores: &[&RedisStore]) {
    until("it is counted", || {
        let count = count().parse::<u64>().ok();
        count.is_some() && stores.iter().all(|store| store.known_count() == count)
    })
    .await;
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn expect_closed(store: &RedisStore, ask: &Ask) {
    for ask in [ask, &retry(ask)] {
        let error = store.claim(ask).await.expect_err("it may have run");
        assert!(error.is_retryable() && error.to_string().contains("lost records"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_flush_no_new_key_runs_until_the_lost_ones_would_have_expired() {
    let bench = RedisBench::new();
    let (first, second) = (bench.store().await, bench.store().await);
    complete(&first, &ask("lost")).await;
    run(&second, &ask("running")).await;
    bench.command(&["flushdb"]);
    expect_closed(&first, &ask("lost")).await;
    expect_closed(&second, &ask("running")).await;
    expect_closed(&bench.store().await, &ask("unseen")).await;
    bench.pass(RETENTION + LEASE - MARGIN).await;
    expect_closed(&first, &ask("lost")).await;
    bench.pass(MARGIN * 2).await;
    for store in [&first, &second] {
        complete(store, &retry(&ask("lost"))).await;
        bench.pass(RETENTION + MARGIN).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_may_know_better() {
    let bench = RedisBench::new();
    let (first, second) = (bench.store().await, bench.store().await);
    complete(&first, &ask("k")).await;
    bench.command(&["flushdb"]);
    expect_closed(&first, &ask("k")).await;
    // What docs/REDIS.md says.
    bench.command(&["hset", GUARD, "closed_until", "0"]);
    complete(&first, &ask("k")).await;
    complete(&second, &ask("other")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_starts_after_a_flush_is_told_by_one_that_has_nothing_to_do() {
    let bench = RedisBench::new();
    let idle = bench.store().await;
    complete(&idle, &ask("lost")).await;
    until_counted(|| bench.command(&COUNT), &[&idle]).await;
    bench.command(&["flushdb"]);
    let url = crate::support::SERVER.url_as(crate::support::USER, bench.database);
    let options = bench.options().settle(Duration::from_secs(2));
    let new = RedisStore::open(&url, options).await.expect("the user may open it");
    expect_closed(&new, &ask("lost")).await;
    expect_closed(&idle, &ask("lost")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_has_nothing_to_do_knows_what_others_have_written() {
    let mut server = Server::start();
    let url = server.url(0);
    let open = || RedisStore::open(&url, RedisOptions::default());
    let busy = open().await.expect("it is open to all");
    let idle = open().await.expect("it is open to all");
    complete(&busy, &ask("kept")).await;
    until_counted(|| server.command(0, &COUNT), &[&busy, &idle]).await;
    server.copy_kept();
    complete(&busy, &ask("lost")).await;
    until_counted(|| server.command(0, &COUNT), &[&busy, &idle]).await;
    server.crash();
    server.go_back();
    server.start_again();
    expect_closed(&idle, &ask("lost")).await;
    let known = idle.claim(&retry(&ask("kept"))).await.expect("what is known is answered");
    assert!(matches!(known, Claimed::Replay(_)), "{known:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_closed_has_counted_all_and_is_not_waited_for() {
    let bench = RedisBench::new();
    let (closed, other) = (bench.store().await, bench.store().await);
    let lease = run(&closed, &ask("running")).await;
    complete(&closed, &ask("done")).await;
    closed.close().await;
    let listed = || {
        let list = bench.command(&["hget", GUARD, "members"]);
        let left = list.split(' ').filter(|entry| entry.contains(":-")).count();
        (left, list.split(' ').count() - left)
    };
    assert_eq!(listed(), (1, 1));
    assert_ne!(bench.command(&["hget", GUARD, "beats"]), "", "its writes are counted");
    let error = closed.claim(&ask("new")).await.expect_err("others do not wait for it");
    assert!(error.is_retryable() && error.to_string().contains("closed"), "{error}");
    let recorded = closed.complete(&lease, &answer("late")).await.expect("an answer is recorded");
    assert!(matches!(recorded, Recorded::Until(_)), "{recorded:?}");
    // Longer than the pause between two entries in the list.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(listed(), (1, 1), "it does not come back");
    complete(&other, &ask("new")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_does_not_wait_for_a_server_that_is_away() {
    let server = Server::start();
    let store = RedisStore::open(&server.url(0), RedisOptions::default()).await;
    let store = store.expect("it is open to all");
    complete(&store, &ask("k")).await;
    server.signal("STOP");
    tokio::time::timeout(Duration::from_secs(3), store.close()).await.expect("it ends by itself");
    server.signal("CONT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_loss_is_noticed_after_the_first_was_cleared() {
    let mut server = Server::start();
    let store = RedisStore::open(&server.url(0), RedisOptions::default()).await;
    let store = store.expect("it is open to all");
    complete(&store, &ask("first")).await;
    server.command(0, &["flushall"]);
    expect_closed(&store, &ask("first")).await;
    let reopened = RedisStore::reopen(&server.url(0), RedisOptions::default()).await;
    assert_eq!(reopened.expect("it works"), 1);
    complete(&store, &ask("kept")).await;
    until_counted(|| server.command(0, &COUNT), &[&store]).await;
    server.copy_kept();
    server.command(0, &["flushall"]);
    expect_closed(&store, &ask("kept")).await;
    RedisStore::reopen(&server.url(0), RedisOptions::default()).await.expect("it works");
    complete(&store, &ask("lost")).await;
    until_counted(|| server.command(0, &COUNT), &[&store]).await;
    // A backup is restored that knows of a loss, but not of this one.
    server.crash();
    server.go_back();
    server.start_again();
    expect_closed(&store, &ask("lost")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_reopened_is_not_closed_again_by_who_notices_late() {
    let bench = RedisBench::new();
    let (first, second) = (bench.store().await, bench.store().await);
    complete(&first, &ask("k")).await;
    complete(&second, &ask("other")).await;
    until_counted(|| bench.command(&COUNT), &[&first, &second]).await;
    bench.command(&["flushdb"]);
    expect_closed(&first, &ask("k")).await;
    let url = crate::support::SERVER.url_as(crate::support::USER, bench.database);
    assert_eq!(RedisStore::reopen(&url, bench.options()).await.expect("it works"), 1);
    for _ in 0..2 {
        complete(&second, &ask("k")).await;
        bench.pass(RETENTION + MARGIN).await;
    }
    assert_eq!(RedisStore::reopen(&url, bench.options()).await.expect("it works"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_stopped_through_two_losses_closes_nothing_again() {
    let server = Server::start();
    let relay = Relay::to(&server);
    let options = || RedisOptions::default().settle(Duration::ZERO);
    let stopped = RedisStore::open(&relay.url(), options()).await.expect("it is open to all");
    complete(&stopped, &ask("before")).await;
    let url = server.url(0);
    let other = RedisStore::open(&url, options()).await.expect("it is open to all");
    relay.hold_up();
    for loss in 0..2 {
        complete(&other, &ask(&format!("lost-{loss}"))).await;
        server.command(0, &["flushall"]);
        expect_closed(&other, &ask(&format!("lost-{loss}"))).await;
        assert_eq!(RedisStore::reopen(&url, options()).await.expect("it works"), 1);
    }
    relay.let_go_on();
    let new = ask("new");
    let begun = Instant::now();
    while stopped.claim(&new).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it takes keys again");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(RedisStore::reopen(&url, options()).await.expect("it works"), 0);
    complete(&other, &ask("another")).await;
}

/// Keys of what each process has counted, of which there is one here.
fn own_counts(bench: &RedisBench) -> String {
    bench.command(&["keys", "selfsame:{0}:own:*"])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_has_counted_is_kept_as_long_as_what_it_wrote() {
    let bench = RedisBench::new();
    let store = bench.store().await;
    complete(&store, &ask("first")).await;
    until_counted(|| bench.command(&COUNT), &[&store]).await;
    assert!(!bench.command(&["hkeys", GUARD]).contains("own"), "it would stay for ever");
    let lives: u64 = bench.command(&["pttl", &own_counts(&bench)]).parse().expect("it ends");
    let lives = Duration::from_millis(lives);
    let known_for = RETENTION + LEASE;
    assert!(lives > known_for && lives < known_for * 2, "{lives:?}");
    // It has ended, and nothing that it tells of can be missed.
    bench.pass(known_for + Duration::from_secs(120)).await;
    bench.command(&["del", &own_counts(&bench)]);
    for at in 0..2 {
        complete(&store, &ask(&format!("later-{at}"))).await;
        until_counted(|| bench.command(&COUNT), &[&store]).await;
    }
    // Now it is missed: what it tells of is known yet.
    bench.command(&["del", &own_counts(&bench)]);
    let closed_until = || bench.command(&["hget", GUARD, "closed_until"]);
    until("the loss is noticed", || !matches!(&*closed_until(), "" | "0")).await;
    expect_closed(&store, &ask("lost")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_refused_for_the_longest_time_that_any_process_was_asked_for() {
    let bench = RedisBench::new();
    let day = Duration::from_secs(24 * 60 * 60);
    let long = Ask { retention: day, remember: day * 2, ..ask("long") };
    let before = bench.store().await;
    complete(&before, &long).await;
    until_counted(|| bench.command(&COUNT), &[&before]).await;
    drop(before);
    let after = bench.store().await;
    complete(&after, &ask("short")).await;
    until_counted(|| bench.command(&COUNT), &[&after]).await;
    bench.command(&["flushdb"]);
    expect_closed(&after, &long).await;
    bench.pass(day * 3 - MARGIN).await;
    expect_closed(&after, &long).await;
    bench.pass(LEASE + MARGIN * 2).await;
    complete(&after, &long).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_forgot_everything_is_noticed() {
    let mut server = Server::start();
    let store = RedisStore::open(&server.url(0), RedisOptions::default()).await;
    let store = store.expect("it is open to all");
    complete(&store, &ask("lost")).await;
    server.crash();
    server.lose_everything();
    server.start_again();
    expect_closed(&store, &ask("lost")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_went_back_in_time_is_noticed_and_serves_what_it_knows() {
    let mut server = Server::start();
    let store = RedisStore::open(&server.url(0), RedisOptions::default()).await;
    let store = store.expect("it is open to all");
    complete(&store, &ask("kept")).await;
    let running = run(&store, &ask("running")).await;
    until_counted(|| server.command(0, &COUNT), &[&store]).await;
    server.copy_kept();
    complete(&store, &ask("lost")).await;
    until_counted(|| server.command(0, &COUNT), &[&store]).await;
    server.crash();
    // As a replica that takes over and has not got the last of it.
    server.go_back();
    server.start_again();
    expect_closed(&store, &ask("lost")).await;
    let known = store.claim(&retry(&ask("kept"))).await.expect("what is known is answered");
    assert!(matches!(known, Claimed::Replay(_)), "{known:?}");
    let recorded = store.complete(&running, &answer("done")).await.expect("what runs may end");
    assert!(matches!(recorded, Recorded::Until(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_looks_unfinished_after_a_loss_is_not_run_again() {
    let bench = RedisBench::new();
    let store = bench.store().await;
    let (dead, failed, known) = (ask("dead"), ask("failed"), ask("known"));
    run(&store, &dead).await;
    let lease = run(&store, &failed).await;
    let _freed = store.release(&lease, Release::Retry).await.expect("it works");
    complete(&store, &known).await;
    bench.pass(LEASE + MARGIN).await;
    // Only what tells of a loss is lost, as by a replica that has not got the last of it.
    bench.command(&["del", GUARD]);
    for unfinished in [&dead, &failed] {
        let error = store.claim(&retry(unfinished)).await.expect_err("it may have been finished");
        assert!(error.is_retryable() && error.to_string().contains("lost records"), "{error}");
    }
    let replay = store.claim(&retry(&known)).await.expect("what is known is answered");
    assert!(matches!(replay, Claimed::Replay(_)), "{replay:?}");
    bench.command(&["hset", GUARD, "closed_until", "0"]);
    for unfinished in [&dead, &failed] {
        complete(&store, &retry(unfinished)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_that_loses_nothing_closes_nothing() {
    // With `everysec`, a Redis whose disk is busy acknowledges what a crash takes away.
    let mut server = Server::start_with(&["appendfsync always"]);
    let store = RedisStore::open(&server.url(0), RedisOptions::default()).await;
    let store = store.expect("it is open to all");
    for round in 0..3 {
        complete(&store, &ask(&format!("before-{round}"))).await;
        until_counted(|| server.command(0, &COUNT), &[&store]).await;
        server.crash();
        server.start_again();
        complete(&store, &ask(&format!("after-{round}"))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_loss_is_accepted_none_is_noticed() {
    let bench = RedisBench::new();
    drop(bench.store().await);
    let url = crate::support::SERVER.url(bench.database);
    let store = RedisStore::open(&url, bench.options().accept_loss()).await.expect("open to all");
    complete(&store, &ask("lost")).await;
    bench.command(&["flushdb"]);
    complete(&store, &ask("lost")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_keeps_its_secret_or_what_has_the_old_one_stops() {
    let bench = RedisBench::new();
    let (first, second) = (bench.store().await, bench.store().await);
    for store in [&first, &second] {
        assert_eq!(store.fact_or("secret", b"ours").await.expect("it works"), b"ours");
    }
    bench.command(&["flushdb"]);
    expect_closed(&first, &ask("k")).await;
    let new = bench.store().await;
    assert_eq!(new.fact_or("secret", b"another").await.expect("it works"), b"ours");

    bench.command(&["flushdb"]);
    // It comes before anybody has noticed.
    let new = bench.store().await;
    assert_eq!(new.fact_or("secret", b"another").await.expect("it works"), b"another");
    for store in [&first, &second] {
        store.claim(&ask("k")).await.expect_err("it goes by another secret");
    }
    bench.command(&["hset", GUARD, "closed_until", "0"]);
    complete(&new, &ask("k")).await;
    for store in [&first, &second] {
        let error = store.claim(&ask("k")).await.expect_err("still");
        assert!(error.to_string().contains("restart"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_run_that_was_lost_is_recorded_because_nobody_else_can_have_its_key() {
    let bench = RedisBench::new();
    let (store, other) = (bench.store().await, bench.store().await);
    let (fresh, renewed) = (ask("fresh"), ask("renewed"));
    let leases = [run(&store, &fresh).await, run(&store, &renewed).await];
    assert_eq!(store.renew(&leases[1]).await.expect("it works"), Fenced::Applied);
    bench.command(&["flushdb"]);
    assert_eq!(store.renew(&leases[1]).await.expect("it works"), Fenced::Lost);
    for lease in &leases {
        for _ in 0..2 {
            let recorded = store.complete(lease, &answer("done")).await.expect("it works");
            assert!(matches!(recorded, Recorded::Until(_)), "{recorded:?}");
        }
    }
    for ask in [&fresh, &renewed] {
        let known = other.claim(&retry(ask)).await.expect("what is known is answered");
        assert!(matches!(known, Claimed::Replay(_)), "{known:?}");
    }
    // What was reopened may have run again.
    let late = ask("late");
    bench.pass(RETENTION + LEASE + MARGIN).await;
    let lease = run(&store, &late).await;
    bench.command(&["flushdb"]);
    expect_closed(&other, &ask("new")).await;
    let url = crate::support::SERVER.url_as(crate::support::USER, bench.database);
    RedisStore::reopen(&url, bench.options()).await.expect("it works");
    let rival = run(&other, &retry(&late)).await;
    let lost = store.complete(&lease, &answer("first")).await.expect("it works");
    assert_eq!(lost, Recorded::Lost);
    let recorded = other.complete(&rival, &answer("second")).await.expect("it works");
    assert!(matches!(recorded, Recorded::Until(_)), "{recorded:?}");
}
