//! Logs name records, never keys, bodies or credentials, unless keys are asked for.

use std::io::BufReader;

use crate::harness::{Answer, Gate, Gateway, Ledger, Then, eventually, reply};

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
    // What is logged comes by a pipe: the last line is there when this one is.
    gateway.signal("TERM");
    let log = eventually("the last line", || {
        Some(gateway.log()).filter(|log| log.contains("\"stopped\""))
    });
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

    let warnings = ["look like personal data", "look like counters", "JSON Web Tokens"];
    let log = eventually("the warnings", || {
        let log = gateway.log();
        warnings.iter().all(|warning| log.contains(warning)).then_some(log)
    });
    for warning in warnings {
        assert_eq!(log.matches(warning).count(), 1, "{log}");
    }
    assert!(!log.contains("example.com") && !log.contains("eyJ"), "{log}");
    assert_eq!(gateway.metric(r#"selfsame_suspect_keys_total{kind="personal_data"}"#), 2.0);
    assert_eq!(gateway.metric(r#"selfsame_suspect_keys_total{kind="counter"}"#), 3.0);
}
