//! Row 16: a gateway is stopped for longer than its lease, and goes on.
//!
//! The rival that takes over must be a second process, and the folder's lock would refuse it: so
//! the rival has a folder of its own, whose `records.db` is a link to the first one's. SQLite lets
//! both write; nothing else of them is made up.

use std::io::BufReader;
use std::os::unix::fs::symlink;

use crate::harness::{Answer, Gate, Gateway, Ledger, Request, eventually, reply};

const SETTINGS: &str = "[idempotency]\nlease = \"1s\"\nrecover = \"resume\"\n";

fn charge(gateway: &Gateway) -> Request {
    gateway.post("/charges").key("order-1").json(r#"{"amount":10}"#)
}

/// An upstream where each attempt at the order waits at a gate of its own.
fn ledger_with(first: &Gate, second: &Gate) -> Ledger {
    let ledger = Ledger::start();
    let gates = [first.clone(), second.clone()];
    ledger.behave(move |effect, client| {
        let attempt = effect.header("selfsame-attempt").unwrap_or_default();
        match (effect.header("idempotency-key"), attempt) {
            (Some("order-1"), "1") => gates[0].pass(),
            (Some("order-1"), _) => gates[1].pass(),
            // A probe leaves no answer behind: only that its claim could be written counts.
            _ => return reply(client, 429, &[], ""),
        }
        reply(client, 201, &["X-By: upstream"], &format!(r#"{{"attempt":{attempt}}}"#))
    });
    ledger
}

/// A second gateway on the first one's records.
fn rival_of(gateway: &Gateway, ledger: &Ledger) -> Gateway {
    let setup = Gateway::in_front_of(ledger).with(SETTINGS);
    std::fs::create_dir(setup.data()).expect("made");
    let records = "records.db";
    symlink(gateway.data().join(records), setup.data().join(records)).expect("linked");
    setup.start()
}

/// Stops a gateway, at a moment when it does not keep the rival from writing.
fn stop(gateway: &Gateway, rival: &Gateway) {
    eventually("a moment between two writes", || {
        gateway.signal("STOP");
        let probe = rival.post("/charges").key("probe").send();
        if probe.status == 503 {
            gateway.signal("CONT");
        }
        (probe.status == 429).then_some(())
    });
}

/// Waits until nobody's lease is in the way of the rival any more.
fn wait_for_the_lease_to_end(rival: &Gateway) {
    eventually("the lease is over", || {
        let shown = rival.keys(&["show", "order-1"]).stdout;
        String::from_utf8_lossy(&shown).contains("the next retry goes on").then_some(())
    });
}

#[test]
fn the_late_answer_of_a_stopped_gateway_is_fenced_and_its_client_told_the_stored_truth() {
    let (gate, open) = (Gate::shut(), Gate::shut());
    open.open();
    let ledger = ledger_with(&gate, &open);
    let stopped = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    let rival = rival_of(&stopped, &ledger);
    let mut first = BufReader::new(charge(&stopped).begin());
    ledger.wait_for("order-1", 1);
    assert_eq!(charge(&rival).send().problem().as_deref(), Some("in-progress"));

    stop(&stopped, &rival);
    let winner = eventually("the take-over", || {
        Some(charge(&rival).send()).filter(|answer| answer.status == 201)
    });
    assert_eq!(winner.text(), r#"{"attempt":2}"#);
    assert_eq!(rival.metric("selfsame_leases_expired_total"), 1.0);

    stopped.signal("CONT");
    eventually("the lost claim is noticed", || {
        (stopped.metric("selfsame_fenced_writes_total") == 1.0).then_some(())
    });
    gate.open();
    let told = Answer::read(&mut first).expect("the first client is answered");
    assert_eq!(told.header("idempotent-replayed"), Some("true"));
    assert_eq!((told.status, &told.body), (winner.status, &winner.body));
    assert_eq!(told.header("x-by"), Some("upstream"));
    assert_eq!(stopped.metric("selfsame_fenced_writes_total"), 2.0, "the renewal, the answer");

    for gateway in [&stopped, &rival] {
        assert_eq!(charge(gateway).send().body, winner.body);
    }
    assert_eq!(ledger.effects("order-1"), 2, "a lost lease under resume may run twice");
}

#[test]
fn while_the_winner_still_runs_the_loser_is_told_so() {
    let (losers_gate, winners_gate) = (Gate::shut(), Gate::shut());
    let ledger = ledger_with(&losers_gate, &winners_gate);
    let stopped = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    let rival = rival_of(&stopped, &ledger);
    let mut first = BufReader::new(charge(&stopped).begin());
    ledger.wait_for("order-1", 1);

    stop(&stopped, &rival);
    wait_for_the_lease_to_end(&rival);
    let mut second = BufReader::new(charge(&rival).begin());
    ledger.wait_for("order-1", 2);
    stopped.signal("CONT");
    losers_gate.open();
    let told = Answer::read(&mut first).expect("the first client is answered");
    assert_eq!((told.status, told.problem().as_deref()), (409, Some("in-progress")));

    winners_gate.open();
    let winner = Answer::read(&mut second).expect("the second client is answered");
    assert_eq!((winner.status, winner.text().as_str()), (201, r#"{"attempt":2}"#));
    assert_eq!(charge(&stopped).send().body, winner.body);
}

#[test]
fn a_stopped_gateway_whose_run_nobody_took_over_goes_on() {
    let (gate, open) = (Gate::shut(), Gate::shut());
    open.open();
    let ledger = ledger_with(&gate, &open);
    let stopped = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    let rival = rival_of(&stopped, &ledger);
    let mut first = BufReader::new(charge(&stopped).begin());
    ledger.wait_for("order-1", 1);

    stop(&stopped, &rival);
    wait_for_the_lease_to_end(&rival);
    gate.open();
    stopped.signal("CONT");

    let answer = Answer::read(&mut first).expect("the client is answered");
    assert_eq!((answer.status, answer.text().as_str()), (201, r#"{"attempt":1}"#));
    assert_eq!(charge(&stopped).send().body, answer.body);
    assert_eq!(ledger.effects("order-1"), 1);
    assert_eq!(stopped.metric("selfsame_fenced_writes_total"), 0.0);
}
