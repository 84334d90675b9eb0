//! Answers near the gateway: replayed without the store, and gone when another gateway had them erased.

use selfsame_test_redis::Server;

use crate::harness::{Gateway, Ledger, eventually};

const NEAR_REPLAYS: &str = "selfsame_near_replays_total";

#[test]
fn an_answer_that_was_replayed_is_near_until_another_gateway_has_it_erased() {
    let server = Server::start();
    let ledger = Ledger::start();
    let [near, other] =
        [(); 2].map(|()| Gateway::in_front_of(&ledger).store(&server.url(0)).start());
    let charge = near.post("/charges").key("k").json("{}");
    let first = other.post("/charges").key("k").json("{}").send();
    charge.send().replays(&first);
    eventually("it is near", || {
        charge.send().replays(&first);
        (near.metric(NEAR_REPLAYS) >= 2.0).then_some(())
    });
    near.post("/charges").key("k").json(r#"{"amount":2}"#).send().refused("key-reused");

    assert!(other.keys(&["erase", "k"]).status.success());
    other.post("/charges").key("k").json("{}").send().refused("key-expired");
    eventually("it is gone everywhere", || (charge.send().status == 410).then_some(()));
    assert_eq!(ledger.effects("k"), 1);
}

#[test]
fn every_replay_asks_the_store_where_nothing_is_to_be_near() {
    let server = Server::start();
    let ledger = Ledger::start();
    let setup = Gateway::in_front_of(&ledger).store(&server.url(0));
    let gateway = setup.store_with("near_cache = \"off\"").start();
    let charge = gateway.post("/charges").key("k").json("{}");
    let first = charge.send();
    for _ in 0..3 {
        charge.send().replays(&first);
    }
    gateway.expect_metric(NEAR_REPLAYS, 0.0);
}
