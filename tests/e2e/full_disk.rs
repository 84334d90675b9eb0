//! Rows 30 and 31: the disk is full at the claim, or at the completion.

use std::io::BufReader;
use std::path::PathBuf;

use crate::harness::{
    Answer, Gate, Gateway, Ledger, Request, Setup, SmallDisk, assert_whole, eventually, reply,
};

/// An answer for which there is no room in what was written beforehand.
const LARGE: usize = 2 * 1024 * 1024;
const SMALL: usize = 64 * 1024;

/// A gateway's store on a small disk, and its spool elsewhere.
struct OnSmallDisk {
    disk: SmallDisk,
    ledger: Ledger,
    gate: Gate,
}

impl OnSmallDisk {
    /// Keys that begin with `slow` wait at the gate, and have large answers.
    fn new() -> Self {
        let (disk, ledger, gate) = (SmallDisk::mount(), Ledger::start(), Gate::shut());
        let at_gate = gate.clone();
        ledger.behave(move |effect, client| {
            let is_slow =
                effect.header("idempotency-key").is_some_and(|key| key.starts_with("slow"));
            if is_slow {
                at_gate.pass();
            }
            let len = if is_slow { LARGE } else { SMALL };
            reply(client, 201, &[], &format!("{}:{}", effect.number, "x".repeat(len)))
        });
        Self { disk, ledger, gate }
    }

    fn setup(&self, settings: &str) -> Setup {
        let store = self.disk.folder().join("data");
        let settings = format!("{settings}max_response_body = \"4MiB\"\n");
        let setup = Gateway::in_front_of(&self.ledger).with(&settings);
        let spool = spool_of(&setup);
        // By default new keys are refused before a disk is full; see `store_budget`.
        let setup = setup.store_with("max_store_bytes = \"off\"\n");
        setup.store(&format!("file:{}", store.display())).spool(&spool)
    }

    fn start(&self, setup: Setup) -> Gateway {
        let config = setup.write_config();
        setup.start_as(self.disk.serve(&config))
    }

    fn assert_whole(&self) {
        assert_whole(&self.disk.seen_from_outside().join("data"));
    }

    /// Runs `slow`, whose answer the full disk cannot take.
    fn answer_on_a_full_disk(&self, gateway: &Gateway) -> Answer {
        let mut client = BufReader::new(charge(gateway, "slow").begin());
        self.ledger.wait_for("slow", 1);
        self.disk.fill();
        self.gate.open();
        let answer = Answer::read(&mut client).expect("an answer, whatever the store says");
        assert_eq!((answer.status, answer.body.len() > LARGE), (201, true));
        answer
    }
}

const SHORT_LEASE: &str = "[idempotency]\nlease = \"1s\"\n";

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json(r#"{"amount":10}"#)
}

fn spool_of(setup: &Setup) -> PathBuf {
    setup.data().join("spool")
}

fn spooled(spool: &PathBuf) -> usize {
    std::fs::read_dir(spool).map_or(0, Iterator::count)
}

/// Retries until there is a replay, and takes nothing for an answer but refusals until then.
fn replayed(gateway: &Gateway, key: &str) -> Answer {
    eventually("a replay", || {
        let retry = charge(gateway, key).send();
        assert!(matches!(retry.status, 201 | 409 | 503), "{retry:?}");
        (retry.header("idempotent-replayed") == Some("true")).then_some(retry)
    })
}

#[test]
fn on_a_full_disk_claims_are_refused_and_replays_served_until_there_is_room() {
    let small = OnSmallDisk::new();
    let gateway = small.start(small.setup(SHORT_LEASE));
    let first = charge(&gateway, "order-1").send();
    assert_eq!(first.status, 201);

    small.disk.fill();
    // What was written beforehand is used up first, but for a part that is kept for answers.
    let mut orders = (2..100).map(|number| format!("order-{number}"));
    let (refused, key) = orders
        .by_ref()
        .map(|key| (charge(&gateway, &key).send(), key))
        .find(|(answer, _)| answer.status != 201)
        .expect("the disk is full");
    assert_eq!((refused.status, refused.problem().as_deref()), (503, Some("store-unavailable")));
    assert_eq!(refused.header("retry-after"), Some("1"));
    for _ in 0..5 {
        assert_eq!(charge(&gateway, &key).send().status, 503);
        assert_eq!(small.ledger.effects(&key), 0, "I9: nothing was sent");
        let retry = charge(&gateway, "order-1").send();
        assert_eq!(retry.header("idempotent-replayed"), Some("true"));
        assert_eq!(retry.body, first.body);
    }
    // Whatever ran was recorded.
    gateway.expect_metric("selfsame_unlanded_answers", 0.0);

    small.disk.make_room();
    let second = eventually("there is room again", || {
        Some(charge(&gateway, &key).send()).filter(|answer| answer.status != 503)
    });
    assert_eq!((second.status, second.header("idempotent-replayed")), (201, None));

    let ran = small.ledger.all().len();
    let setup = gateway.kill();
    small.assert_whole();
    let gateway = small.start(setup);
    assert_eq!(charge(&gateway, "order-1").send().body, first.body);
    assert_eq!(charge(&gateway, &key).send().body, second.body);
    assert_eq!(small.ledger.all().len(), ran, "nothing ran twice");
}

