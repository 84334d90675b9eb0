//! Row 33: a flipped bit in what is stored. It is an error and an alarm, never served and never
//! run again.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{Gateway, Ledger, Request, Setup, binary, eventually, reply};

/// An upstream that says to each key what only that one hears.
fn ledger() -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| {
        let key = effect.header("idempotency-key").unwrap_or_default();
        reply(client, 201, &[], &format!("begin of {key}, and its end"))
    });
    ledger
}

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json(r#"{"amount":10}"#)
}

/// A gateway that has answered each of `keys` and one more, and was stopped.
fn answered(ledger: &Ledger, keys: &[&str]) -> Setup {
    let gateway = Gateway::in_front_of(ledger).start();
    for key in keys.iter().chain(&["sound"]) {
        assert_eq!(charge(&gateway, key).send().status, 201);
    }
    let (status, setup) = gateway.terminate();
    assert!(status.success());
    setup
}

fn log_in(folder: &Path) -> PathBuf {
    folder.join("records-00000001.log")
}

/// Flips a bit so many bytes behind the first place where `text` is.
fn flip(folder: &Path, text: &str, behind: usize) {
    let mut log = fs::read(log_in(folder)).expect("the log is there");
    let mut windows = log.windows(text.len());
    let at = windows.position(|window| window == text.as_bytes()).expect("it is in the log");
    log[at + behind] ^= 1;
    fs::write(log_in(folder), log).expect("the log can be written");
}

#[test]
fn a_record_with_a_flipped_bit_is_neither_served_nor_run_again() {
    let ledger = ledger();
    let keys = ["in-the-claim", "at-the-begin", "at-the-end"];
    let setup = answered(&ledger, &keys);
    flip(&setup.data(), keys[0], 0);
    flip(&setup.data(), "begin of at-the-begin", 0);
    let last = "begin of at-the-end, and its end";
    flip(&setup.data(), last, last.len() - 1);

    let gateway = setup.start();
    for key in keys {
        let retry = charge(&gateway, key).send();
        let problem = retry.problem();
        assert_eq!((retry.status, problem.as_deref()), (500, Some("record-damaged")), "{key}");
        assert_eq!(retry.header("x-should-retry"), Some("false"), "{key}");
    }
    gateway.expect_metric("selfsame_damaged_records_total", keys.len() as f64);
    let is_alarm = |line: &&str| line.contains("ERROR") && line.contains("damaged");
    eventually("the alarms are in the log", || {
        (gateway.log().lines().filter(is_alarm).count() >= keys.len()).then_some(())
    });

    let sound = charge(&gateway, "sound").send();
    assert_eq!((sound.status, sound.header("idempotent-replayed")), (201, Some("true")));

    // Nor does a restart, or what the reaper does at its start, make it right.
    let gateway = gateway.kill().start();
    for key in keys {
        assert_eq!(charge(&gateway, key).send().status, 500, "{key}");
        assert_eq!(ledger.effects(key), 1, "{key}");
    }

    // Somebody knows that one of them was not done, and finds its id in the log.
    let id = eventually("each is named in the log", || {
        let log = gateway.log();
        let mut ids: Vec<String> = Vec::new();
        for alarm in log.lines().filter(is_alarm) {
            let alarm: serde_json::Value = serde_json::from_str(alarm).expect("JSON");
            let id = alarm["record"].as_str().expect("it names the record");
            if !ids.iter().any(|known| known == id) {
                ids.push(id.to_owned());
            }
        }
        // They were asked for one after the other.
        ids.get(keys.len() - 1).cloned()
    });
    let id = id.as_str();
    let (_, setup) = gateway.terminate();
    let forget = |id: &str| {
        let store = format!("file:{}", setup.data().display());
        let done = binary().args(["store", "forget-damaged", id, "--store", &store]).output();
        done.expect("it runs").status.success()
    };
    assert!(!forget("0123456789ab") && forget(id) && !forget(id));
    let gateway = setup.start();
    let anew = charge(&gateway, keys[2]).send();
    assert_eq!((anew.status, anew.header("idempotent-replayed")), (201, None));
    assert_eq!(charge(&gateway, keys[1]).send().status, 500);
}

#[test]
fn a_hole_in_the_log_costs_its_own_key_and_without_the_index_the_gateway_does_not_start() {
    let ledger = ledger();
    let setup = answered(&ledger, &["first"]);
    let mut log = fs::read(log_in(&setup.data())).expect("the log is there");
    // A head, so that only the index knows whose record it was.
    log[50] ^= 1;
    fs::write(log_in(&setup.data()), log).expect("the log can be written");

    let gateway = setup.start();
    assert_eq!(charge(&gateway, "first").send().status, 500);
    assert_eq!(charge(&gateway, "sound").send().header("idempotent-replayed"), Some("true"));
    assert_eq!(ledger.effects("first"), 1);
    let (status, setup) = gateway.terminate();
    assert!(status.success());
    fs::remove_dir_all(setup.data().join("index")).expect("there is an index");

    let refused = binary().args(["serve", "--config"]).arg(setup.write_config()).output();
    let refused = refused.expect("it runs");
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    for part in ["records-00000001.log is damaged", "at byte 28", "selfsame store repair"] {
        assert!(said.contains(part), "{said}");
    }
}
