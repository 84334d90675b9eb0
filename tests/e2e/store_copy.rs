//! Records that are moved from one store to another, and what a gateway says of its store.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use selfsame_test_postgres::Server as Postgres;
use selfsame_test_redis::Server as Redis;
use serde_json::Value;
use tempfile::TempDir;

use crate::encryption::new_key;
use crate::harness::{
    Answer, Ended, Gateway, Ledger, Request, Setup, Then, binary, eventually, reply, run_to_end,
};
use crate::postgres::database;

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).header("Authorization", "Bearer ann").json("{}")
}

/// An upstream that loses the answer of `held`, and has no time for the first of `busy`.
fn upstream() -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("idempotency-key") {
        Some("held") => Then::Close,
        Some("busy") if effect.header("selfsame-attempt") == Some("1") => {
            reply(client, 429, &[], "later")
        }
        _ => reply(client, 201, &["X-Charge: 7"], "charged"),
    });
    ledger
}

fn store(args: &[&str]) -> Ended {
    let mut command = binary();
    command.arg("store").args(args);
    run_to_end(command)
}

#[track_caller]
fn copied(from: &str, to: &str) -> String {
    let ended = store(&["copy", from, to]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

#[track_caller]
fn refused(args: &[&str], parts: &[&str]) {
    let ended = store(args);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in parts {
        assert!(ended.stderr.contains(part), "{part:?} in {ended:?}");
    }
}

/// A key in each state, and the answer that is kept.
fn live(gateway: &Gateway) -> Answer {
    let done = charge(gateway, "done").send();
    assert_eq!(done.status, 201);
    charge(gateway, "held").send().refused("upstream-failed");
    assert_eq!(charge(gateway, "busy").send().status, 429);
    assert_eq!(charge(gateway, "erased").send().status, 201);
    assert!(gateway.keys(&["erase", "erased"]).status.success());
    done
}

/// Every key is what it was: the same key of the same tenant, in the same state.
#[track_caller]
fn assert_same(gateway: &Gateway, ledger: &Ledger, done: &Answer) {
    charge(gateway, "done").send().replays(done);
    charge(gateway, "held").send().refused("outcome-unknown");
    charge(gateway, "erased").send().refused("key-expired");
    let counts = ["done", "held", "erased"].map(|key| ledger.effects(key));
    assert_eq!(counts, [1, 1, 1], "nothing ran again");
    assert!(!gateway.log().contains("this store is new"));
}

#[test]
fn records_go_from_store_to_store_and_stay_what_they_are() {
    let (postgres, redis, ledger) = (Postgres::start(), Redis::start(), upstream());
    // What is encrypted stays so: the same key opens it elsewhere.
    let folder = TempDir::new().expect("a folder");
    let keys = folder.path().join("keys");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&keys);
    file.and_then(|mut file| file.write_all(new_key("a").as_bytes())).expect("written");
    let settings = format!("[encryption]\nkey_file = {keys:?}\n");
    let setup = || Gateway::in_front_of(&ledger).with(&settings);
    let (first, last) = (setup(), setup());
    let file = |setup: &Setup| format!("file:{}", setup.data().display());
    let places = [file(&first), database(&postgres), redis.url(0), file(&last)];
    let gateway = first.start();
    let done = live(&gateway);
    let (status, _first) = gateway.terminate();
    assert!(status.success());

    for (from, to) in places.iter().zip(&places[1..]) {
        let said = copied(from, to);
        assert!(said.contains("copied: 4 records are in "), "{said}");
        assert!(!said.contains("correct-horse"), "{said}");
        let info = store(&["info", to]).stdout;
        let records = "records   4: 0 claimed, 1 completed, 1 failed, 1 held, 1 tombstones\n";
        assert!(info.contains(records) && info.contains("in use    no\n"), "{info}");
        assert!(info.contains("encrypted 1 of 1 answers"), "{info}");
        let gateway = setup().store(to).start();
        assert_same(&gateway, &ledger, &done);
        assert!(gateway.terminate().0.success());
    }
    let gateway = last.start();
    assert_eq!(charge(&gateway, "busy").send().status, 201, "the second attempt");
    assert!(gateway.keys(&["free", "held"]).status.success());
}

#[test]
fn a_store_in_use_and_a_target_with_records_are_refused() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let ledger = upstream();
    let url = database(&postgres);
    let gateways = [
        Gateway::in_front_of(&ledger).start(),
        Gateway::in_front_of(&ledger).store(&url).start(),
        Gateway::in_front_of(&ledger).store(&redis.url(0)).start(),
    ];
    let folder = TempDir::new().expect("a folder");
    let empty = format!("file:{}", folder.path().join("empty").display());
    let used = [format!("file:{}", gateways[0].data().display()), url, redis.url(0)];
    for (gateway, used) in gateways.iter().zip(&used) {
        assert_eq!(charge(gateway, "done").send().status, 201);
        refused(&["copy", used, &empty], &["in use"]);
        refused(&["copy", &empty, used], &["there is no store in"]);
    }
    // Their folders go with them.
    let _stopped = gateways.map(|gateway| gateway.terminate().1);
    copied(&used[0], &empty);
    for other in &used[1..] {
        refused(&["copy", &empty, other], &["has 1 records of its own"]);
    }
    refused(&["copy", &empty, &empty], &["to itself"]);
    refused(&["copy", "memory:", &empty], &["memory"]);
}

