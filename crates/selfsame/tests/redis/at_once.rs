//! First claims without a script: given back, renewed or found again where they are not as they should be.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_core::conformance::samples::{LEASE, MARGIN, answer, ask, retry};
use selfsame_core::{Ask, Claimed, Inspect, Recorded, Recover, State, Store};
use selfsame_test_redis::Server;
use tokio::time::{sleep, timeout};

use crate::relay::Relay;
use crate::support::{RedisBench, complete, key, run};

/// Where name and count lie.
const GUARD: &str = "selfsame:{0}:guard";

/// A server, a way to it, and a store at the end of that way which knows what time it is.
async fn behind_a_relay() -> (Server, Relay, RedisStore) {
    let server = Server::start();
    let relay = Relay::to(&server);
    let store = RedisStore::open(&relay.url(), RedisOptions::default()).await;
    let store = store.expect("it is open to all");
    run(&store, &ask("first")).await;
    (server, relay, store)
}

/// How often a command was called since it was last asked.
fn calls(server: &Server, command: &str) -> u64 {
    let said = server.command(0, &["info", "commandstats"]);
    server.command(0, &["config", "resetstat"]);
    let start = format!("cmdstat_{command}:calls=");
    let count = said.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next());
    count.map_or(0, |count| count.parse().expect("a number"))
}

