//! Row 17: the upstream cannot be reached, so nothing was sent and the key is free.

use std::net::SocketAddr;

use selfsame_test_ports::free_port;

use crate::harness::{Gateway, Ledger};

/// An address where nobody listens, and nobody will unless told to.
pub(crate) fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

#[test]
fn a_refused_connection_leaves_the_key_free_and_the_retry_runs_as_the_first_attempt() {
    let address = nobody();
    // The strictest settings: what was never sent is not held.
    let settings = "[idempotency]\nrecover = \"hold\"\nserver_errors = \"hold\"\n";
    let gateway = Gateway::before(address).with(settings).start();
    let request = gateway.post("/charges").key("early").json(r#"{"amount":10}"#);

    for _ in 0..3 {
        request.send().refused("upstream-unreachable");
    }
    let counted = r#"selfsame_requests_total{route="default",outcome="unreachable"}"#;
    gateway.expect_metric(counted, 3.0);
    let other = gateway.post("/charges").key("early").json(r#"{"amount":11}"#).send();
    other.refused("key-reused");

    let ledger = Ledger::start_at(address);
    let first = request.send();
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None));
    assert_eq!(ledger.of("early")[0].header("selfsame-attempt"), Some("1"));
    request.send().replays(&first);
    assert_eq!(ledger.effects("early"), 1);
}

#[test]
fn a_name_that_cannot_be_resolved_leaves_the_key_free() {
    let gateway = Gateway::before_host("nowhere.invalid:80").start();
    let request = gateway.post("/charges").key("lost").json("{}");
    for _ in 0..2 {
        request.send().refused("upstream-unreachable");
    }
    gateway.expect_log("the upstream cannot be reached");
}

#[test]
fn an_unkeyed_request_is_told_the_same() {
    let gateway = Gateway::before(nobody()).start();
    gateway.post("/charges").json("{}").send().refused("upstream-unreachable");
    gateway.request("GET", "/charges").send().refused("upstream-unreachable");
}
