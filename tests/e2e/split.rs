//! Rows 5 and 28: several gateways with their claims in Redis and their answers in PostgreSQL (`lock = "redis"`).

use std::thread;

use selfsame_test_postgres::Server as Database;
use selfsame_test_redis::Server as Redis;

use crate::harness::{Answer, Gate, Gateway, Ledger, Setup, eventually, reply};
use crate::postgres::{database, race};

const LEASE: &str = "[idempotency]\nlease = \"3s\"\n";

fn gateway(ledger: &Ledger, database: &str, redis: &Redis) -> Setup {
    // What is near a gateway is not asked for, so that the others are.
    let settings =
        format!("cache_url = \"{}\"\nlock = \"redis\"\nnear_cache = \"off\"\n", redis.url(0));
    Gateway::in_front_of(ledger).with(LEASE).store(database).store_with(&settings)
}

fn charge(gateway: &Gateway, key: &str) -> Answer {
    gateway.post("/charges").key(key).json("{}").send()
}

#[test]
fn rivals_on_three_gateways_run_once() {
    let (server, redis, ledger) = (Database::start(), Redis::start(), Ledger::start());
    let url = database(&server);
    let gateways: Vec<_> = (0..3).map(|_| gateway(&ledger, &url, &redis).start()).collect();
    race(&gateways, &ledger);
    for gateway in &gateways {
        gateway.expect_log("may run twice");
        gateway.expect_log("docs/TIERED.md");
    }
    assert_eq!(server.sql("keys", "select count(*) from selfsame.keys where state = 2"), "1");
}

#[test]
fn a_redis_that_forgets_loses_no_answer_and_runs_nothing_twice() {
    let (server, redis, ledger) = (Database::start(), Redis::start(), Ledger::start());
    let url = database(&server);
    let (first, second) =
        (gateway(&ledger, &url, &redis).start(), gateway(&ledger, &url, &redis).start());
    let done = charge(&first, "done");
    assert_eq!(done.status, 201);
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |_, client| {
        at_gate.pass();
        reply(client, 201, &[], "slow")
    });
    thread::scope(|scope| {
        let runs = scope.spawn(|| charge(&first, "slow"));
        ledger.wait_for("slow", 1);
        redis.command(0, &["flushall"]);
        for gateway in [&second, &first] {
            charge(gateway, "done").replays(&done);
        }
        charge(&second, "new").refused("store-unavailable");
        // Whoever runs puts its claim back before new keys are taken.
        eventually("it is known that it runs", || {
            let rival = charge(&second, "slow");
            if rival.status != 409 {
                rival.refused("store-unavailable");
            }
            (rival.status == 409).then_some(())
        });
        gate.open();
        let answer = runs.join().expect("answered");
        assert_eq!((answer.status, answer.text().as_str()), (201, "slow"));
        charge(&second, "slow").replays(&answer);
        eventually("new keys are taken", || (charge(&second, "new").status == 201).then_some(()));
    });
    for key in ["done", "slow", "new"] {
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
}

#[test]
fn where_loss_is_accepted_work_may_run_twice_and_one_answer_counts() {
    let (server, redis) = (Database::start(), Redis::start_with(&["appendonly no"]));
    let (ledger, gate) = Ledger::gated(|effect| format!("charge {}", effect.number));
    let url = database(&server);
    let start = || gateway(&ledger, &url, &redis).store_with("accept_loss = true\n").start();
    let (first, second) = (start(), start());
    let answers = thread::scope(|scope| {
        let runs = scope.spawn(|| charge(&first, "k"));
        ledger.wait_for("k", 1);
        redis.command(0, &["flushall"]);
        let rival = scope.spawn(|| charge(&second, "k"));
        ledger.wait_for("k", 2);
        gate.open();
        [runs, rival].map(|client| client.join().expect("answered"))
    });
    let replay = charge(&second, "k");
    let count = "select count(*) from selfsame.keys";
    assert_eq!((replay.status, server.sql("keys", count).as_str()), (201, "1"));
    for answer in &answers {
        assert_eq!((answer.status, answer.text()), (201, replay.text()), "what counts is told");
    }
    redis.command(0, &["flushall"]);
    charge(&first, "k").replays(&replay);
    assert_eq!(ledger.effects("k"), 2);
}

#[test]
fn while_one_of_the_two_is_away_nothing_new_runs() {
    let (mut server, mut redis) = (Database::start(), Redis::start());
    let (ledger, gate) = Ledger::gated(|effect| format!("charge {}", effect.number));
    let gateway = gateway(&ledger, &database(&server), &redis).start();
    thread::scope(|scope| {
        let runs = scope.spawn(|| charge(&gateway, "running"));
        ledger.wait_for("running", 1);
        server.crash();
        charge(&gateway, "new").refused("store-unavailable");
        assert_eq!(gateway.admin("GET", "/readyz").send().status, 503);
        gate.open();
        let answer = runs.join().expect("answered");
        assert_eq!(answer.status, 201, "the answer is delivered, and recorded later");
        server.start_again();
        eventually("it is recorded", || (charge(&gateway, "running").status == 201).then_some(()));
        charge(&gateway, "running").replays(&answer);
    });
    let done = eventually("new keys are taken", || {
        Some(charge(&gateway, "new")).filter(|answer| answer.status == 201)
    });
    redis.crash();
    charge(&gateway, "new").replays(&done);
    charge(&gateway, "newer").refused("store-unavailable");
    redis.start_again();
    eventually("new keys are taken", || (charge(&gateway, "newer").status == 201).then_some(()));
    for key in ["running", "new", "newer"] {
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
}
