//! Names, paths and reasons from outside: no terminal, log or page obeys them.

use std::process::Output;

use serde_json::Value;

use crate::harness::{Ledger, Then, eventually};
use crate::tokens::{Issuer, setup};

const TENANT: &str = "ann\u{202e}nob\u{2066}";
const PATH: &str = "/charges/\u{202e}\u{9b}2J";

/// Text without anything that a terminal would obey.
#[track_caller]
fn assert_printable(text: &str) {
    let is_unsafe = |c: char| {
        c != '\n' && c.is_control()
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c)
    };
    let found: Vec<char> = text.chars().filter(|c| is_unsafe(*c)).collect();
    assert!(found.is_empty(), "{found:?} in {text:?}");
}

fn said(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(all).expect("UTF-8")
}

#[test]
fn nothing_from_outside_moves_an_operator_s_cursor() {
    let (ledger, issuer) = (Ledger::start(), Issuer::new());
    ledger.behave(|_, _| Then::Close);
    let (setup, _folder) = setup(&ledger, &issuer);
    let gateway = setup.with("lease = \"1s\"\n[audit]\nto = \"store\"\n").start();
    let charge = |key: &str| {
        let request = gateway.post(PATH).key(key).json("{}");
        request.header("Authorization", &issuer.token(TENANT, 1)).send()
    };
    charge("lost").refused("upstream-failed");

    let shown = said(&gateway.keys(&["show", "lost"]));
    assert!(shown.contains("tenant   ann\\u{202e}nob\\u{2066}\n"), "{shown}");
    assert!(shown.contains("request  POST /charges/\\u{202e}"), "{shown}");
    assert_printable(&shown);

    let by = ["--by", "eve\u{1b}[2J\u{202e}", "--reason", "two\nlines\u{1b}]0;x\u{7}\u{2067}"];
    let freed = gateway.keys(&[&["free", "lost"], &by[..]].concat());
    assert!(freed.status.success(), "{}", said(&freed));
    assert_printable(&said(&freed));
    let shown = said(&gateway.keys(&["show", "lost"]));
    assert!(shown.contains("\\u{202e} at 20") && shown.contains("\\u{2067}\n"), "{shown}");
    assert_printable(&shown);
    assert_printable(&said(&gateway.keys(&["show", "unknown\u{1b}[2J"])));
    assert_printable(&said(&gateway.keys(&["erase", "--tenant-name", TENANT])));

    let json = said(&gateway.keys(&["show", "lost", "--json"]));
    assert_printable(&json);
    let records: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(records[0]["tenant"], TENANT, "JSON keeps its meaning");

    let audit = gateway.data().join("audit.log");
    let audit = eventually("the audit log", || {
        let audit = std::fs::read_to_string(&audit).ok()?;
        audit.contains("resolved-free").then_some(audit)
    });
    assert_printable(&audit);
    gateway.expect_log("a key is held");
    let log = gateway.whole_log();
    assert_printable(&log);
    let warning = log.lines().find(|line| line.contains("a key is held")).expect("a warning");
    let warning: Value = serde_json::from_str(warning).expect("JSON");
    assert!(warning["path"].as_str().is_some_and(|path| path.contains('\u{202e}')), "{warning}");
}

#[test]
fn a_control_character_in_a_claim_names_nobody() {
    let (ledger, issuer) = (Ledger::start(), Issuer::new());
    let (setup, _folder) = setup(&ledger, &issuer);
    let gateway = setup.start();
    for caller in ["\u{1b}[2J", "a\nb", &"x".repeat(257)] {
        let request = gateway.post("/charges").key("k").json("{}");
        let request = request.header("Authorization", &issuer.token(caller, 1));
        request.send().refused("missing-tenant");
    }
    assert_eq!(ledger.all().len(), 0);
}
