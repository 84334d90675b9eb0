//! Logs name records, never keys, bodies or credentials, unless keys are asked for.

use std::io::BufReader;

use selfsame_test_postgres::Server;
use serde_json::Value;

use crate::harness::{Answer, Gate, Gateway, Ledger, Then, eventually, reply};
use crate::postgres::database;
use crate::unreachable::nobody;

const KEY: &str = "recognisable-key";
const SECRETS: [&str; 7] = [
    "recognisable-credential",
    "recognisable-cookie",
    "recognisable-body",
    "recognisable-answer",
    "recognisable-set-cookie",
    "recognisable-query",
    "recognisable-operators-answer",
];

/// Takes every way a request can go, with something recognisable wherever a secret may be.
fn go_every_way(gateway: &Gateway, ledger: &Ledger, gate: &Gate) {
    let post = |key: &str| {
        gateway
            .post("/charges?card=recognisable-query")
            .key(key)
            .header("Authorization", "Bearer recognisable-credential")
            .header("Cookie", "session=recognisable-cookie")
            .json(r#"{"card":"recognisable-body"}"#)
    };
    let done = format!("{KEY}-done");
    assert_eq!(post(&done).send().status, 201);
    assert_eq!(post(&done).send().header("idempotent-replayed"), Some("true"));
    assert_eq!(gateway.post("/other").key(&done).send().status, 201, "another tenant's");
    let reused = post(&done).header("X-Other", "1").body(b"recognisable-body").send();
    assert_eq!(reused.status, 422);

    let held = format!("{KEY}-held");
    assert_eq!(post(&held).send().status, 502);
    assert_eq!(post(&held).send().status, 409);
    let body = "recognisable-operators-answer";
    let completed = gateway.keys(&["complete", &held, "--status", "200", "--body", body]);
    assert!(completed.status.success());

    let slow = format!("{KEY}-slow");
    let mut first = BufReader::new(post(&slow).begin());
    ledger.wait_for(&slow, 1);
    assert_eq!(post(&slow).send().status, 409);
    gate.open();
    assert_eq!(Answer::read(&mut first).expect("an answer").status, 201);

    assert_eq!(post(&format!("{KEY} with a space")).send().status, 400);
    post(&format!("{KEY}-cut")).hang_up_before_the_last(5);
    let act = gateway.admin("POST", "/api/v1/keys/00/free");
    let act = act.header("Authorization", "Bearer recognisable-credential").json("{}");
    assert_eq!(act.send().status, 401);
}

/// What a gateway has logged after all that.
fn log_with(settings: &str) -> (String, String) {
    let (ledger, gate) = (Ledger::start(), Gate::shut());
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        match effect.header("idempotency-key").and_then(|key| key.rsplit('-').next()) {
            Some("held") => return Then::Close,
            Some("slow") => at_gate.pass(),
            _ => {}
        }
        let cookie = "Set-Cookie: session=recognisable-set-cookie";
        reply(client, 201, &[cookie], "recognisable-answer")
    });
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    go_every_way(&gateway, &ledger, &gate);
    let token = std::fs::read_to_string(gateway.data().join("admin-token")).expect("made");
    let log = gateway.whole_log();
    assert!(log.lines().filter(|line| line.contains("DEBUG")).count() > 5, "at debug: {log}");
    (log, token.trim().to_owned())
}

#[test]
fn logs_hold_no_key_no_body_and_no_credential() {
    let (log, token) = log_with("");
    for secret in SECRETS.into_iter().chain([KEY, &token]) {
        let leak = log.lines().find(|line| line.contains(secret));
        assert_eq!(leak, None, "{secret}");
    }
}

#[test]
fn keys_are_logged_where_that_is_asked_for_and_nothing_else_is() {
    let (log, token) = log_with("log_keys = true\n");
    assert!(log.contains(KEY), "{log}");
    for secret in SECRETS.into_iter().chain([token.as_str()]) {
        let leak = log.lines().find(|line| line.contains(secret));
        assert_eq!(leak, None, "{secret}");
    }
}

