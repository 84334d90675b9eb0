//! Rows 26, 29 and 30: the database goes away, at any moment, and comes back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use selfsame_test_postgres::Server;

use crate::harness::{Answer, Gateway, Ledger, eventually};
use crate::postgres::{database, gateway};

const STORE_DOWN: &str = "store-unavailable";

/// How long the gateway waits for the database, though a claim is asked for once more.
const TIME_OUT: Duration = Duration::from_secs(5);

/// Whether the gateway says that it can serve.
fn is_ready(gateway: &Gateway) -> bool {
    gateway.admin("GET", "/readyz").send().status == 200
}

#[test]
fn a_database_that_is_down_at_the_claim_runs_nothing() {
    let mut server = Server::start();
    let url = database(&server);
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, &url).start();
    assert!(is_ready(&gateway));
    server.crash();
    let request = gateway.post("/charges").key("k").json("{}");
    for _ in 0..3 {
        let refusal = request.send().refused(STORE_DOWN);
        assert_eq!(refusal["retryable"], true);
    }
    assert!(!is_ready(&gateway));
    assert_eq!(ledger.effects("k"), 0);
    server.start_again();
    let answer = eventually("it serves again", || {
        let answer = request.send();
        (answer.status == 201).then_some(answer)
    });
    request.send().replays(&answer);
    assert!(is_ready(&gateway));
    assert_eq!(ledger.effects("k"), 1);
}

/// Work that ended while the database was down, and its answer.
struct Unrecorded {
    server: Server,
    ledger: Ledger,
    gateway: Gateway,
    answer: Answer,
}

fn unrecorded() -> Unrecorded {
    let mut server = Server::start();
    let url = database(&server);
    let (ledger, gate) = Ledger::gated(|_| "the one charge".to_owned());
    let first = gateway(&ledger, &url).start();
    let request = first.post("/charges").key("k").json("{}");
    let asked = request.clone();
    let waiting = thread::spawn(move || asked.send());
    eventually("it runs", || (ledger.effects("k") == 1).then_some(()));
    server.crash();
    gate.open();
    let answer = waiting.join().expect("answered");
    assert_eq!((answer.status, answer.text().as_str()), (201, "the one charge"));
    Unrecorded { server, ledger, gateway: first, answer }
}

/// Asks again until the answer is there, which is the one that was given.
fn assert_landed(gateway: &Gateway, key: &str, answer: &Answer) {
    let retry = gateway.post("/charges").key(key).json("{}");
    let replay = eventually("it has landed", || {
        let answer = retry.send();
        (answer.status == 201).then_some(answer)
    });
    replay.replays(answer);
}

#[test]
fn an_answer_lands_when_the_database_is_back() {
    let Unrecorded { mut server, ledger, gateway: first, answer } = unrecorded();
    first.post("/charges").key("k").json("{}").send().refused(STORE_DOWN);
    server.start_again();
    assert_landed(&first, "k", &answer);
    let second = gateway(&ledger, &server.url("keys", "keys")).start();
    assert_landed(&second, "k", &answer);
    assert_eq!(ledger.effects("k"), 1);
}

#[test]
fn an_answer_lands_though_its_gateway_was_killed_before_the_database_is_back() {
    let Unrecorded { mut server, ledger, gateway: first, answer } = unrecorded();
    let setup = first.kill();
    server.start_again();
    assert_landed(&setup.start(), "k", &answer);
    assert_eq!(ledger.effects("k"), 1);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how soon a client is told is what is tested")]
fn a_database_that_hangs_at_the_claim_runs_nothing() {
    let server = Server::start();
    let url = database(&server);
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, &url).start();
    // All connections are there: what is sent over them may land.
    for at in 0..8 {
        let warm = gateway.post("/charges").key(&format!("warm-{at}")).json("{}").send();
        assert_eq!(warm.status, 201);
    }
    server.signal_all("STOP");
    let request = gateway.post("/charges").key("k").json("{}");
    let begun = Instant::now();
    request.send().refused(STORE_DOWN);
    let took = begun.elapsed();
    server.signal_all("CONT");
    assert!(took < TIME_OUT * 2, "{took:?}");
    assert_eq!(ledger.effects("k"), 0);
    // Its claim may have landed. It is given back, because nothing ran.
    let answer = eventually("it serves again", || {
        let answer = request.send();
        (answer.status == 201).then_some(answer)
    });
    request.send().replays(&answer);
    assert_eq!(ledger.effects("k"), 1);
}

#[test]
fn no_key_runs_twice_and_nothing_is_lost_when_the_database_restarts_under_load() {
    const CLIENTS: usize = 16;
    let mut server = Server::start();
    let url = database(&server);
    let ledger = Ledger::start();
    let gateways = [gateway(&ledger, &url).start(), gateway(&ledger, &url).start()];
    let is_over = AtomicBool::new(false);
    let served = Mutex::new(Vec::<(String, Answer)>::new());
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (gateways, is_over, served) = (&gateways, &is_over, &served);
            scope.spawn(move || {
                for at in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let key = format!("k-{client}-{at}");
                    let answer = eventually("it is served", || {
                        let gateway = &gateways[(client + at) % 2];
                        let answer = gateway.post("/charges").key(&key).json("{}").send();
                        let refusal = if answer.status == 409 { "in-progress" } else { STORE_DOWN };
                        if answer.status != 201 {
                            answer.refused(refusal);
                        }
                        (answer.status == 201).then_some(answer)
                    });
                    served.lock().expect("no panic holds it").push((key, answer));
                }
            });
        }
        let more = || {
            let goal = served.lock().expect("no panic holds it").len() + 5 * CLIENTS;
            let is_more = || served.lock().expect("no panic holds it").len() >= goal;
            eventually("more is served", || is_more().then_some(()));
        };
        for _ in 0..2 {
            more();
            server.crash();
            server.start_again();
            more();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for (at, (key, answer)) in served.into_inner().expect("no panic holds it").iter().enumerate() {
        assert_eq!(ledger.effects(key), 1, "{key}");
        // Those that ended while it was away wait in the spool of one gateway.
        assert_landed(&gateways[at % 2], key, answer);
    }
}
