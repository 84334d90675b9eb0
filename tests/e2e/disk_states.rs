//! States of the disk other than full or failed: it hangs, takes no new files, or is read-only.

use std::io::BufReader;
use std::time::Duration;

use crate::harness::{
    Answer, Gate, Gateway, Ledger, Machine, Request, Setup, SmallDisk, eventually, reply, within,
};

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json(r#"{"amount":10}"#)
}

fn state(gateway: &Gateway, path: &str) -> (u16, String) {
    let answer = gateway.admin("GET", path).send();
    (answer.status, answer.text())
}

fn start(machine: &Machine, setup: Setup) -> Gateway {
    let config = setup.write_config();
    setup.start_as(machine.serve(&config))
}

/// Sends requests with new keys until one is refused.
fn first_refused(gateway: &Gateway) -> (String, Answer) {
    let keys = (1..1000).map(|number| format!("order-{number}"));
    let mut sent = keys.map(|key| (charge(gateway, &key).send(), key));
    let (refused, key) = sent.find(|(answer, _)| answer.status != 201).expect("no room is left");
    assert_eq!((refused.status, refused.problem().as_deref()), (503, Some("store-unavailable")));
    (key, refused)
}

/// Waits until a key that was refused is taken, and runs once.
fn taken(gateway: &Gateway, ledger: &Ledger, key: &str) {
    let answer = eventually("the key is taken", || {
        let answer = charge(gateway, key).send();
        assert!(matches!(answer.status, 201 | 409 | 503), "{answer:?}");
        Some(answer).filter(|answer| answer.status == 201)
    });
    charge(gateway, key).send().replays(&answer);
    assert_eq!(ledger.effects(key), 1);
    eventually("it is ready", || (state(gateway, "/readyz").0 == 200).then_some(()));
}

#[test]
fn a_disk_that_hangs_keeps_nothing_from_being_replayed_and_passes_without_a_restart() {
    let (machine, ledger, gate) = (Machine::new(), Ledger::start(), Gate::shut());
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        if effect.header("idempotency-key") == Some("running") {
            at_gate.pass();
        }
        reply(client, 201, &[], &effect.number.to_string())
    });
    let gateway = start(&machine, Gateway::in_front_of(&ledger));
    let first = charge(&gateway, "known").send();
    assert_eq!(first.status, 201);
    charge(&gateway, "known").send().replays(&first);
    let mut running = BufReader::new(charge(&gateway, "running").begin());
    ledger.wait_for("running", 1);

    machine.hang_disk(true);
    gate.open();
    let mut waiting = BufReader::new(charge(&gateway, "new").begin());
    eventually("it is said that the disk hangs", || {
        charge(&gateway, "known").send().replays(&first);
        let (status, text) = state(&gateway, "/readyz");
        (status == 503 && text.contains("the disk has not answered for")).then_some(())
    });
    assert_eq!(state(&gateway, "/healthz").0, 200, "a restart would not help");
    let refused = Answer::read(&mut waiting).expect("an answer");
    assert_eq!((refused.status, ledger.effects("new")), (503, 0));
    // Neither the store nor the spool can take its answer, and its client does not wait for them.
    let answer = Answer::read(&mut running).expect("an answer");
    assert_eq!(answer.status, 201);
    let replayed = within(Duration::from_secs(5), || Some(charge(&gateway, "known").send()));
    replayed.expect("an answer").replays(&first);

    machine.hang_disk(false);
    taken(&gateway, &ledger, "new");
    charge(&gateway, "known").send().replays(&first);
    let replayed = eventually("the answer is recorded", || {
        let retry = charge(&gateway, "running").send();
        assert!(matches!(retry.status, 201 | 409 | 503), "{retry:?}");
        Some(retry).filter(|retry| retry.status == 201)
    });
    replayed.replays(&answer);
    assert_eq!(ledger.effects("running"), 1);
}

#[test]
fn a_disk_that_is_read_only_for_a_while_passes_without_a_restart() {
    let (machine, ledger) = (Machine::new(), Ledger::start());
    let gateway = start(&machine, Gateway::in_front_of(&ledger));
    let first = charge(&gateway, "known").send();
    assert_eq!(first.status, 201);
    machine.make_disk_read_only(true);
    let refused = charge(&gateway, "new").send();
    assert_eq!((refused.status, ledger.effects("new")), (503, 0));
    charge(&gateway, "known").send().replays(&first);
    let (status, text) = state(&gateway, "/readyz");
    assert_eq!((status, text.contains("Read-only file system")), (503, true), "{text}");
    assert_eq!(state(&gateway, "/healthz").0, 200);
    gateway.expect_log("the store takes no new keys");

    machine.make_disk_read_only(false);
    taken(&gateway, &ledger, "new");
    gateway.expect_log("the store takes new keys again");
    let (gateway, ran) = (start(&machine, gateway.kill()), ledger.all().len());
    charge(&gateway, "known").send().replays(&first);
    assert_eq!(ledger.all().len(), ran);
}

#[test]
fn a_disk_without_inodes_takes_no_new_keys_until_there_are_some() {
    let (disk, ledger) = (SmallDisk::with_few_inodes(), Ledger::start());
    ledger.behave(|effect, client| {
        reply(client, 201, &[], &format!("{}:{}", effect.number, "x".repeat(64 * 1024)))
    });
    let setup = Gateway::in_front_of(&ledger).store_with("max_store_bytes = \"off\"\n");
    let setup = setup.store(&format!("file:{}", disk.folder().join("data").display()));
    let config = setup.write_config();
    let gateway = setup.start_as(disk.serve(&config));
    let first = charge(&gateway, "known").send();
    assert_eq!(first.status, 201);
    disk.take_inodes();
    let (key, _) = first_refused(&gateway);
    assert_eq!(ledger.effects(&key), 0);
    charge(&gateway, "known").send().replays(&first);
    let (status, text) = state(&gateway, "/readyz");
    assert_eq!((status, text.contains("cannot make its next file")), (503, true), "{text}");
    assert_eq!(state(&gateway, "/healthz").0, 200);
    disk.give_inodes();
    taken(&gateway, &ledger, &key);
}
