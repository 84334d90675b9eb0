//! The audit log: what happened to keys, for those who ask when the records are gone.

use std::path::Path;

use selfsame_test_postgres::Server;
use serde_json::Value;

use crate::harness::{Answer, Gateway, Ledger, Then, eventually, reply};
use crate::postgres::database;

const BODY: &str = "card-4242-charged";
const CREDENTIAL: &str = "Bearer sk_live_never_to_be_seen";

/// An upstream that loses the answer of `held` once, and has no time for `busy`.
fn upstream() -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("idempotency-key") {
        Some("held" | "erased") if effect.header("selfsame-attempt") == Some("1") => Then::Close,
        Some("busy") => reply(client, 429, &[], "later"),
        _ => reply(client, 201, &[], BODY),
    });
    ledger
}

fn charge(gateway: &Gateway, key: &str) -> Answer {
    let request = gateway.post("/charges").key(key).header("Authorization", CREDENTIAL);
    request.json("{}").send()
}

/// Everything that can happen to a key.
fn live_through(gateway: &Gateway) {
    for key in ["done", "done", "busy", "held", "erased"] {
        charge(gateway, key);
    }
    assert!(gateway.keys(&["free", "held"]).status.success());
    assert_eq!(charge(gateway, "held").status, 201);
    assert!(gateway.keys(&["erase", "erased"]).status.success());
}

/// What happened, in its order: event, attempt and status.
const STORY: &[&str] = &[
    "claimed 1",
    "completed 1 201",
    "claimed 1",
    "freed 1",
    "claimed 1",
    "held 1",
    "claimed 1",
    "held 1",
    "resolved-free 1",
    "claimed 2",
    "completed 2 201",
    "erased 1",
];

fn entries(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn told(entry: &Value) -> String {
    let parts = ["event", "attempt", "status"].map(|name| match &entry[name] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    });
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_happened_to_keys_is_noted_beside_the_records_and_ends_with_the_process() {
    let ledger = upstream();
    let gateway = Gateway::in_front_of(&ledger).with("[audit]\nto = \"store\"\n").start();
    live_through(&gateway);
    let (status, setup) = gateway.terminate();
    assert!(status.success());
    let path = setup.data().join("audit.log");
    let entries = entries(&path);
    assert_eq!(entries.iter().map(told).collect::<Vec<_>>(), STORY);
    for entry in &entries {
        assert_eq!(entry["record"].as_str().map(str::len), Some(64), "{entry}");
        assert_eq!(entry["tenant"].as_str().map(str::len), Some(32), "{entry}");
        assert_eq!(entry["route"], "default", "{entry}");
        assert!(entry["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{entry}");
    }
    let text = std::fs::read_to_string(&path).expect("readable");
    for secret in [BODY, CREDENTIAL, "sk_live", "\"key\"", "done\""] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

#[test]
fn a_file_that_was_moved_away_is_begun_anew_at_sighup_and_keys_are_shown_where_that_is_said() {
    let ledger = upstream();
    let settings = "log_keys = true\n[audit]\nto = \"file:audit.log\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let (path, moved) = (gateway.folder().join("audit.log"), gateway.folder().join("audit.1"));
    charge(&gateway, "one");
    eventually("it is written", || (entries(&path).len() == 2).then_some(()));
    std::fs::rename(&path, &moved).expect("moved");
    gateway.signal("HUP");
    gateway.expect_metric("selfsame_reloads_total{result=\"taken\"}", 1.0);
    charge(&gateway, "two");
    eventually("the new one is written", || (entries(&path).len() == 2).then_some(()));
    assert_eq!(
        (entries(&moved)[0]["key"].as_str(), entries(&path)[0]["key"].as_str()),
        (Some("one"), Some("two"))
    );
    gateway.expect_metric("selfsame_audit_lost_total", 0.0);
}

#[test]
fn with_a_database_it_is_a_table_to_which_is_only_added() {
    let (server, ledger) = (Server::start(), upstream());
    let url = database(&server);
    let settings = "[audit]\nto = \"store\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).store(&url).start();
    live_through(&gateway);
    let (status, _) = gateway.terminate();
    assert!(status.success());
    let sql =
        "select concat_ws(' ', event, attempt, status) from selfsame.audit order by at, event";
    let mut rows: Vec<String> = server.sql("keys", sql).lines().map(str::to_owned).collect();
    let mut story: Vec<String> = STORY.iter().map(|row| (*row).to_owned()).collect();
    rows.sort_unstable();
    story.sort_unstable();
    assert_eq!(rows, story);
    let named = "select count(*) from selfsame.audit where key is not null or tenant is null";
    assert_eq!(server.sql("keys", named), "0");
}
