//! Row 22: which answers are kept, freed or held, by status and by the upstream's own word.

use crate::harness::{Answer, Gateway, Ledger, reply};

/// What becomes of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Key {
    Kept,
    Freed,
    /// No record at all stays behind.
    Forgotten,
    Held,
}

/// An upstream that answers `/409` with 409, and what else the request's headers tell it to.
fn upstream_of_statuses() -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| {
        let status = effect.target.trim_start_matches('/').parse().expect("a status");
        let word = effect.header("x-word").map(|word| format!("Idempotency-Outcome: {word}"));
        let headers: Vec<_> = ["Retry-After: 7"].into_iter().chain(word.as_deref()).collect();
        reply(client, status, &headers, &format!("answer {}", effect.number))
    });
    ledger
}

/// Sends a request and its retry, and checks what became of the key.
#[track_caller]
fn check(ledger: &Ledger, gateway: &Gateway, status: u16, word: Option<&str>, expected: Key) {
    let key = format!("{status}-{}", word.unwrap_or("none"));
    let mut request = gateway.post(&format!("/{status}")).key(&key).json("{}");
    if let Some(word) = word {
        request = request.header("X-Word", word);
    }
    let first = request.send();
    assert_eq!(first.status, status, "{key}: the first client gets the answer as it is");
    assert!(first.text().starts_with("answer "), "{key}");
    assert_eq!(first.header("retry-after"), Some("7"), "{key}");
    assert_not_told(&first);

    let retry = request.send();
    assert_not_told(&retry);
    let attempts: Vec<_> = ledger.of(&key);
    let attempts: Vec<_> =
        attempts.iter().filter_map(|run| run.header("selfsame-attempt")).collect();
    match expected {
        Key::Kept => {
            retry.replays(&first);
            assert_eq!(retry.header("retry-after"), None, "{key}: it was about that moment");
            assert_eq!(attempts, ["1"], "{key}");
        }
        Key::Freed | Key::Forgotten => {
            assert_eq!(retry.status, status, "{key}");
            assert_eq!(retry.header("idempotent-replayed"), None, "{key}");
            let second = if expected == Key::Freed { "2" } else { "1" };
            assert_eq!(attempts, ["1", second], "{key}");
        }
        Key::Held => {
            assert_eq!(retry.problem().as_deref(), Some("outcome-unknown"), "{key}");
            retry.refused("outcome-unknown");
            assert_eq!(attempts, ["1"], "{key}");
        }
    }
}

#[track_caller]
fn assert_not_told(answer: &Answer) {
    assert_eq!(answer.header("idempotency-outcome"), None, "the word is not for clients");
}

/// What the contract says whatever `server_errors` is.
const BY_STATUS: [(Key, &[u16]); 4] = [
    (Key::Kept, &[200, 201, 202, 302, 303, 400, 402, 404, 409, 410, 412, 422]),
    (Key::Freed, &[408, 425, 429, 503]),
    (Key::Forgotten, &[401, 403]),
    (Key::Held, &[502, 504]),
];

#[test]
fn answers_are_kept_freed_or_held_by_their_status() {
    let settings = [("retry", Key::Freed), ("keep", Key::Kept), ("hold", Key::Held)];
    for (server_errors, expected) in settings {
        let ledger = upstream_of_statuses();
        let settings = format!("[idempotency]\nserver_errors = \"{server_errors}\"\n");
        let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
        for (expected, statuses) in BY_STATUS {
            for &status in statuses {
                check(&ledger, &gateway, status, None, expected);
            }
        }
        for status in [500, 501, 505, 507, 599] {
            check(&ledger, &gateway, status, None, expected);
        }
    }
}

