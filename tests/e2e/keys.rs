//! Row 8: keys that are missing, doubled or not keys at all.

use crate::harness::{Gateway, Ledger};

const REQUIRED: &str = "[idempotency]\nkey = \"required\"\n";

#[test]
fn a_route_that_requires_a_key_refuses_to_run_without_one() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(REQUIRED).start();

    let refusal = gateway.post("/charges").json("{}").send().refused("missing-key");

    let detail = refusal["detail"].as_str().expect("a detail");
    assert!(detail.contains("idempotency-key"), "it says which header is missing: {detail}");
    assert_eq!(ledger.all().len(), 0);
}

#[test]
fn a_value_that_is_no_key_is_refused_and_nothing_is_forwarded() {
    let ledger = Ledger::start();
    // A key that cannot be read is an error even where none is needed.
    let gateway = Gateway::in_front_of(&ledger).start();
    let too_long = "k".repeat(256);
    let quoted_too_long = format!("\"{too_long}\"");
    let bad = [
        ("empty", ""),
        ("empty quotes", r#""""#),
        ("256 characters", &too_long),
        ("256 characters in quotes", &quoted_too_long),
        ("a space outside quotes", "a b"),
        ("a tab", "a\tb"),
        ("non-ASCII", "café"),
        ("non-ASCII in quotes", "\"café\""),
        ("an unterminated quote", r#""abc"#),
        ("something after the quote", r#""abc" def"#),
        ("a list", r#""abc", "def""#),
        ("an unknown escape", r#""a\n""#),
    ];
    for (what, key) in bad {
        let answer = gateway.post("/charges").key(key).json("{}").send();
        assert_eq!(answer.status, 400, "{what}");
        answer.refused("invalid-key");
    }
    // These are no header values at all, so the head itself is refused.
    for byte in ['\u{0}', '\u{7}', '\u{1b}', '\u{7f}'] {
        let answer = gateway.post("/charges").key(&format!("a{byte}b")).json("{}").send();
        assert_eq!(answer.status, 400, "{byte:?}");
    }
    assert_eq!(ledger.all().len(), 0);
}

#[test]
fn two_keys_are_an_error_and_not_a_choice() {
    let ledger = Ledger::start();
    let settings = "[idempotency]\nkey_headers = [\"Idempotency-Key\", \"X-Request-Key\"]\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let post = || gateway.post("/charges").json("{}");

    post().key("one").key("two").send().refused("invalid-key");
    post().key("same").key("same").send().refused("invalid-key");
    post().key("one").header("X-Request-Key", "one").send().refused("invalid-key");
    assert_eq!(ledger.all().len(), 0);

    let first = post().header("X-Request-Key", "either").send();
    assert_eq!(first.status, 201);
    post().key("either").send().replays(&first);
    assert_eq!(ledger.all().len(), 1);
}

#[test]
fn a_quoted_key_is_the_same_as_a_bare_one() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let first = gateway.post("/charges").key("abc").json("{}").send();
    assert_eq!(first.status, 201);

    for same in [r#""abc""#, r#"  "abc"  "#, r#""abc";v=1"#, "  abc\t"] {
        gateway.post("/charges").key(same).json("{}").send().replays(&first);
    }
    let spelled = gateway.post("/charges").header("iDEMPOTENCY-kEY", "abc").json("{}").send();
    spelled.replays(&first);
    let other = gateway.post("/charges").key("ABC").json("{}").send();
    assert_eq!((other.status, other.header("idempotent-replayed")), (201, None));
    assert_eq!(ledger.all().len(), 2);
}

#[test]
fn every_key_that_real_clients_send_is_taken_and_passed_on_as_received() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(REQUIRED).start();
    let longest = "k".repeat(255);
    let keys = [
        "a",
        "stripe-node-retry-6f9c2d5e",
        "1731650000_a1B2c3",
        "8e03978e-40d5-43dd-bc93-6894a57f9324",
        r#""8e03978e-40d5-43dd-bc93-6894a57f9325""#,
        r#""two words, \"quoted\"";v=2"#,
        "{~!:/=,;}",
        &longest,
    ];
    for key in keys {
        let first = gateway.post("/charges").key(key).json("{}").send();
        assert_eq!(first.status, 201, "{key}");
        gateway.post("/charges").key(key).json("{}").send().replays(&first);
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
}

#[test]
fn a_strict_route_takes_only_quoted_keys() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with("[idempotency]\nstrict = true\n").start();
    gateway.post("/charges").key("abc").json("{}").send().refused("invalid-key");
    assert_eq!(ledger.all().len(), 0);
    assert_eq!(gateway.post("/charges").key(r#""abc""#).json("{}").send().status, 201);
}