#[test]
fn an_answer_that_a_full_disk_refused_is_given_and_lands_when_there_is_room() {
    let small = OnSmallDisk::new();
    let setup = small.setup(SHORT_LEASE);
    let spool = spool_of(&setup);
    let gateway = small.start(setup);
    let answer = small.answer_on_a_full_disk(&gateway);
    gateway.expect_metric("selfsame_unlanded_answers", 1.0);
    assert_eq!(spooled(&spool), 1, "it is on a disk before its client reads it");
    let retry = charge(&gateway, "slow").send();
    assert!(matches!(retry.status, 409 | 503), "neither run again nor made up: {retry:?}");

    small.disk.make_room();
    assert_eq!(replayed(&gateway, "slow").body, answer.body);
    eventually("the spool is empty", || (spooled(&spool) == 0).then_some(()));
    gateway.expect_metric("selfsame_unlanded_answers", 0.0);
    assert_eq!(small.ledger.effects("slow"), 1);
    drop(gateway);
    small.assert_whole();
}

#[test]
fn a_spooled_answer_is_recorded_before_the_first_request_after_a_restart() {
    let small = OnSmallDisk::new();
    let setup = small.setup("[idempotency]\nlease = \"1s\"\nrecover = \"resume\"\n");
    let spool = spool_of(&setup);
    let gateway = small.start(setup);
    let answer = small.answer_on_a_full_disk(&gateway);
    let setup = gateway.kill();
    small.disk.make_room();

    let gateway = small.start(setup);
    let retry = charge(&gateway, "slow").send();
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    assert_eq!(retry.body, answer.body);
    assert_eq!((small.ledger.effects("slow"), spooled(&spool)), (1, 0));
}

#[test]
fn a_gateway_starts_on_a_full_disk_and_lands_what_was_spooled_when_there_is_room() {
    let small = OnSmallDisk::new();
    let gateway = small.start(small.setup(SHORT_LEASE));
    let order = charge(&gateway, "order-1").send();
    let answer = small.answer_on_a_full_disk(&gateway);

    let gateway = small.start(gateway.kill());
    assert_eq!(charge(&gateway, "order-1").send().body, order.body, "replays are served");
    let retry = charge(&gateway, "slow").send();
    assert!(matches!(retry.status, 409 | 503), "neither run again nor made up: {retry:?}");
    small.disk.make_room();
    assert_eq!(replayed(&gateway, "slow").body, answer.body);
    assert_eq!(small.ledger.effects("slow"), 1);
}

#[test]
fn an_answer_that_waits_for_the_store_is_not_overtaken_by_a_retry_under_resume() {
    let small = OnSmallDisk::new();
    let settings = "[idempotency]\nlease = \"1s\"\nrecover = \"resume\"\n";
    let gateway = small.start(small.setup(settings));
    let answer = small.answer_on_a_full_disk(&gateway);
    // It is renewed every third of a lease, for as long as its answer waits.
    let renewals = || gateway.metric(r#"selfsame_store_seconds_count{store="file",op="renew"}"#);
    let enough = renewals() + 7.0;
    eventually("more than two leases have passed", || (renewals() >= enough).then_some(()));

    small.disk.make_room();
    let retry = charge(&gateway, "slow").send();
    assert_eq!(small.ledger.effects("slow"), 1, "the answer is known: nothing is run again");
    assert_eq!(retry.header("idempotent-replayed"), Some("true"), "{}", retry.status);
    assert_eq!(retry.body, answer.body, "I4: its client has seen it");
}

#[test]
fn a_route_that_would_rather_run_than_wait_does_not_run_what_it_knows_to_be_done() {
    let small = OnSmallDisk::new();
    let settings = "[idempotency]\nlease = \"1s\"\non_store_error = \"bypass\"\n";
    let gateway = small.start(small.setup(settings));
    let answer = small.answer_on_a_full_disk(&gateway);

    let orders = (1..100).map(|number| charge(&gateway, &format!("order-{number}")).send());
    let unprotected = orders.inspect(|answer| assert_eq!(answer.status, 201));
    let is_unprotected = |answer: Answer| answer.header("selfsame-protected") == Some("false");
    assert!(unprotected.into_iter().any(is_unprotected), "the disk is full");
    assert_eq!(charge(&gateway, "slow").send().problem().as_deref(), Some("store-unavailable"));
    assert_eq!(small.ledger.effects("slow"), 1);

    small.disk.make_room();
    assert_eq!(replayed(&gateway, "slow").body, answer.body);
    assert_eq!(small.ledger.effects("slow"), 1);
}
