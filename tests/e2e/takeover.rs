//! Row 16: a gateway is stopped for longer than its lease, and goes on. Its rival shares its records.

use std::io::BufReader;

use selfsame_test_postgres::Server;

use crate::harness::{Answer, Gate, Gateway, Ledger, Request, eventually, reply};
use crate::postgres::database;

const SETTINGS: &str = "[idempotency]\nlease = \"4s\"\nrecover = \"resume\"\n";

fn charge(gateway: &Gateway) -> Request {
    gateway.post("/charges").key("order-1").json(r#"{"amount":10}"#)
}

/// An upstream where each attempt at the order waits at a gate of its own.
fn ledger_with(first: &Gate, second: &Gate) -> Ledger {
    let ledger = Ledger::start();
    let gates = [first.clone(), second.clone()];
    ledger.behave(move |effect, client| {
        let attempt = effect.header("selfsame-attempt").unwrap_or_default();
        match attempt {
            "1" => gates[0].pass(),
            _ => gates[1].pass(),
        }
        reply(client, 201, &["X-By: upstream"], &format!(r#"{{"attempt":{attempt}}}"#))
    });
    ledger
}

/// A gateway, and its rival on the same records.
fn gateways(ledger: &Ledger) -> (Server, Gateway, Gateway) {
    let server = Server::start();
    let url = database(&server);
    let start = || crate::postgres::gateway(ledger, &url).with(SETTINGS).start();
    let (gateway, rival) = (start(), start());
    (server, gateway, rival)
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
    let (_server, stopped, rival) = gateways(&ledger);
    let mut first = BufReader::new(charge(&stopped).begin());
    ledger.wait_for("order-1", 1);
    assert_eq!(charge(&rival).send().problem().as_deref(), Some("in-progress"));

    stopped.signal("STOP");
    let winner = eventually("the take-over", || {
        Some(charge(&rival).send()).filter(|answer| answer.status == 201)
    });
    assert_eq!(winner.text(), r#"{"attempt":2}"#);
    rival.expect_metric("selfsame_leases_expired_total", 1.0);

    stopped.signal("CONT");
    stopped.expect_metric("selfsame_fenced_writes_total", 1.0);
    gate.open();
    let told = Answer::read(&mut first).expect("the first client is answered");
    assert_eq!(told.header("idempotent-replayed"), Some("true"));
    assert_eq!((told.status, &told.body), (winner.status, &winner.body));
    assert_eq!(told.header("x-by"), Some("upstream"));
    // The renewal, and the answer.
    stopped.expect_metric("selfsame_fenced_writes_total", 2.0);

    for gateway in [&stopped, &rival] {
        assert_eq!(charge(gateway).send().body, winner.body);
    }
    assert_eq!(ledger.effects("order-1"), 2, "a lost lease under resume may run twice");
}

#[test]
fn while_the_winner_still_runs_the_loser_is_told_so() {
    let (losers_gate, winners_gate) = (Gate::shut(), Gate::shut());
    let ledger = ledger_with(&losers_gate, &winners_gate);
    let (_server, stopped, rival) = gateways(&ledger);
    let mut first = BufReader::new(charge(&stopped).begin());
    ledger.wait_for("order-1", 1);

    stopped.signal("STOP");
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
    let (_server, stopped, rival) = gateways(&ledger);
    let mut first = BufReader::new(charge(&stopped).begin());
    ledger.wait_for("order-1", 1);

    stopped.signal("STOP");
    wait_for_the_lease_to_end(&rival);
    gate.open();
    stopped.signal("CONT");

    let answer = Answer::read(&mut first).expect("the client is answered");
    assert_eq!((answer.status, answer.text().as_str()), (201, r#"{"attempt":1}"#));
    assert_eq!(charge(&stopped).send().body, answer.body);
    assert_eq!(ledger.effects("order-1"), 1);
    stopped.expect_metric("selfsame_fenced_writes_total", 0.0);
}
