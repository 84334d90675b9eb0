//! nginx before two gateways over one PostgreSQL, with its own retries switched on for requests that
//! are not idempotent: whatever becomes of the first gateway, nothing runs twice.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use selfsame_test_postgres::Server;

use crate::harness::{
    Answer, Balancer, Gate, Gateway, Ledger, Relay, Request, Then, eventually, reply,
};
use crate::postgres::{database, gateway};
use crate::unreachable::nobody;

const SETTINGS: &str = "[idempotency]\nrecover = \"hold\"\nlease = \"2s\"\n";

/// Work that waits at a gate, behind two gateways.
struct Held {
    server: Server,
    ledger: Ledger,
    gate: Gate,
    first: Gateway,
    second: Gateway,
}

impl Held {
    fn start() -> Self {
        let server = Server::start();
        let url = database(&server);
        let (ledger, gate) =
            Ledger::gated(|effect| format!(r#"{{"charge":"ch_{}"}}"#, effect.number));
        let first = gateway(&ledger, &url).with(SETTINGS).start();
        let second = gateway(&ledger, &url).with(SETTINGS).start();
        Self { server, ledger, gate, first, second }
    }
}

fn charge(balancer: &Balancer, key: &str) -> Request {
    balancer.post("/charges").key(key).json(r#"{"amount":10}"#)
}

/// How many gateways the balancer asked for this answer.
fn asked(answer: &Answer) -> usize {
    answer.header("asked").expect("the balancer tells").split(", ").count()
}

/// The answer once the key is no longer in progress.
fn decided(request: &Request) -> Answer {
    eventually("a decision about the key", || {
        let answer = request.send();
        (answer.problem().as_deref() != Some("in-progress")).then_some(answer)
    })
}

#[test]
fn retries_that_a_balancer_spreads_run_once() {
    let held = Held::start();
    held.gate.open();
    let balancer = Balancer::before(&[held.first.address, held.second.address]);
    for at in 0..20 {
        let request = charge(&balancer, &format!("k-{at}"));
        let first = request.send();
        assert_eq!((first.status, first.header("idempotent-replayed")), (201, None));
        let retries = [request.send(), request.send(), request.send()];
        for retry in &retries {
            retry.replays(&first);
        }
        assert_eq!(held.ledger.effects(&format!("k-{at}")), 1);
        let asked: BTreeSet<_> = retries.iter().map(|retry| retry.header("asked")).collect();
        assert_eq!(asked.len(), 2, "both have their turns");
    }
}

#[test]
fn the_balancers_retry_after_a_gateway_was_killed_runs_nothing() {
    let Held { server: _server, ledger, gate, first, second } = Held::start();
    let balancer = Balancer::before_two(first.address, second.address);
    let request = charge(&balancer, "k");
    let waiting = thread::spawn({
        let request = request.clone();
        move || request.send()
    });
    ledger.wait_for("k", 1);
    drop(first.kill());
    let answer = waiting.join().expect("answered");
    answer.refused("in-progress");
    assert_eq!(asked(&answer), 2, "the balancer has asked the second gateway too");
    decided(&request).refused("outcome-unknown");
    gate.open();
    request.send().refused("outcome-unknown");
    assert_eq!(ledger.effects("k"), 1);
    let other = charge(&balancer, "other").send();
    assert_eq!(other.status, 201, "the second gateway serves on");
}

#[test]
fn the_balancers_retry_after_its_connection_was_cut_runs_nothing() {
    let Held { server: _server, ledger, gate, first, second } = Held::start();
    let relay = Relay::to(first.address);
    let balancer = Balancer::before_two(relay.address, second.address);
    let request = charge(&balancer, "k");
    let waiting = thread::spawn({
        let request = request.clone();
        move || request.send()
    });
    ledger.wait_for("k", 1);
    relay.cut();
    let answer = waiting.join().expect("answered");
    answer.refused("in-progress");
    assert_eq!(asked(&answer), 2);
    // The work went on, and its answer is there for whoever asks.
    gate.open();
    let replay = decided(&request);
    assert_eq!((replay.status, replay.text().as_str()), (201, r#"{"charge":"ch_1"}"#));
    request.send().replays(&replay);
    assert_eq!(ledger.effects("k"), 1);
}

#[test]
fn the_balancers_retry_after_its_time_out_runs_nothing() {
    let Held { server: _server, ledger, gate, first, second } = Held::start();
    let balancer = Balancer::before_two_within("3s", first.address, second.address);
    let request = charge(&balancer, "k");
    let answer = request.send();
    answer.refused("in-progress");
    assert_eq!(asked(&answer), 2);
    gate.open();
    let replay = decided(&request);
    assert_eq!((replay.status, replay.text().as_str()), (201, r#"{"charge":"ch_1"}"#));
    assert_eq!(ledger.effects("k"), 1);
}

#[test]
fn the_balancers_retry_of_a_lost_answer_runs_nothing_and_of_work_that_never_began_runs_it() {
    let Held { server, ledger, first, second, .. } = Held::start();
    let url = server.url("keys", "keys");
    let balancer = Balancer::before_two(first.address, second.address);
    ledger.behave(|_, _| Then::Close);
    let answer = charge(&balancer, "lost").send();
    answer.refused("outcome-unknown");
    assert_eq!((asked(&answer), ledger.effects("lost")), (2, 1));

    let astray = Gateway::before(nobody()).store(&url).with(SETTINGS).start();
    ledger.behave(|_, client| reply(client, 201, &[], "done"));
    let balancer = Balancer::before_two(astray.address, second.address);
    let answer = charge(&balancer, "astray").send();
    assert_eq!((answer.status, asked(&answer), ledger.effects("astray")), (201, 2, 1));
}

#[test]
fn no_key_runs_twice_when_a_gateway_is_killed_under_load() {
    const CLIENTS: usize = 12;
    let Held { server: _server, ledger, gate, first, second } = Held::start();
    gate.open();
    let balancer = Balancer::before(&[first.address, second.address]);
    let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (balancer, ledger, is_over, served) = (&balancer, &ledger, &is_over, &served);
            scope.spawn(move || {
                for at in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let key = format!("k-{client}-{at}");
                    let request = charge(balancer, &key);
                    let answer = decided(&request);
                    match answer.status {
                        201 => {
                            request.send().replays(&answer);
                            assert_eq!(ledger.effects(&key), 1, "{key}");
                        }
                        // Killed before it was sent, or after.
                        _ => {
                            answer.refused("outcome-unknown");
                            assert!(ledger.effects(&key) <= 1, "{key}");
                        }
                    }
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let more = |than: usize| {
            let goal = served.load(Ordering::Relaxed) + than;
            eventually("more is served", || (served.load(Ordering::Relaxed) >= goal).then_some(()));
        };
        more(100);
        drop(first.kill());
        more(100);
        is_over.store(true, Ordering::Relaxed);
    });
}
