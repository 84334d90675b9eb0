//! Row 33: a flipped bit in what is stored. It is an error and an alarm, never served and never
//! run again.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params};

use crate::harness::{Gateway, Ledger, Request, open_records};

/// The columns of a key's row, all that are never empty but its id: without that it is not found.
const COLUMNS: [&str; 17] = [
    "fingerprint",
    "state",
    "state_at",
    "fence",
    "attempt",
    "attempt_id",
    "recover",
    "created_at",
    "expires_at",
    "retention_ms",
    "tenant",
    "key",
    "route",
    "boot",
    "answer_bucket",
    "answer_row",
    "sum",
];

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json(r#"{"amount":10}"#)
}

/// A gateway that has answered each of `keys`, after `damage` was done to its records.
fn damaged(ledger: &Ledger, keys: &[String], damage: impl FnOnce(&Path)) -> Gateway {
    let gateway = Gateway::in_front_of(ledger).start();
    for key in keys.iter().map(String::as_str).chain(["sound"]) {
        assert_eq!(charge(&gateway, key).send().status, 201);
    }
    let (status, setup) = gateway.terminate();
    assert!(status.success());
    damage(&setup.data());
    setup.start()
}

/// Each of `keys` is refused for good, with an alarm each time; another key is none the worse.
fn assert_refused(gateway: Gateway, ledger: &Ledger, keys: &[String]) {
    for key in keys {
        let retry = charge(&gateway, key).send();
        let problem = retry.problem();
        assert_eq!((retry.status, problem.as_deref()), (500, Some("record-damaged")), "{key}");
        assert_eq!(retry.header("x-should-retry"), Some("false"), "{key}");
    }
    let alarms = gateway.metric("selfsame_damaged_records_total");
    assert_eq!(alarms, keys.len() as f64);
    let log = gateway.log();
    let is_alarm = |line: &&str| line.contains("ERROR") && line.contains("damaged");
    assert!(log.lines().filter(is_alarm).count() >= keys.len(), "{log}");

    let sound = charge(&gateway, "sound").send();
    assert_eq!((sound.status, sound.header("idempotent-replayed")), (201, Some("true")));

    // Nor does a restart, or what the reaper does at its start, make it right.
    let gateway = gateway.kill().start();
    for key in keys {
        assert_eq!(charge(&gateway, key).send().status, 500, "{key}");
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
}

/// The value with one of its bits another one.
fn flipped(value: Value, bit: usize) -> Value {
    let flip = |bytes: &mut [u8]| {
        let at = bit % (bytes.len() * 8);
        bytes[at / 8] ^= 1 << (at % 8);
    };
    match value {
        Value::Integer(number) => Value::Integer(number ^ (1 << bit)),
        Value::Text(text) => {
            let mut bytes = text.into_bytes();
            flip(&mut bytes);
            Value::Text(String::from_utf8(bytes).expect("a low bit of ASCII"))
        }
        Value::Blob(mut bytes) => {
            flip(&mut bytes);
            Value::Blob(bytes)
        }
        empty => panic!("nothing to flip in {empty:?}"),
    }
}

fn flip_in_row(records: &Connection, key: &str, column: &str, bit: usize) {
    let read = format!("SELECT id, {column} FROM keys WHERE key = ?1");
    let (id, value): (Value, Value) =
        records.query_row(&read, [key], |row| Ok((row.get(0)?, row.get(1)?))).expect("its row");
    let write = format!("UPDATE keys SET {column} = ?2 WHERE id = ?1");
    let changed = records.execute(&write, params![id, flipped(value, bit)]);
    assert_eq!(changed.expect("written"), 1);
}

fn flip_in_answer(records: &Connection, key: &str, at: impl FnOnce(usize) -> usize) {
    let place = "SELECT answer_bucket, answer_row FROM keys WHERE key = ?1";
    let (bucket, row): (i64, i64) =
        records.query_row(place, [key], |row| Ok((row.get(0)?, row.get(1)?))).expect("its row");
    let read = format!("SELECT body FROM answers_{bucket} WHERE row = ?1");
    let body: Vec<u8> = records.query_row(&read, [row], |row| row.get(0)).expect("its answer");
    let bit = at(body.len() * 8);
    let write = format!("UPDATE answers_{bucket} SET body = ?2 WHERE row = ?1");
    let changed = records.execute(&write, params![row, flipped(Value::Blob(body), bit)]);
    assert_eq!(changed.expect("written"), 1);
}

#[test]
fn an_answer_with_a_flipped_bit_is_neither_served_nor_run_again() {
    let ledger = Ledger::start();
    let keys = ["head", "middle", "end"].map(String::from);
    let gateway = damaged(&ledger, &keys, |folder| {
        let records = open_records(folder);
        flip_in_answer(&records, "head", |_| 0);
        flip_in_answer(&records, "middle", |bits| bits / 2);
        flip_in_answer(&records, "end", |bits| bits - 1);
    });
    assert_refused(gateway, &ledger, &keys);
}

#[test]
fn a_key_with_a_flipped_bit_in_any_column_is_neither_served_nor_run_again() {
    let ledger = Ledger::start();
    let keys = COLUMNS.map(|column| format!("low-{column}"));
    let gateway = damaged(&ledger, &keys, |folder| {
        let records = open_records(folder);
        for (key, column) in keys.iter().zip(COLUMNS) {
            flip_in_row(&records, key, column, 0);
        }
    });
    assert_refused(gateway, &ledger, &keys);
}

#[test]
fn a_flipped_bit_cannot_make_a_key_expire() {
    let ledger = Ledger::start();
    let keys = ["created_at", "expires_at", "state_at"].map(String::from);
    let gateway = damaged(&ledger, &keys, |folder| {
        let records = open_records(folder);
        for column in &keys {
            // Milliseconds since 1970: without this bit it is long ago.
            flip_in_row(&records, column, column, 40);
        }
    });
    assert_refused(gateway, &ledger, &keys);
}
