//! Rows 13 and 14: SIGTERM under load, and connections that end at odd moments.

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::harness::{Answer, Gate, Gateway, Ledger, Request, eventually, reply};

const RUNS: usize = 8;

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json(r#"{"amount":10}"#)
}

/// An upstream where keys that begin with `slow` wait at the gate.
fn ledger_with(gate: &Gate) -> Ledger {
    let ledger = Ledger::start();
    let gate = gate.clone();
    ledger.behave(move |effect, client| {
        if effect.header("idempotency-key").is_some_and(|key| key.starts_with("slow")) {
            gate.pass();
        }
        reply(client, 201, &[], &format!(r#"{{"charge":"ch_{}"}}"#, effect.number))
    });
    ledger
}

#[test]
fn with_a_delay_requests_are_taken_while_nobody_is_sent_here_any_more() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with("shutdown_delay = \"10m\"\n").start();
    assert_eq!(gateway.admin("GET", "/readyz").send().status, 200);
    let mut kept_open = charge(&gateway, "before").open();
    assert_eq!(charge(&gateway, "before").send_on(&mut kept_open).expect("answered").status, 201);
    gateway.signal("TERM");
    eventually("it is not ready", || {
        (gateway.admin("GET", "/readyz").send().status == 503).then_some(())
    });
    for number in 0..3 {
        let key = format!("late-{number}");
        assert_eq!(charge(&gateway, &key).send().status, 201, "a newcomer is served");
        let again = charge(&gateway, &key).send_on(&mut kept_open).expect("answered");
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
    }
    assert_eq!(gateway.admin("GET", "/healthz").send().status, 200);

    // A second signal is not asked to wait.
    gateway.signal("TERM");
    let (status, _setup) = gateway.wait();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_delay_ends_by_itself() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with("shutdown_delay = \"300ms\"\n").start();
    let (status, _setup) = gateway.terminate();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn on_sigterm_running_work_ends_and_is_recorded_and_newcomers_are_refused() {
    let gate = Gate::shut();
    let ledger = ledger_with(&gate);
    let gateway = Gateway::in_front_of(&ledger).start();
    let seen = Mutex::new(BTreeMap::new());
    let mut running: Vec<_> =
        (0..RUNS).map(|n| BufReader::new(charge(&gateway, &format!("slow-{n}")).begin())).collect();
    for number in 0..RUNS {
        ledger.wait_for(&format!("slow-{number}"), 1);
    }

    std::thread::scope(|threads| {
        for client in 0..2 {
            let (gateway, seen) = (&gateway, &seen);
            threads.spawn(move || ask_until_refused(gateway, client, seen));
        }
        eventually("load", || (seen.lock().expect("no panic").len() > 20).then_some(()));
        gateway.signal("TERM");
    });
    eventually("newcomers are refused", || TcpStream::connect(gateway.address).err());
    let ready = gateway.admin("GET", "/readyz").send();
    assert_eq!((ready.status, ready.text().trim()), (503, "draining"));
    assert_eq!(gateway.admin("GET", "/healthz").send().status, 200);

    gate.open();
    for (number, client) in running.iter_mut().enumerate() {
        let answer = Answer::read(client).expect("running work is answered");
        assert_eq!(answer.status, 201);
        let mut seen = seen.lock().expect("no panic holds it");
        seen.insert(format!("slow-{number}"), answer);
    }
    let (status, setup) = gateway.wait();
    assert_eq!(status.code(), Some(0));

    let gateway = setup.start();
    for (key, seen) in &seen.into_inner().expect("no panic holds it") {
        let retry = charge(&gateway, key).send();
        assert_eq!(retry.header("idempotent-replayed"), Some("true"), "{key}");
        assert_eq!(retry.body, seen.body, "{key}");
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
}

/// One new key after the other, until no connection can be made.
fn ask_until_refused(gateway: &Gateway, client: usize, seen: &Mutex<BTreeMap<String, Answer>>) {
    for number in 0.. {
        let key = format!("quick-{client}-{number}");
        match charge(gateway, &key).try_send() {
            Ok(answer) => {
                assert_eq!(answer.status, 201, "{answer:?}");
                seen.lock().expect("no panic holds it").insert(key, answer);
            }
            Err(_) => return,
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "that draining ends in time is what is tested")]
fn work_longer_than_the_drain_time_is_left_to_its_recovery() {
    let gate = Gate::shut();
    let ledger = ledger_with(&gate);
    let settings = "drain_timeout = \"2s\"\n[idempotency]\nlease = \"1s\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let waiting = charge(&gateway, "slow").begin();
    ledger.wait_for("slow", 1);

    let told = Instant::now();
    let (status, setup) = gateway.terminate();
    let took = told.elapsed();
    assert_eq!(status.code(), Some(0));
    // Without the setting it would be 30 s.
    assert!(took < Duration::from_secs(20), "it drained for {took:?}, not for 2 s");
    drop(waiting);

    let gateway = setup.start();
    let retry = eventually("a decision", || {
        let retry = charge(&gateway, "slow").send();
        (retry.problem().as_deref() != Some("in-progress")).then_some(retry)
    });
    gate.open();
    assert_eq!((retry.status, retry.problem().as_deref()), (409, Some("outcome-unknown")));
    assert_eq!(ledger.effects("slow"), 1);
}

#[test]
fn a_client_that_has_gone_does_not_keep_its_work_from_being_recorded_at_sigterm() {
    let gate = Gate::shut();
    let ledger = ledger_with(&gate);
    let gateway = Gateway::in_front_of(&ledger).start();
    let client = charge(&gateway, "slow").begin();
    ledger.wait_for("slow", 1);
    drop(client);

    gateway.signal("TERM");
    eventually("newcomers are refused", || TcpStream::connect(gateway.address).err());
    gate.open();
    let (status, setup) = gateway.wait();
    assert_eq!(status.code(), Some(0));

    let gateway = setup.start();
    let retry = charge(&gateway, "slow").send();
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(ledger.effects("slow"), 1);
}

#[test]
fn an_idle_connection_does_not_delay_the_end() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let silent = gateway.post("/charges").connect().expect("a connection");
    let mut used = BufReader::new(charge(&gateway, "order-1").begin());
    assert_eq!(Answer::read(&mut used).expect("an answer").status, 201);

    // The drain time is 30 s, which is longer than anything here waits.
    let (status, _) = gateway.terminate();
    assert_eq!(status.code(), Some(0));
    drop((silent, used));
}

#[test]
fn the_process_serves_on_after_connections_were_cut_at_every_moment() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let whole = charge(&gateway, "cut").bytes();
    for cut in (0..whole.len()).step_by(3) {
        let mut connection = gateway.post("/charges").connect().expect("a connection");
        connection.write_all(&whole[..cut]).expect("sent");
    }
    assert_eq!(ledger.effects("cut"), 0, "nothing was whole, so nothing was sent on");
    for number in 0..20 {
        drop(charge(&gateway, &format!("gone-{number}")).begin());
    }

    let answer = charge(&gateway, "cut").send();
    assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, None));
    for number in 0..20 {
        let key = format!("gone-{number}");
        let answer = eventually("the key's answer", || {
            Some(charge(&gateway, &key).send()).filter(|answer| answer.status == 201)
        });
        assert_eq!(answer.status, 201);
        assert_eq!(ledger.effects(&key), 1, "{key}");
    }
    gateway.expect_metric("selfsame_in_flight", 0.0);
}
