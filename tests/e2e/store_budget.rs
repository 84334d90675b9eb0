//! A store that has reached its limit refuses new keys, those of callers without a credential first, and keeps its promises
//! to all others.

use std::io::BufReader;

use selfsame_test_postgres::Server;

use crate::harness::{Answer, Gate, Gateway, Ledger, Request, Setup, SmallDisk, eventually, reply};
use crate::postgres::{database, gateway};

const MIB: usize = 1024 * 1024;

/// A megabyte that cannot be packed into half of it, another for each `seed`.
fn large(seed: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = seed as u64 + 1;
    let letter = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(LETTERS[(state >> 58) as usize])
    };
    (0..1_000_000).map(letter).collect()
}

/// An upstream with large answers, that of the key `slow` behind a gate.
fn upstream() -> (Ledger, Gate) {
    let (ledger, gate) = (Ledger::start(), Gate::shut());
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        if effect.header("idempotency-key") == Some("slow") {
            at_gate.pass();
        }
        reply(client, 201, &[], &large(effect.number))
    });
    (ledger, gate)
}

fn known(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).header("Authorization", "Bearer known").json("{}")
}

fn anonymous(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json("{}")
}

/// Waits until the gateway knows that its store has these many segments of a megabyte.
fn expect_segments(gateway: &Gateway, segments: usize) {
    let bytes = (segments * MIB + MIB / 4) as f64;
    eventually("the store has grown", || {
        (gateway.metric("selfsame_store_bytes") >= bytes).then_some(())
    });
}

fn assert_full(answer: &Answer) {
    answer.refused("store-unavailable");
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("max_store_bytes"), "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
}

#[test]
fn a_store_at_its_limit_takes_no_new_keys_and_answers_for_all_it_has() {
    let (ledger, gate) = upstream();
    let mut gateway =
        Gateway::in_front_of(&ledger).store_with("max_store_bytes = \"4MiB\"\n").start();
    let mut slow = BufReader::new(known(&gateway, "slow").begin());
    ledger.wait_for("slow", 1);
    let firsts: Vec<Answer> = (1..=3)
        .map(|n| {
            let first = anonymous(&gateway, &format!("a-{n}")).send();
            assert_eq!(first.status, 201);
            expect_segments(&gateway, n);
            first
        })
        .collect();

    // Beyond 80 %, callers without a credential have no new keys.
    assert_full(&anonymous(&gateway, "a-4").send());
    anonymous(&gateway, "a-1").send().replays(&firsts[0]);
    let first = known(&gateway, "k-1").send();
    assert_eq!(first.status, 201);
    expect_segments(&gateway, 4);

    // At the limit nobody has; what runs already is recorded.
    assert_full(&known(&gateway, "k-2").send());
    gate.open();
    let late = Answer::read(&mut slow).expect("an answer");
    assert_eq!(late.status, 201);
    known(&gateway, "slow").send().replays(&late);
    known(&gateway, "k-1").send().replays(&first);
    for (n, first) in firsts.iter().enumerate() {
        anonymous(&gateway, &format!("a-{}", n + 1)).send().replays(first);
    }
    gateway.expect_log("the store has reached its limit");
    assert_eq!((ledger.effects("a-4"), ledger.effects("k-2")), (0, 0));

    gateway.rewrite_store("max_store_bytes = \"1GiB\"\n");
    assert_eq!(gateway.reload().status, 200);
    assert_eq!(known(&gateway, "k-2").send().status, 201);
    assert_eq!(anonymous(&gateway, "a-4").send().status, 201);
    assert_eq!((ledger.effects("a-4"), ledger.effects("slow")), (1, 1));
}

/// A gateway whose store is on a small disk.
fn on(disk: &SmallDisk, setup: Setup) -> Gateway {
    let store = format!("file:{}", disk.folder().join("data").display());
    let setup = setup.store(&store);
    let config = setup.write_config();
    setup.start_as(disk.serve(&config))
}

#[test]
fn by_default_new_keys_are_refused_before_the_disk_is_full() {
    let ((ledger, _gate), disk) = (upstream(), SmallDisk::mount());
    // Of eight megabytes.
    disk.take(4 * MIB);
    let gateway = on(&disk, Gateway::in_front_of(&ledger));
    let mut firsts = Vec::new();
    let refused = loop {
        let number = firsts.len() + 1;
        let answer = anonymous(&gateway, &format!("a-{number}")).send();
        if answer.status != 201 {
            break answer;
        }
        firsts.push(answer);
        expect_segments(&gateway, number);
    };
    assert_full(&refused);
    let key = format!("a-{}", firsts.len() + 1);
    assert!(!firsts.is_empty() && ledger.effects(&key) == 0);
    assert!(gateway.metric("selfsame_store_bytes_max") < (4 * MIB) as f64);
    // The disk is not full, and what is known is answered.
    disk.take(MIB / 8);
    for (n, first) in firsts.iter().enumerate() {
        anonymous(&gateway, &format!("a-{}", n + 1)).send().replays(first);
    }

    disk.make_room();
    let taken = eventually("there is room for new keys", || {
        Some(anonymous(&gateway, &key).send()).filter(|answer| answer.status != 503)
    });
    assert_eq!((taken.status, ledger.effects(&key)), (201, 1));
    assert!(gateway.metric("selfsame_store_bytes_max") > (4 * MIB) as f64);
    assert!(!gateway.whole_log().contains("more than the store's disk can hold"));
}

#[test]
fn a_limit_that_the_disk_cannot_hold_is_warned_of() {
    let ((ledger, _gate), disk) = (upstream(), SmallDisk::mount());
    let setup = Gateway::in_front_of(&ledger).store_with("max_store_bytes = \"1GiB\"\n");
    let gateway = on(&disk, setup);
    gateway.expect_log("max_store_bytes is more than the store's disk can hold");
    gateway.expect_metric("selfsame_store_bytes_max", (1024 * MIB) as f64);
}

#[test]
fn the_tables_of_a_database_have_a_limit_too() {
    let (ledger, _gate) = upstream();
    let server = Server::start();
    let gateway = gateway(&ledger, &database(&server));
    let gateway = gateway.store_with("max_store_bytes = \"1MiB\"\n").start();
    let first = known(&gateway, "k-1").send();
    assert_eq!(first.status, 201);
    assert_eq!(known(&gateway, "k-2").send().status, 201);
    eventually("the size of the tables is known", || {
        (gateway.metric("selfsame_store_bytes") >= MIB as f64).then_some(())
    });
    assert_full(&known(&gateway, "k-3").send());
    known(&gateway, "k-1").send().replays(&first);
    assert_eq!(ledger.effects("k-3"), 0);
}
