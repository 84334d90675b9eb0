//! Keys as a person sees them who runs a gateway, and their decisions.

use std::path::Path;
use std::process::Output;

use selfsame::stores::{EmbeddedOptions, EmbeddedStore, Leases};
use selfsame_core::{Find, Inspect};
use serde_json::Value;

use crate::harness::{Gateway, Ledger, Request, Then, eventually, reply};

const SETTINGS: &str = "trusted_proxies = [\"127.0.0.1\"]\n[idempotency]\nlease = \"1s\"\n\
                        tenant = \"header:X-Account\"\n[audit]\nto = \"store\"\n";

fn said(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

fn charge(gateway: &Gateway, key: &str) -> Request {
    let target = "/charges/7?card=4242";
    gateway.post(target).key(key).header("X-Account", "ann").json("{}")
}

/// The warnings that a key is held, as they were logged.
fn warnings(gateway: &Gateway) -> Vec<Value> {
    let log = gateway.log();
    let lines = log.lines().filter(|line| line.contains("a key is held"));
    lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Waits until the lease of the one claim in a folder is over, while no gateway has it open.
fn wait_until_held(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let options = EmbeddedOptions::default().leases(Leases::Keep);
    let records = EmbeddedStore::open(folder, options).expect("nobody has it open");
    eventually("the end of the lease", || {
        let held = runtime.block_on(records.find(&Find::Held, 1)).expect("readable");
        (held.len() == 1).then_some(())
    });
}

#[test]
fn a_key_that_becomes_held_is_warned_about_and_its_decision_is_kept() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("selfsame-attempt") {
        Some("1") => Then::Close,
        _ => reply(client, 201, &[], "charged"),
    });
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    charge(&gateway, "lost").send().refused("upstream-failed");

    let warning = eventually("the warning", || warnings(&gateway).pop());
    assert_eq!((&warning["level"], &warning["route"]), (&"WARN".into(), &"default".into()));
    assert_eq!((&warning["method"], &warning["path"]), (&"POST".into(), &"/charges/7".into()));
    let shown = said(&gateway.keys(&["show", warning["record"].as_str().expect("an id")]));
    assert!(shown.contains("request  POST /charges/7\n"), "{shown}");

    let reason = "no charge\nof this order";
    let freed = gateway.keys(&["free", "lost", "--by", "alice", "--reason", reason]);
    assert!(freed.status.success(), "{}", said(&freed));
    assert_eq!(charge(&gateway, "lost").send().status, 201);
    let shown = said(&gateway.keys(&["show", "lost"]));
    assert!(shown.contains("resolved by alice at 20"), "{shown}");
    assert!(shown.contains(": no charge of this order\n"), "on one line: {shown}");
    let audit = gateway.data().join("audit.log");
    eventually("the audit log", || {
        let audit = std::fs::read_to_string(&audit).ok()?;
        let line = audit.lines().find(|line| line.contains("resolved-free"))?;
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(
            (&line["by"], &line["reason"]),
            (&"alice".into(), &"no charge of this order".into())
        );
        Some(())
    });

    charge(&gateway, "again").send().refused("upstream-failed");
    let headers = [
        "Content-Length: 999",
        "Transfer-Encoding: chunked",
        "Connection: close",
        "Selfsame-Claim: 1",
        "Date: now",
    ];
    for header in headers {
        let refused = gateway.keys(&["complete", "again", "--status", "200", "--header", header]);
        assert!(!refused.status.success() && said(&refused).contains("is not part of"), "{header}");
    }
    assert!(gateway.keys(&["complete", "again", "--status", "200"]).status.success());
    let shown = said(&gateway.keys(&["show", "again"]));
    assert!(shown.contains("resolved by "), "by who ran the command: {shown}");
}

#[test]
fn a_key_that_a_crash_left_is_warned_about_by_the_reaper_or_a_retry() {
    let (ledger, gate) = Ledger::gated(|_| "late".to_owned());
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    let _client = charge(&gateway, "crash").begin();
    ledger.wait_for("crash", 1);
    let setup = gateway.kill();
    wait_until_held(&setup.data());
    let gateway = setup.start();
    let warning = eventually("the warning", || warnings(&gateway).pop());
    assert_eq!(warning["path"], "/charges/7");
    assert_eq!(warning["cause"], "its lease ended");
    assert_eq!(warnings(&gateway).len(), 1, "once");
    gate.open();
}

#[test]
fn listings_are_paged_and_filtered_and_say_that_there_is_more() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    for number in 0..130 {
        assert_eq!(charge(&gateway, &format!("k-{number}")).send().status, 201);
    }
    assert_eq!(said(&gateway.keys(&["show"])), "no key is held\n");
    let keys = |text: &str| text.lines().filter(|line| line.starts_with("key ")).count();
    let first = said(&gateway.keys(&["show", "--state", "completed"]));
    assert_eq!(keys(&first), 100);
    let hint = first.lines().last().expect("a hint");
    assert!(hint.starts_with("there are more: go on with --after "), "{hint}");
    let after = hint.split(&[' ', ','][..]).nth(7).expect("an id");
    let rest = said(&gateway.keys(&["show", "--state", "completed", "--after", after]));
    assert_eq!(keys(&rest), 30);
    assert!(!rest.contains("there are more"), "{rest}");

    let all = gateway.keys(&["show", "--tenant-name", "ann", "--since", "1h", "--all", "--json"]);
    let all: Vec<Value> = serde_json::from_slice(&all.stdout).expect("JSON");
    assert_eq!(all.len(), 130);
    for none in [["--tenant-name", "bob"], ["--route", "other"], ["--state", "held"]] {
        assert_eq!(said(&gateway.keys(&["show", none[0], none[1]])), "no record matches\n");
    }
    let page = gateway.keys(&["show", "--state", "all", "--limit", "7", "--json"]);
    let records: Vec<Value> = serde_json::from_slice(&page.stdout).expect("JSON alone");
    assert_eq!(records.len(), 7);
    assert!(String::from_utf8_lossy(&page.stderr).contains("there are more"));
    let wrong = said(&gateway.keys(&["show", "--since", "yesterday"]));
    assert!(wrong.contains("2026-01-31T12:00:00Z"), "it says what to write: {wrong}");
}

#[test]
fn a_tenant_is_erased_only_if_somebody_agrees() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    let first = charge(&gateway, "k").send();
    let refused = gateway.keys(&["erase", "--tenant-name", "ann"]);
    assert!(!refused.status.success());
    assert!(said(&refused).contains("erase all 1 records of ann?"), "{}", said(&refused));
    assert!(said(&refused).contains("--yes"), "{}", said(&refused));
    charge(&gateway, "k").send().replays(&first);
    let erased = gateway.keys(&["erase", "--tenant-name", "ann", "--yes"]);
    assert!(said(&erased).contains("erased: 1 records"), "{}", said(&erased));
    let nobody = gateway.keys(&["erase", "--tenant-name", "nobody", "--yes"]);
    assert!(said(&nobody).contains("nothing to erase"), "{}", said(&nobody));
}
