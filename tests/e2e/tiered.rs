//! Rows 5 and 28: several gateways over one PostgreSQL with Redis before it, which answers replays, and
//! which may go away, hang, or forget.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use selfsame_test_postgres::Server as Database;
use selfsame_test_redis::Server as Redis;

use crate::harness::{Answer, Gateway, Ledger, Setup, eventually};
use crate::postgres::{database, race_and_retry};

const PASSWORD: &str = "correct-horse";
const CLIENTS: usize = 8;

/// How soon a client must be answered: the cache has 100 ms for each of two calls, the rest is for a machine
/// with much to do.
const ANSWERED: Duration = Duration::from_secs(20);

/// A Redis as a cache is run: it evicts, and keeps nothing over a restart.
fn cache() -> Redis {
    let redis =
        Redis::start_with(&["appendonly no", "maxmemory 64mb", "maxmemory-policy allkeys-lru"]);
    make_user(&redis);
    redis
}

/// A user that may do no more than a cache must: what docs/TIERED.md lets it do.
fn make_user(redis: &Redis) {
    let rules = format!(
        "on >{PASSWORD} resetkeys ~selfsame:{{*}}:cache:* resetchannels &selfsame:bell:* -@all \
         +ping +select +get +getrange +set +eval +evalsha +publish +subscribe"
    );
    let mut command = vec!["acl", "setuser", "cache"];
    command.extend(rules.split_whitespace());
    redis.command(0, &command);
}

fn gateway(ledger: &Ledger, database: &str, redis: &Redis) -> Setup {
    let url = redis.url_as(&format!("cache:{PASSWORD}@"), 0);
    // What is near a gateway is not asked for, so that Redis is.
    let settings = format!("cache_url = \"{url}\"\nnear_cache = \"off\"\n");
    Gateway::in_front_of(ledger).store(database).store_with(&settings)
}

/// Gateways that share a database and a cache.
fn gateways(ledger: &Ledger, database: &str, redis: &Redis) -> Vec<Gateway> {
    thread::scope(|scope| {
        let starting: Vec<_> =
            (0..3).map(|_| scope.spawn(|| gateway(ledger, database, redis).start())).collect();
        starting.into_iter().map(|start| start.join().expect("started")).collect()
    })
}

fn cached(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&cache_metric(outcome))
}

fn cache_metric(outcome: &str) -> String {
    format!("selfsame_cache_total{{outcome=\"{outcome}\"}}")
}

/// Sends a retry until it is replayed. A cache that could not be told in time may still say that the key runs.
fn replay(mut retry: impl FnMut() -> Answer, answer: &Answer) {
    let replay = eventually("it is replayed", || {
        let replay = retry();
        if replay.status != 201 {
            replay.refused("in-progress");
        }
        (replay.status == 201).then_some(replay)
    });
    replay.replays(answer);
}

/// Waits until new keys are replayed from the cache: it is left alone for a while where it is slow.
fn expect_hit(gateway: &Gateway) {
    let before = cached(gateway, "hit");
    let mut at = 0;
    eventually("a replay comes from the cache", || {
        at += 1;
        let charge = gateway.post("/charges").key(&format!("hit-{before}-{at}")).json("{}");
        let answer = charge.send();
        replay(|| charge.send(), &answer);
        (cached(gateway, "hit") > before).then_some(())
    });
}

#[test]
fn rivals_on_three_gateways_run_once() {
    let (server, redis, ledger) = (Database::start(), cache(), Ledger::start());
    let gateways = gateways(&ledger, &database(&server), &redis);
    race_and_retry(&gateways, &ledger, |retry, ran| replay(retry, ran));
    for gateway in gateways {
        expect_hit(&gateway);
        assert!(!gateway.whole_log().contains(PASSWORD), "no log tells a password");
    }
}

#[test]
fn replays_come_from_redis_even_while_the_database_is_away() {
    let (mut server, redis, ledger) = (Database::start(), cache(), Ledger::start());
    let url = database(&server);
    let (first, second) =
        (gateway(&ledger, &url, &redis).start(), gateway(&ledger, &url, &redis).start());
    let charge = |gateway: &Gateway| gateway.post("/charges").key("k").json("{}");
    let answer = charge(&first).send();
    assert_eq!(answer.status, 201);
    eventually("its replay comes from the cache", || {
        replay(|| charge(&second).send(), &answer);
        (cached(&second, "hit") >= 1.0).then_some(())
    });
    second.post("/charges").key("k").json("[]").send().refused("key-reused");
    server.crash();
    let cached = eventually("it is replayed", || {
        let replay = charge(&second).send();
        (replay.status == 201).then_some(replay)
    });
    cached.replays(&answer);
    let new = second.post("/charges").key("new").json("{}");
    new.send().refused("store-unavailable");
    server.start_again();
    eventually("it serves again", || (new.send().status == 201).then_some(()));
    assert_eq!((ledger.effects("k"), ledger.effects("new")), (1, 1));
}