/// Whether Redis has a record of it.
fn is_there(server: &Server, ask: &Ask) -> bool {
    server.command(0, &["exists", &key(ask)]) == "1"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_takes_no_script() {
    let (server, _relay, store) = behind_a_relay().await;
    calls(&server, "evalsha");
    for at in 0..100 {
        run(&store, &ask(&format!("k-{at}"))).await;
    }
    // What was written is counted by one, ten times a second.
    let scripts = calls(&server, "evalsha");
    assert!(scripts < 50, "{scripts}");
}

// One thread, so that all of the crowd have asked before anything is sent, however busy the machine is.
#[tokio::test]
async fn what_goes_together_is_not_mixed_up() {
    const CROWD: usize = 400;
    let (server, _relay, store) = behind_a_relay().await;
    let wrong = ask("of-another-type");
    server.command(0, &["lpush", &key(&wrong), "x"]);
    calls(&server, "hmget");
    let claims = (0..CROWD).map(|at| {
        let (store, wrong) = (&store, &wrong);
        async move {
            if at == CROWD / 2 {
                let error = store.claim(wrong).await.expect_err("it is none of ours");
                assert!(error.to_string().contains("WRONGTYPE"), "{error}");
            }
            let (ask, told) = (ask(&format!("k-{at}")), answer(format!("answer {at}")));
            let lease = run(store, &ask).await;
            let _recorded = store.complete(&lease, &told).await.expect("the store works");
            match store.claim(&retry(&ask)).await.expect("the store works") {
                Claimed::Replay(replay) => assert_eq!(replay.answer, told),
                other => panic!("it was recorded, so not {other:?}"),
            }
        }
    });
    join_all(claims).await;
    let (looks, claims) = (calls(&server, "hmget"), 2 * CROWD as u64);
    assert!(looks < claims, "the guard is read once for many: {looks}");
}

// One thread, so that all of the crowd have asked before anything is sent, however busy the machine is.
#[tokio::test]
async fn answers_that_come_together_take_few_scripts_and_each_is_told_its_own() {
    const CROWD: usize = 400;
    let (server, _relay, store) = behind_a_relay().await;
    for is_script_known in [true, false] {
        let asks: Vec<_> = (0..CROWD).map(|at| ask(&format!("{is_script_known}-{at}"))).collect();
        let leases = join_all(asks.iter().map(|ask| run(&store, ask))).await;
        let (gone, wrong) = (CROWD / 3, CROWD / 2);
        server.command(0, &["del", &key(&asks[gone]), &key(&asks[wrong])]);
        server.command(0, &["lpush", &key(&asks[wrong]), "x"]);
        if !is_script_known {
            server.command(0, &["script", "flush"]);
        }
        calls(&server, "evalsha");
        let answers: Vec<_> = (0..CROWD).map(|at| answer(format!("answer {at}"))).collect();
        let recorded = leases.iter().zip(&answers);
        let recorded =
            join_all(recorded.map(|(lease, answer)| store.complete(lease, answer))).await;
        if is_script_known {
            let scripts = calls(&server, "evalsha");
            assert!(scripts < CROWD as u64 / 2, "one is for many: {scripts}");
        }
        for (at, recorded) in recorded.into_iter().enumerate() {
            if at == gone {
                assert_eq!(recorded.expect("the store works"), Recorded::Lost);
            } else if at == wrong {
                let error = recorded.expect_err("it is none of ours any more");
                assert!(error.to_string().contains("WRONGTYPE"), "{error}");
            } else {
                assert!(matches!(recorded.expect("the store works"), Recorded::Until(_)));
                let found = store.claim(&retry(&asks[at])).await.expect("the store works");
                let Claimed::Replay(replay) = found else { panic!("{found:?}") };
                assert_eq!(replay.answer, answers[at]);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_again_after_a_while_is_told_the_time_first() {
    let (server, _relay, store) = behind_a_relay().await;
    sleep(Duration::from_millis(1500)).await;
    calls(&server, "evalsha");
    run(&store, &ask("k")).await;
    assert!(calls(&server, "evalsha") >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_was_lost_is_found_again() {
    let (server, relay, store) = behind_a_relay().await;
    let k = ask("k");
    calls(&server, "set");
    relay.mute(key(&k));
    let lease = run(&store, &k).await;
    assert!(calls(&server, "set") >= 2, "it was sent again");
    let rival = store.claim(&retry(&k)).await.expect("the store works");
    assert!(matches!(rival, Claimed::Busy { .. }), "{rival:?}");
    let recorded = store.complete(&lease, &answer("done")).await.expect("the store works");
    assert!(matches!(recorded, Recorded::Until(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_records_are_missed_a_claim_is_given_back() {
    for is_heard in [true, false] {
        let (server, relay, store) = behind_a_relay().await;
        // If it stayed there, a person would have to decide about it.
        let k = Ask { recover: Recover::Hold, ..ask("k") };
        server.command(0, &["del", GUARD]);
        if !is_heard {
            relay.mute(key(&k));
        }
        let error = store.claim(&k).await.expect_err("it may have run");
        assert!(error.is_retryable() && error.to_string().contains("lost records"), "{error}");
        assert!(!is_there(&server, &k), "nothing ran");
        server.command(0, &["hset", GUARD, "closed_until", "0"]);
        complete(&store, &retry(&k)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_among_claims_runs_no_key_twice_and_blocks_none() {
    const KEYS: usize = 64;
    let bench = RedisBench::new();
    let stores = [bench.store().await, bench.store().await];
    let asks: Vec<_> = (0..KEYS).map(|at| ask(&format!("k-{at}"))).collect();
    let ran = Mutex::new(HashMap::<usize, usize>::new());
    let refused = |at: usize| {
        let (stores, asks, ran) = (&stores, &asks, &ran);
        async move {
            // Each in its own time, so that the flush comes between all of the steps of some.
            sleep(Duration::from_micros(at as u64 * 150)).await;
            for round in 0.. {
                match stores[(at + round) % 2].claim(&retry(&asks[at])).await {
                    Ok(Claimed::Run(_)) => {
                        *ran.lock().expect("no panic").entry(at).or_default() += 1
                    }
                    Ok(_) => {}
                    Err(error) => {
                        assert!(error.to_string().contains("lost records"), "{error}");
                        return;
                    }
                }
            }
        }
    };
    let flush = async {
        sleep(Duration::from_millis(20)).await;
        bench.command(&["flushdb"]);
    };
    let all = join(join_all((0..KEYS).map(refused)), flush);
    timeout(Duration::from_secs(60), all).await.expect("all are refused in the end");
    let ran = ran.into_inner().expect("no panic");
    assert!(ran.values().all(|runs| *runs == 1), "{ran:?}");
    let keys = bench.command(&["keys", "*"]);
    let mut claims = keys.lines().filter(|key| *key != GUARD && !key.contains(":own:"));
    assert_eq!(claims.next(), None, "there is no claim of nobody's");
    bench.command(&["hset", GUARD, "closed_until", "0"]);
    for ask in &asks {
        complete(&stores[0], &retry(ask)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_set_between_claims_is_noticed_by_the_next() {
    let hour = 60 * 60;
    for off in [hour, -hour] {
        let (server, relay, store) = behind_a_relay().await;
        let begun = store.now().await.expect("the store works");
        relay.set_clock(off);
        let k = ask("k");
        run(&store, &k).await;
        // By whoever hears the same clock as it does.
        let now = store.now().await.expect("the store works");
        let found = store.get(&k.id).await.expect("the store works").expect("it was claimed");
        let State::Claimed { lease_until } = found.state else { panic!("{found:?}") };
        let left = lease_until.since(now);
        assert!(left <= LEASE && left > LEASE - MARGIN, "{left:?} after {begun:?}, {off}");
        // Nor does the next go by the old time.
        calls(&server, "evalsha");
        run(&store, &ask("next")).await;
        assert!(calls(&server, "set") >= 1);
        let rival = store.claim(&retry(&ask("next"))).await.expect("the store works");
        let Claimed::Busy { lease_left } = rival else { panic!("{rival:?}") };
        assert!(lease_left <= LEASE && lease_left > LEASE - MARGIN, "{lease_left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_is_asked_by_scripts() {
    let (server, relay, store) = behind_a_relay().await;
    // To Redis 6 it is a mistake that both are said.
    calls(&server, "set");
    relay.say(b"NX\r\n$3\r\nGAT\r\n", b"NX\r\n$3\r\nGET\r\n");
    for at in 0..4 {
        complete(&store, &ask(&format!("k-{at}"))).await;
    }
    let said = server.command(0, &["info", "errorstats"]);
    assert!(said.contains("errorstat_ERR:count=1"), "it is tried once: {said}");
}