#[test]
fn suspect_keys_and_changing_tokens_are_warned_about_once_and_taken() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let token = "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln";

    for key in ["ann@example.com", "bob@example.com", "1", "2", "3"] {
        let request = gateway.post("/charges").key(key).header("Authorization", token);
        assert_eq!(request.json("{}").send().status, 201);
    }

    gateway.expect_metric(r#"selfsame_suspect_keys_total{kind="personal_data"}"#, 2.0);
    gateway.expect_metric(r#"selfsame_suspect_keys_total{kind="counter"}"#, 3.0);
    let log = gateway.whole_log();
    for warning in ["look like personal data", "look like counters", "JSON Web Tokens"] {
        assert_eq!(log.matches(warning).count(), 1, "{log}");
    }
    assert!(!log.contains("example.com") && !log.contains("eyJ"), "{log}");
    assert!(!log.contains("TenantTag("), "tags as `keys show` shows them: {log}");
}

/// The lines of a log that contain this.
fn lines(gateway: &Gateway, part: &str) -> Vec<Value> {
    let log = gateway.log();
    let lines = log.lines().filter(|line| line.contains(part));
    lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn each_refusal_is_found_in_the_log_by_its_instance() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("idempotency-key") {
        Some("held") => Then::Close,
        _ => reply(client, 201, &[], "charged"),
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let post = |key: &str| gateway.post("/charges").key(key).json("{}");
    assert_eq!(post("done").send().status, 201);
    let refusals = [
        (post("held").send(), "upstream-failed", true),
        (post("held").send(), "outcome-unknown", true),
        (post("done").body(b"other").send(), "key-reused", true),
        (post("a b").send(), "invalid-key", false),
    ];
    for (answer, slug, has_record) in refusals {
        let problem = answer.refused(slug);
        let instance = problem["instance"].as_str().expect("an instance");
        let line = eventually("the line", || lines(&gateway, instance).pop());
        assert_eq!((&line["problem"], &line["status"]), (&slug.into(), &answer.status.into()));
        assert_eq!(line["record"].is_string(), has_record, "{line}");
        assert!(line["reason"].is_string(), "{line}");
    }
}

#[test]
fn an_upstream_that_is_away_is_named_once_and_its_return_is_told() {
    let address = nobody();
    let gateway = Gateway::before(address).start();
    for n in 0..20 {
        let answer = gateway.post("/charges").key(&format!("k-{n}")).json("{}").send();
        answer.refused("upstream-unreachable");
    }
    let at_warn = || {
        let lines = lines(&gateway, "the upstream cannot be reached");
        lines.into_iter().filter(|line| line["level"] == "WARN").collect::<Vec<_>>()
    };
    let warning = eventually("the warning", || at_warn().pop());
    assert_eq!(warning["upstream"], address.to_string());
    assert_eq!((&warning["route"], &warning["path"]), (&"default".into(), &"/charges".into()));
    assert!(warning["record"].is_string() && warning["instance"].is_string(), "{warning}");
    let _ledger = Ledger::start_at(address);
    // It is back when nothing has failed for a second.
    let back = eventually("the return", || {
        assert_eq!(gateway.post("/charges").key("k-0").json("{}").send().status, 201);
        assert_eq!(gateway.post("/charges").json("{}").send().status, 201);
        lines(&gateway, "can be reached again").pop()
    });
    assert_eq!(back["failures"], 20);
    assert_eq!(at_warn().len(), 1, "the others are counted");
}

#[test]
fn a_store_that_is_away_is_warned_of_once_and_its_return_is_told() {
    let mut server = Server::start();
    let url = database(&server);
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).store(&url).start();
    let request = gateway.post("/charges").key("k").json("{}");
    server.crash();
    for _ in 0..5 {
        request.send().refused("store-unavailable");
    }
    server.start_again();
    eventually("it serves again", || (request.send().status == 201).then_some(()));
    let back = eventually("the return", || {
        request.send();
        lines(&gateway, "the store works again").pop()
    });
    assert!(back["failures"].as_u64().expect("a number") >= 5, "{back}");
    let warnings = lines(&gateway, "the store failed at a claim");
    let warnings = warnings.iter().filter(|line| line["level"] == "WARN").count();
    assert_eq!(warnings, 1);
}