#[test]
fn a_gateway_starts_without_its_cache_and_uses_it_once_it_is_there() {
    let (server, mut redis, ledger) = (Database::start(), cache(), Ledger::start());
    let url = database(&server);
    redis.crash();
    let gateway = gateway(&ledger, &url, &redis).start();
    for at in 0..5 {
        let charge = gateway.post("/charges").key(&format!("k-{at}")).json("{}");
        let answer = charge.send();
        assert_eq!(answer.status, 201);
        charge.send().replays(&answer);
    }
    assert_eq!(gateway.admin("GET", "/readyz").send().status, 200, "it can do without");
    gateway.expect_metric("selfsame_cache_up", 0.0);
    gateway.expect_metric(&cache_metric("hit"), 0.0);
    gateway.expect_log("the cache is away");
    redis.start_again();
    make_user(&redis);
    expect_used(&gateway);
}

#[test]
fn what_one_gateway_has_erased_no_other_replays() {
    let (server, redis, ledger) = (Database::start(), cache(), Ledger::start());
    let url = database(&server);
    let (first, second) =
        (gateway(&ledger, &url, &redis).start(), gateway(&ledger, &url, &redis).start());
    let charge = |gateway: &Gateway| gateway.post("/charges").key("k").json("{}");
    let answer = charge(&first).send();
    replay(|| charge(&second).send(), &answer);
    let erased = first.keys(&["erase", "k"]);
    assert!(erased.status.success(), "{}", String::from_utf8_lossy(&erased.stderr));
    for gateway in [&second, &first] {
        // A cache that could not be told of it in time is told again.
        let refused = eventually("it is refused", || {
            let refused = charge(gateway).send();
            (refused.status == 410).then_some(refused)
        });
        refused.refused("key-expired");
    }
    assert_eq!(ledger.effects("k"), 1);
}

/// Waits until replays come from the cache again.
fn expect_used(gateway: &Gateway) {
    expect_hit(gateway);
    gateway.expect_log("the cache is back");
    gateway.expect_metric("selfsame_cache_up", 1.0);
}

/// Clients charge through three gateways, each key through all of them, while `trouble` is made with Redis. None
/// of them is told of it, and nothing runs twice.
#[expect(clippy::disallowed_methods, reason = "how soon a client is answered is what is tested")]
fn bear(trouble: impl FnOnce(&mut Redis)) -> (Vec<Gateway>, Redis, Database, Ledger) {
    let (server, mut redis, ledger) = (Database::start(), cache(), Ledger::start());
    let gateways = gateways(&ledger, &database(&server), &redis);
    let served: Mutex<Vec<(String, Answer)>> = Mutex::default();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (gateways, served, is_over) = (&gateways, &served, &is_over);
            scope.spawn(move || {
                for at in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = format!("k-{client}-{at}");
                    let send = |gateway: &Gateway| {
                        let begun = Instant::now();
                        let answer = gateway.post("/charges").key(&key).json("{}").send();
                        assert!(begun.elapsed() < ANSWERED, "{:?}", begun.elapsed());
                        answer
                    };
                    let answer = send(&gateways[at % 3]);
                    assert_eq!(answer.status, 201, "{}", answer.text());
                    for gateway in gateways {
                        replay(|| send(gateway), &answer);
                    }
                    served.lock().expect("no panic holds it").push((key, answer));
                }
            });
        }
        let count = || served.lock().expect("no panic holds it").len();
        let serve_more = || {
            let enough = count() + 2 * CLIENTS;
            eventually("keys are served", || (count() >= enough).then_some(()));
        };
        serve_more();
        trouble(&mut redis);
        serve_more();
        is_over.store(true, Ordering::Relaxed);
    });
    for (key, _) in &served.into_inner().expect("no panic holds it") {
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
    (gateways, redis, server, ledger)
}

#[test]
fn nobody_is_told_that_redis_was_killed() {
    let (gateways, _redis, _server, _ledger) = bear(|redis| {
        redis.crash();
        thread::sleep(Duration::from_secs(1));
        redis.start_again();
        make_user(redis);
    });
    gateways.iter().for_each(expect_used);
}

#[test]
fn nobody_is_told_that_redis_hung() {
    let (gateways, _redis, _server, _ledger) = bear(|redis| {
        redis.signal("STOP");
        thread::sleep(Duration::from_secs(2));
        redis.signal("CONT");
    });
    gateways.iter().for_each(expect_used);
}

#[test]
fn nobody_is_told_that_redis_forgot_everything() {
    let (gateways, _redis, _server, _ledger) = bear(|redis| {
        for _ in 0..50 {
            redis.command(0, &["flushall"]);
            thread::sleep(Duration::from_millis(10));
        }
    });
    gateways.iter().for_each(expect_hit);
}
