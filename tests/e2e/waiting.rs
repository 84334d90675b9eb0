//! Requests that would rather wait for the run of their key than be refused.

use std::io::BufReader;
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{Answer, Gate, Gateway, Ledger, Request, eventually, reply, within};

const WAIT: &str = "[idempotency]\non_conflict = \"wait\"\nwait_max = \"50s\"\n";
/// Time in which a crowd comes together, also on a busy machine.
const LONG: Duration = Duration::from_secs(600);
const LONG_WAIT: &str = "[idempotency]\non_conflict = \"wait\"\nwait_max = \"10m\"\n\
                         response_timeout = \"10m\"\n";
/// As many as may wait for one key.
const CROWD: usize = 10_000;
const RESIDENT_KIB_MAX: u64 = 256 * 1024;

/// An upstream that answers once the gate is open.
fn gated_ledger() -> (Ledger, Gate) {
    let (ledger, gate) = (Ledger::start(), Gate::shut());
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        at_gate.pass_within(LONG);
        reply(client, 201, &[], &format!("charge {}", effect.number))
    });
    (ledger, gate)
}

fn read(connection: TcpStream) -> Answer {
    Answer::read(&mut BufReader::new(connection)).expect("an answer")
}

/// Sends `request` so many times, and comes back when all of them wait.
fn begin_waiting(gateway: &Gateway, request: &Request, count: usize) -> Vec<TcpStream> {
    let looks = || gateway.metric(r#"selfsame_store_seconds_count{store="file",op="claim"}"#);
    // A waiter looks once when it comes, and once more when it has taken its place.
    let enough = looks() + (2 * count) as f64;
    let waiters = (0..count).map(|_| request.begin()).collect();
    within(LONG, || (looks() >= enough).then_some(())).expect("everyone waits");
    waiters
}

#[test]
fn ten_thousand_wait_for_one_key_in_bounded_memory_and_get_one_answer() {
    let (ledger, gate) = gated_ledger();
    // All of them come from one address.
    let limits =
        "[limits]\nmax_connections_per_address = 20000\nmax_requests_per_address = 20000\n";
    let gateway = Gateway::in_front_of(&ledger).with(limits).with(LONG_WAIT).start();
    let request = gateway.post("/charges").key("crowd").json(r#"{"amount":10}"#);

    let first = request.begin();
    ledger.wait_for("crowd", 1);
    let crowd = begin_waiting(&gateway, &request, CROWD);
    let resident = gateway.resident_kib();
    assert!(resident < RESIDENT_KIB_MAX, "{resident} KiB for {CROWD} waiters");
    // One more than may wait is refused at once.
    request.send().refused("in-progress");
    gate.open();

    let first = read(first);
    assert_eq!((first.status, first.text().as_str()), (201, "charge 1"));
    for waiter in crowd {
        read(waiter).replays(&first);
    }
    assert_eq!(ledger.effects("crowd"), 1);
    let waited = r#"selfsame_requests_total{route="default",outcome="waited"}"#;
    eventually("all are counted", || (gateway.metric(waited) == CROWD as f64).then_some(()));
}

#[test]
fn a_client_may_ask_to_wait_where_the_route_would_refuse() {
    let (ledger, gate) = gated_ledger();
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("asked").json("{}");

    let first = request.begin();
    ledger.wait_for("asked", 1);
    request.send().refused("in-progress");
    let brief = request.clone().header("Prefer", "wait=1").send();
    brief.refused("in-progress");
    assert_eq!(brief.header("preference-applied"), Some("wait=1"));
    let patient = request.clone().header("Prefer", "wait=600");
    let patient = begin_waiting(&gateway, &patient, 1).remove(0);
    gate.open();

    let first = read(first);
    let patient = read(patient);
    patient.replays(&first);
    // The route's own limit goes before the client's wish.
    assert_eq!(patient.header("preference-applied"), Some("wait=10"));
    assert_eq!(ledger.effects("asked"), 1);
}

#[test]
fn those_who_wait_when_the_key_is_freed_run_one_at_a_time() {
    let (ledger, gate) = (Ledger::start(), Gate::shut());
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        at_gate.pass();
        let status = if effect.number < 3 { 503 } else { 201 };
        reply(client, status, &[], &format!("run {}", effect.number))
    });
    let gateway = Gateway::in_front_of(&ledger).with(WAIT).start();
    let request = gateway.post("/charges").key("freed").json("{}");

    let first = request.begin();
    ledger.wait_for("freed", 1);
    let rivals = begin_waiting(&gateway, &request, 50);
    gate.open();

    assert_eq!(read(first).status, 503);
    let answers: Vec<Answer> = rivals.into_iter().map(read).collect();
    let of = |text: &str| answers.iter().filter(|answer| answer.text() == text).count();
    assert_eq!((of("run 2"), of("run 3")), (1, 49));
    assert_eq!(ledger.effects("freed"), 3);
}

#[test]
fn a_waiter_that_hangs_up_takes_nothing_with_it() {
    let (ledger, gate) = gated_ledger();
    let gateway = Gateway::in_front_of(&ledger).with(WAIT).start();
    let request = gateway.post("/charges").key("left").json("{}");

    let first = request.begin();
    ledger.wait_for("left", 1);
    let gone = begin_waiting(&gateway, &request, 20);
    let stays = begin_waiting(&gateway, &request, 1).remove(0);
    drop(gone);
    gate.open();

    let first = read(first);
    read(stays).replays(&first);
    assert_eq!(ledger.effects("left"), 1);
}
