//! Rows 29 and 30: what a gateway owes its store while that is away, for longer than a lease: answers that
//! free a key, and claims of which nothing was heard.

use std::thread;
use std::time::{Duration, Instant};

use selfsame_test_postgres::Server;

use crate::harness::{Gateway, Ledger, Request, Setup, eventually, reply};
use crate::postgres::{database, gateway};

const LEASE: Duration = Duration::from_secs(1);
const SETTINGS: &str = "[idempotency]\nlease = \"1s\"\nrecover = \"hold\"\n";
const FREEING: [u16; 4] = [503, 500, 429, 401];

/// Lets so many leases pass.
#[expect(clippy::disallowed_methods, reason = "a store that is away tells no time")]
fn pass(leases: u32) {
    let begun = Instant::now();
    eventually("the leases are over", || (begun.elapsed() > LEASE * leases).then_some(()));
}

/// Work whose answers free their keys, all of which end while the database is down.
fn freeing_while_away() -> (Server, Ledger, Gateway) {
    let mut server = Server::start();
    let url = database(&server);
    let (ledger, gate) = Ledger::gated(|_| String::new());
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        at_gate.pass();
        let key = effect.header("idempotency-key").expect("keyed");
        reply(client, key.parse().expect("a status"), &[], "not now")
    });
    let first = gateway(&ledger, &url).with(SETTINGS).start();
    thread::scope(|scope| {
        let sent = FREEING.map(|status| {
            let request = first.post("/charges").key(&status.to_string()).json("{}");
            scope.spawn(move || request.send())
        });
        FREEING.iter().for_each(|status| ledger.wait_for(&status.to_string(), 1));
        server.crash();
        gate.open();
        for (sent, status) in sent.into_iter().zip(FREEING) {
            let answer = sent.join().expect("answered");
            assert_eq!((answer.status, answer.text().as_str()), (status, "not now"));
        }
    });
    ledger.behave(|_, client| reply(client, 201, &[], "charged"));
    (server, ledger, first)
}

/// Each key runs once more, and no retry here is told that nobody knows what became of it.
fn assert_freed(gateway: &Gateway, ledger: &Ledger) {
    for status in FREEING {
        let retry = gateway.post("/charges").key(&status.to_string()).json("{}");
        let charged = eventually("it is free", || {
            let answer = retry.send();
            if answer.status != 201 {
                answer.refused("store-unavailable");
            }
            (answer.status == 201).then_some(answer)
        });
        retry.send().replays(&charged);
        assert_eq!(ledger.effects(&status.to_string()), 2, "{status}");
    }
}

#[test]
fn a_key_is_freed_though_the_database_was_away_for_longer_than_its_lease() {
    let (mut server, ledger, gateway) = freeing_while_away();
    gateway.post("/charges").key("503").json("{}").send().refused("store-unavailable");
    gateway.expect_metric("selfsame_unlanded_releases", 4.0);
    pass(3);
    server.start_again();
    assert_freed(&gateway, &ledger);
    gateway.expect_metric("selfsame_unlanded_releases", 0.0);
}

#[test]
fn a_key_is_freed_though_its_gateway_was_killed_before_the_database_is_back() {
    let (mut server, ledger, first) = freeing_while_away();
    let setup = first.kill();
    pass(3);
    server.start_again();
    assert_freed(&setup.start(), &ledger);
}

/// Number of keys of whose claims nobody hears.
const KEYS: usize = 20;

fn request(gateway: &Gateway, at: usize) -> Request {
    gateway.post("/charges").key(&format!("k{at}")).json("{}")
}

/// Sends keys while the store is stopped: nobody hears of their claims, which land once it goes on.
fn send_unheard(gateway: &Gateway, stop: impl FnOnce()) {
    // All connections are there: what is sent over them may land.
    for at in 0..8 {
        let warm = gateway.post("/charges").key(&format!("warm-{at}")).json("{}").send();
        assert_eq!(warm.status, 201);
    }
    stop();
    thread::scope(|scope| {
        for at in 0..KEYS {
            let request = request(gateway, at);
            // In progress: the lease of its first try was over before the second one was made.
            scope.spawn(move || match request.send() {
                busy if busy.problem().as_deref() == Some("in-progress") => {}
                other => drop(other.refused("store-unavailable")),
            });
        }
    });
}

/// Sends keys while nobody hears of their claims, and sees to it that each runs once after.
fn claim_unheard(setup: impl Fn(&Ledger) -> Setup, stop: impl FnOnce(), go_on: impl FnOnce()) {
    let ledger = Ledger::start();
    let gateways = [setup(&ledger).with(SETTINGS).start(), setup(&ledger).with(SETTINGS).start()];
    send_unheard(&gateways[0], stop);
    pass(2);
    go_on();
    for at in 0..KEYS {
        // The other gateway knows nothing of what is owed here, and may find the key held for a while.
        let retry = request(&gateways[at % 2], at);
        eventually("it runs", || (retry.send().status == 201).then_some(()));
        assert_eq!(ledger.effects(&format!("k{at}")), 1, "k{at}");
    }
}

#[test]
fn claims_unheard_of_by_a_database_that_hangs_for_longer_than_a_lease_are_given_back() {
    let server = Server::start();
    let url = database(&server);
    claim_unheard(
        |ledger| gateway(ledger, &url),
        || server.signal_all("STOP"),
        || server.signal_all("CONT"),
    );
}

#[test]
fn claims_unheard_of_are_given_back_by_the_gateway_that_is_started_next() {
    let (server, ledger) = (Server::start(), Ledger::start());
    let url = database(&server);
    let first = gateway(&ledger, &url).with(SETTINGS).start();
    send_unheard(&first, || server.signal_all("STOP"));
    let (status, setup) = first.terminate();
    assert!(status.success(), "a store that hangs does not keep it");
    server.signal_all("CONT");
    pass(2);
    let next = setup.start();
    for at in 0..KEYS {
        let retry = request(&next, at);
        eventually("it runs", || (retry.send().status == 201).then_some(()));
        assert_eq!(ledger.effects(&format!("k{at}")), 1, "k{at}");
    }
}

#[test]
fn claims_unheard_of_by_a_redis_that_hangs_for_longer_than_a_lease_are_given_back() {
    let server = selfsame_test_redis::Server::start();
    let url = server.url(0);
    claim_unheard(
        |ledger| gateway(ledger, &url),
        || server.signal("STOP"),
        || server.signal("CONT"),
    );
}

#[test]
fn claims_that_no_replica_took_are_given_back() {
    let master = selfsame_test_redis::Server::start();
    let settings = [&*format!("replicaof 127.0.0.1 {}", master.port())];
    let replica = selfsame_test_redis::Server::start_with(&settings);
    eventually("the replica follows", || {
        replica.command(0, &["role"]).contains("connected").then_some(())
    });
    let url = master.url(0);
    claim_unheard(
        |ledger| gateway(ledger, &url).store_with("wait_replicas = 1\n"),
        || replica.signal("STOP"),
        || replica.signal("CONT"),
    );
}
