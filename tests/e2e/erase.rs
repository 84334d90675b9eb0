//! Erasure, by key and by tenant: the answer goes, also from the files, and nothing runs again.

use std::io::BufReader;

use selfsame_test_postgres::Server;

use crate::encryption::{bytes_in, holds};
use crate::harness::{Answer, Gateway, Ledger, Request, Then, binary, reply};
use crate::postgres::database;

/// What no file may hold any more.
const BODY: &str = "card-4242-charged";

fn charge(gateway: &Gateway, key: &str, tenant: &str) -> Request {
    gateway.post("/charges").key(key).header("X-Account", tenant).json("{}")
}

const SETTINGS: &str =
    "trusted_proxies = [\"127.0.0.1\"]\n[idempotency]\ntenant = \"header:X-Account\"\n";

fn upstream() -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("idempotency-key") {
        Some("held") => Then::Close,
        _ => reply(client, 201, &[], BODY),
    });
    ledger
}

fn said(output: &std::process::Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn what_was_erased_is_nowhere_and_its_key_never_runs_again() {
    let ledger = upstream();
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    for key in ["order-1", "order-2"] {
        let first = charge(&gateway, key, "ann").send();
        charge(&gateway, key, "ann").send().replays(&first);
    }
    charge(&gateway, "held", "ann").send().refused("upstream-failed");
    assert!(holds(&bytes_in(&gateway.data()), BODY));

    for key in ["order-1", "order-2", "held"] {
        let erased = gateway.keys(&["erase", key]);
        assert!(erased.status.success(), "{}", said(&erased));
        assert!(said(&erased).contains("get 410 key-expired"), "{}", said(&erased));
        charge(&gateway, key, "ann").send().refused("key-expired");
    }
    assert!(!holds(&bytes_in(&gateway.data()), BODY));
    let shown = said(&gateway.keys(&["show", "order-1"]));
    assert!(shown.contains("tombstone") && shown.contains("410 key-expired"), "{shown}");
    assert!(said(&gateway.keys(&["erase", "nobody"])).contains("nothing is known of nobody"));
    gateway.expect_metric("selfsame_erased_total", 3.0);

    // Not after a crash either.
    let gateway = gateway.kill().start();
    for key in ["order-1", "order-2", "held"] {
        charge(&gateway, key, "ann").send().refused("key-expired");
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
    assert!(!holds(&bytes_in(&gateway.data()), BODY));
}

#[test]
fn a_key_that_runs_is_not_erased() {
    let (ledger, gate) = Ledger::gated(|_| BODY.to_owned());
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    let mut client = BufReader::new(charge(&gateway, "slow", "ann").begin());
    ledger.wait_for("slow", 1);
    let refused = gateway.keys(&["erase", "slow"]);
    assert!(!refused.status.success());
    assert!(said(&refused).contains("the key is running"), "{}", said(&refused));
    gate.open();
    let first = Answer::read(&mut client).expect("an answer");
    charge(&gateway, "slow", "ann").send().replays(&first);
}

#[test]
fn all_that_a_tenant_has_is_erased_and_nothing_of_anothers() {
    let server = Server::start();
    let url = database(&server);
    let ledger = upstream();
    for store in [None, Some(&url)] {
        let mut setup = Gateway::in_front_of(&ledger).with(SETTINGS);
        if let Some(url) = store {
            setup = setup.store(url);
        }
        let gateway = setup.start();
        let theirs = charge(&gateway, "order-1", "bob").send();
        for n in 0..450 {
            assert_eq!(charge(&gateway, &format!("order-{n}"), "ann").send().status, 201);
        }
        let erased = gateway.keys(&["erase", "--tenant-name", "ann", "--yes"]);
        assert!(said(&erased).contains("erased: 450 records"), "{}", said(&erased));
        for n in [0, 1, 449] {
            charge(&gateway, &format!("order-{n}"), "ann").send().refused("key-expired");
        }
        charge(&gateway, "order-1", "bob").send().replays(&theirs);
        let shown = gateway.admin("GET", "/api/v1/keys?find=order-1").send().text();
        let shown: Vec<serde_json::Value> = serde_json::from_str(&shown).expect("records");
        let bobs = shown.iter().find(|record| record["tenant"] == "bob").expect("it is there");
        let tag = bobs["tenant_tag"].as_str().expect("a tag");
        let erased = gateway.keys(&["erase", "--tenant", tag, "--yes"]);
        assert!(said(&erased).contains("erased: 1 records"), "{}", said(&erased));
        charge(&gateway, "order-1", "bob").send().refused("key-expired");
        match store {
            None => assert!(!holds(&bytes_in(&gateway.data()), BODY)),
            Some(_) => {
                assert_eq!(server.sql("keys", "select count(*) from selfsame.answers"), "0");
            }
        }
    }
    let wrong = binary().args(["keys", "erase"]).output().expect("the command runs");
    assert!(!wrong.status.success(), "{}", said(&wrong));
}
