//! The whole way of one request.

use crate::harness::{Gateway, Ledger};

#[test]
fn a_retry_gets_the_first_answer_and_the_ledger_says_one() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();

    let first = gateway.post("/charges").key("order-1").json(r#"{"amount":10}"#).send();
    let retry = gateway.post("/charges").key("order-1").json(r#"{"amount":10}"#).send();

    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None));
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(first.body, retry.body);
    assert_eq!(ledger.effects("order-1"), 1);
}