#[test]
fn a_route_says_which_statuses_are_kept_freed_or_held() {
    let ledger = upstream_of_statuses();
    let settings = "[idempotency]\nserver_errors = \"hold\"\nfinal_statuses = [\"5xx\", 429]\n\
        transient_statuses = [404, 409, \"4xx\"]\nunknown_statuses = [400, 202, 503]\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let expected: [(Key, &[u16]); 4] = [
        (Key::Kept, &[200, 201, 303, 429, 500, 502, 504]),
        (Key::Freed, &[402, 404, 408, 409, 422, 425]),
        (Key::Forgotten, &[401, 403]),
        (Key::Held, &[202, 400, 503]),
    ];
    for (expected, statuses) in expected {
        for &status in statuses {
            check(&ledger, &gateway, status, None, expected);
        }
    }
    // The API's own word goes before.
    check(&ledger, &gateway, 404, Some("final"), Key::Kept);
    check(&ledger, &gateway, 500, Some("transient"), Key::Freed);
}

#[test]
fn by_default_a_server_error_may_be_tried_again() {
    let ledger = upstream_of_statuses();
    let gateway = Gateway::in_front_of(&ledger).start();
    check(&ledger, &gateway, 500, None, Key::Freed);
}

#[test]
fn held_server_errors_stay_held_even_where_runs_may_be_resumed() {
    let ledger = upstream_of_statuses();
    let settings = "[idempotency]\nserver_errors = \"hold\"\nrecover = \"resume\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    check(&ledger, &gateway, 500, None, Key::Held);
}

#[test]
fn the_upstreams_own_word_goes_before_its_status() {
    let ledger = upstream_of_statuses();
    let gateway = Gateway::in_front_of(&ledger).start();
    for status in [201, 404, 401, 500, 502, 503] {
        check(&ledger, &gateway, status, Some("final"), Key::Kept);
        check(&ledger, &gateway, status, Some("unknown"), Key::Held);
    }
    for status in [201, 404, 500, 502, 503] {
        check(&ledger, &gateway, status, Some("transient"), Key::Freed);
    }
    check(&ledger, &gateway, 201, Some("perhaps"), Key::Kept);
    check(&ledger, &gateway, 503, Some("perhaps"), Key::Freed);
}

#[test]
fn the_upstreams_word_is_not_for_clients_without_a_key_either() {
    let ledger = upstream_of_statuses();
    let gateway = Gateway::in_front_of(&ledger).start();
    for method in ["POST", "GET"] {
        let answer = gateway.request(method, "/200").header("X-Word", "transient").send();
        assert_eq!(answer.status, 200);
        assert_not_told(&answer);
    }
}

#[test]
fn a_first_attempt_that_was_not_allowed_leaves_nothing_behind() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.body.as_slice() {
        b"{\"try\":401}" => reply(client, 401, &["WWW-Authenticate: Bearer"], ""),
        b"{\"try\":403}" => reply(client, 403, &[], ""),
        _ => reply(client, 201, &[], "allowed"),
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = |body: &str| gateway.post("/charges").key("guessed").json(body).send();

    let refused = request(r#"{"try":401}"#);
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(request(r#"{"try":403}"#).status, 403);
    let allowed = request(r#"{"try":"well"}"#);
    assert_eq!((allowed.status, allowed.text().as_str()), (201, "allowed"));
    request(r#"{"try":"well"}"#).replays(&allowed);
    request(r#"{"try":401}"#).refused("key-reused");
    let attempts = ledger.of("guessed");
    assert!(attempts.iter().all(|run| run.header("selfsame-attempt") == Some("1")));
}

#[test]
fn a_later_attempt_that_was_not_allowed_does_not_forget_the_first() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("selfsame-attempt") {
        Some("1") => reply(client, 500, &[], ""),
        Some("2") => reply(client, 401, &[], ""),
        _ => reply(client, 201, &[], "third"),
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("late-401").json(r#"{"amount":10}"#);
    assert_eq!((request.send().status, request.send().status), (500, 401));
    let other = gateway.post("/charges").key("late-401").json(r#"{"amount":11}"#).send();
    other.refused("key-reused");
    let third = request.send();
    assert_eq!((third.status, third.text().as_str()), (201, "third"));
    assert_eq!(ledger.effects("late-401"), 3);
}