#[test]
fn a_copy_that_was_cut_off_goes_on_and_nothing_is_served_before() {
    let server = Postgres::start();
    let url = database(&server);
    let ledger = upstream();
    let gateway = Gateway::in_front_of(&ledger).start();
    let done = live(&gateway);
    let from = format!("file:{}", gateway.data().display());
    let (status, setup) = gateway.terminate();
    assert!(status.success());

    assert_eq!(store(&["migrate", "--store", &url]).code, Some(0));
    let fail = "create function fail() returns trigger language plpgsql as \
                $$ begin raise 'no room'; end $$; \
                create trigger fail before insert on selfsame.keys for each row \
                when (new.state = 4) execute function fail()";
    server.sql("keys", fail);
    refused(&["copy", &from, &url], &["cannot be written"]);
    let mut serve = binary();
    serve.args(["serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"]);
    serve.args(["--admin", "127.0.0.1:0", "--store", &url]).current_dir(setup.data());
    let ended = run_to_end(serve);
    assert!(ended.stderr.contains("is not finished"), "{ended:?}");
    assert!(store(&["info", &url]).stdout.contains("copy      not finished, from file:"));

    server.sql("keys", "drop trigger fail on selfsame.keys");
    assert!(copied(&from, &url).contains("copied: 4 records"));
    let gateway = Gateway::in_front_of(&ledger).store(&url).start();
    assert_same(&gateway, &ledger, &done);
}

/// The lines of a log with this message.
fn lines(gateway: &Gateway, message: &str) -> Vec<Value> {
    let log = gateway.log();
    let lines = log.lines().filter(|line| line.contains(message));
    lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_gateway_says_where_its_store_is_and_once_that_it_is_new() {
    let server = Postgres::start();
    let url = database(&server);
    let ledger = upstream();
    for store in [None, Some(&url)] {
        let mut setup = Gateway::in_front_of(&ledger);
        if let Some(url) = store {
            setup = setup.store(url);
        }
        let gateway = setup.start();
        let place =
            lines(&gateway, "\"serving\"")[0]["store"].as_str().expect("it says").to_owned();
        match store {
            None => assert_eq!(place, format!("file:{}", gateway.data().display())),
            Some(_) => {
                assert!(place.starts_with("postgres://keys@"), "{place}");
                assert!(place.ends_with("/keys"), "{place}");
            }
        }
        let new = eventually("the warning", || lines(&gateway, "this store is new").pop());
        assert_eq!((&new["level"], &new["store"]), (&"WARN".into(), &place.into()));
        assert_eq!(charge(&gateway, "k").send().status, 201);
        let gateway = gateway.terminate().1.start();
        assert_eq!(lines(&gateway, "this store is new"), Vec::<Value>::new());
    }
}
