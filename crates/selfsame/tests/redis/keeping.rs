//! What Redis keeps, and for how long.

use std::time::Duration;

use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{
    LEASE, MARGIN, REMEMBER, RETENTION, answer, ask, checkpoint, remembered, retry,
};
use selfsame_core::{Ask, Claimed, Inspect, Keepsake, Recover, Release, Store, Sweep};

use crate::support::{RedisBench, complete, key, run};

/// How much longer than the rules Redis keeps a record.
const LONGER: Duration = Duration::from_secs(60);

/// In how long Redis lets go of a record; never, if there is no such time.
fn lives(bench: &RedisBench, ask: &Ask) -> Option<Duration> {
    let millis: i64 = bench.command(&["pttl", &key(ask)]).parse().expect("a number");
    assert_ne!(millis, -2, "it is there");
    (millis >= 0).then(|| Duration::from_millis(millis.cast_unsigned()))
}

fn expect_about(lives: Option<Duration>, expected: Duration) {
    let lives = lives.expect("it has an end");
    assert!(lives <= expected + LONGER && lives > expected + LONGER - MARGIN, "{lives:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_lets_go_of_a_record_when_its_life_is_over_and_no_sooner() {
    let bench = RedisBench::new();
    let store = bench.store().await;
    let resumable = ask("resumable");
    run(&store, &resumable).await;
    expect_about(lives(&bench, &resumable), RETENTION);
    let long = Ask { lease: RETENTION * 2, ..ask("long") };
    run(&store, &long).await;
    expect_about(lives(&bench, &long), RETENTION * 2);
    let done = remembered("done");
    complete(&store, &done).await;
    expect_about(lives(&bench, &done), RETENTION + REMEMBER);
    let failed = ask("failed");
    let lease = run(&store, &failed).await;
    let _freed = store.release(&lease, Release::Retry).await.expect("it works");
    expect_about(lives(&bench, &failed), RETENTION);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_or_may_become_held_has_no_end() {
    let bench = RedisBench::new();
    let store = bench.store().await;
    for recover in [Recover::Hold, Recover::Auto] {
        let ask = Ask { recover, ..ask(&format!("{recover:?}")) };
        let lease = run(&store, &ask).await;
        assert_eq!(lives(&bench, &ask), None, "{recover:?}");
        let _renewed = store.renew(&lease).await.expect("it works");
        assert_eq!(lives(&bench, &ask), None, "{recover:?}");
    }
    let held = ask("held");
    let lease = run(&store, &held).await;
    assert!(lives(&bench, &held).is_some());
    let _held = store.release(&lease, Release::Hold).await.expect("it works");
    assert_eq!(lives(&bench, &held), None);
    // With a recovery point it can be resumed; then it may end.
    let auto = Ask { recover: Recover::Auto, ..ask("auto") };
    let lease = run(&store, &auto).await;
    let _saved = store.checkpoint(&lease, &checkpoint("paid")).await.expect("it works");
    expect_about(lives(&bench, &auto), RETENTION);
    // And a completed one always does.
    let hold = Ask { recover: Recover::Hold, ..ask("done") };
    let lease = run(&store, &hold).await;
    let _done = store.complete(&lease, &answer("done")).await.expect("it works");
    expect_about(lives(&bench, &hold), RETENTION);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_claim_that_a_sweep_held_has_no_end() {
    let bench = RedisBench::new();
    let store = bench.store().await;
    let dead = Ask { recover: Recover::Hold, ..ask("dead") };
    run(&store, &dead).await;
    bench.pass(LEASE + MARGIN).await;
    assert_eq!(store.sweep(10).await.expect("it works").held.len(), 1);
    assert_eq!(lives(&bench, &dead), None);
    let claimed = store.claim(&retry(&dead)).await.expect("it works");
    assert_eq!(claimed, Claimed::Held { newly: false });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expired_is_gone_by_itself() {
    let bench = RedisBench::new();
    let store = bench.store().await;
    let done = ask("done");
    complete(&store, &done).await;
    // As Redis would in a day and a minute.
    bench.command(&["pexpire", &key(&done), "1"]);
    tokio::time::sleep(Duration::from_millis(20)).await;
    bench.pass(RETENTION).await;
    assert_eq!(store.get(&done.id).await.expect("it works"), None);
    run(&store, &retry(&done)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_the_scripts_is_told_them_again() {
    let bench = RedisBench::new();
    let store = bench.store().await;
    complete(&store, &ask("before")).await;
    bench.command(&["script", "flush"]);
    complete(&store, &ask("after")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_others_are_left_alone() {
    let bench = RedisBench::new();
    let store = bench.store().await;
    complete(&store, &ask("ours")).await;
    let elsewhere = key(&ask("ours")).replace("{0}", "{1}");
    for key in ["other", "selfsame:{0}:x", "selfsame:{", "selfsame:other", &elsewhere] {
        bench.command(&["set", key, "theirs"]);
    }
    while !store.sweep(2).await.expect("it works").finished {}
    assert_eq!(bench.command(&["get", "selfsame:{0}:x"]), "theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_kept_request_is_left_once_there_is_an_outcome() {
    let bench = RedisBench::new();
    let store = bench.store().await;
    let keepsake = Keepsake {
        outline: Some("outline".into()),
        request: Some("request".into()),
        ..Keepsake::default()
    };
    let kept = Ask { keepsake: Some(Box::new(keepsake)), ..ask("kept") };
    let lease = run(&store, &kept).await;
    let value = || bench.command(&["get", &key(&kept)]);
    assert!(value().contains("request") && value().contains("outline"));
    let _renewed = store.renew(&lease).await.expect("it works");
    assert!(value().contains("request"));
    let _done = store.complete(&lease, &answer("done")).await.expect("it works");
    assert!(!value().contains("request") && value().contains("outline"));
    let _erased = store.erase(&[kept.id]).await.expect("it works");
    assert!(!value().contains("outline") && !value().contains("done"));
}
