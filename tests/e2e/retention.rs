//! A key lives as long as its retention, and a held one until somebody decides.

use crate::harness::{Answer, Gateway, Ledger, Request, Then, eventually, reply};

const SETTINGS: &str = "[idempotency]\nretention = \"2s\"\nallow_short_retention = true\n\
    lease = \"1s\"\n";

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json(r#"{"amount":10}"#)
}

/// An upstream where the answer of `held` is lost.
fn ledger() -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("idempotency-key") {
        Some("held") => Then::Close,
        _ => reply(client, 201, &[], &format!(r#"{{"charge":"ch_{}"}}"#, effect.number)),
    });
    ledger
}

/// Waits until the reaper has gone through the store once. Its next pass comes 45 seconds later, so that
/// records which expire meanwhile are left to the next process.
fn wait_for_first_pass(gateway: &Gateway) {
    eventually("the reaper's first pass", || {
        gateway.admin("GET", "/metrics").send().text().contains("selfsame_records{").then_some(())
    });
}

/// Retries until the key is new again; until then there is the first answer and nothing else.
fn once_it_is_new(gateway: &Gateway, key: &str, first: &Answer) -> Answer {
    eventually("the key is new again", || {
        let retry = charge(gateway, key).send();
        assert_eq!(retry.status, 201, "{retry:?}");
        match retry.header("idempotent-replayed") {
            Some(_) => {
                assert_eq!(retry.body, first.body, "I4");
                None
            }
            None => Some(retry),
        }
    })
}

#[test]
fn after_its_retention_a_key_is_new_once_and_a_held_one_still_held() {
    let ledger = ledger();
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    assert_eq!(charge(&gateway, "held").send().status, 502);
    let first = charge(&gateway, "order-1").send();

    let fresh = once_it_is_new(&gateway, "order-1", &first);
    assert_ne!(fresh.body, first.body);
    assert_eq!(charge(&gateway, "order-1").send().body, fresh.body, "a life of its own");
    assert_eq!(ledger.effects("order-1"), 2);
    let attempts = ledger.of("order-1");
    assert_eq!(attempts[1].header("selfsame-attempt"), Some("1"), "a new key, not a retry");

    assert_eq!(charge(&gateway, "held").send().problem().as_deref(), Some("outcome-unknown"));
    assert_eq!(ledger.effects("held"), 1, "its retention was over before that of order-1");
}

#[test]
fn the_reaper_takes_what_has_expired_and_leaves_what_is_held() {
    let ledger = ledger();
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    wait_for_first_pass(&gateway);
    assert_eq!(charge(&gateway, "held").send().status, 502);
    let keys: Vec<String> = (0..10).map(|number| format!("order-{number}")).collect();
    let answers: Vec<Answer> = keys.iter().map(|key| charge(&gateway, key).send()).collect();
    // The last one is new again when all of them are.
    once_it_is_new(&gateway, &keys[9], &answers[9]);
    let gateway = gateway.kill().start();

    eventually("the reaper's first walk", || {
        (gateway.metric("selfsame_reaped_total") >= 9.0).then_some(())
    });
    let counted = |state: &str| gateway.metric(&format!("selfsame_records{{state=\"{state}\"}}"));
    eventually("the reaper's count", || (counted("held") == 1.0).then_some(()));
    assert!(counted("completed") <= 1.0, "of the last one's second life, if at all");
    assert_eq!(charge(&gateway, "held").send().problem().as_deref(), Some("outcome-unknown"));
    let shown = gateway.keys(&["show", &keys[0]]);
    assert_eq!(shown.status.code(), Some(1), "nothing is known of what has expired");

    for key in &keys[..9] {
        assert_eq!(charge(&gateway, key).send().header("idempotent-replayed"), None);
        assert_eq!(ledger.effects(key), 2, "{key}");
    }
    assert_eq!(ledger.effects("held"), 1);
}

#[test]
fn an_answer_and_its_replay_name_the_same_end_unless_the_route_is_silent() {
    let ledger = ledger();
    let quiet = "[[route]]\nmatch = \"POST /quiet\"\nexpires_header = false\n";
    let gateway = Gateway::in_front_of(&ledger).with(quiet).start();
    let (first, retry) = (charge(&gateway, "order-1").send(), charge(&gateway, "order-1").send());
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    let end = first.header("idempotency-expires").expect("every kept answer says so");
    assert!(end.len() == "Sun, 06 Nov 1994 08:49:37 GMT".len() && end.ends_with(" GMT"), "{end}");
    assert_eq!(retry.header("idempotency-expires"), Some(end));

    let quiet = gateway.post("/quiet").key("order-2").json("{}").send();
    assert_eq!((quiet.status, quiet.header("idempotency-expires")), (201, None));
}

/// What `remember` makes of the routes with the 2 s of `SETTINGS`.
const REMEMBERED: &str = "[[route]]\nmatch = \"POST /kept\"\nremember = \"1h\"\n\
    [[route]]\nmatch = \"POST /briefly\"\nremember = \"2s\"\n";

/// Retries until the first answer is no longer given.
fn once_it_is_over(gateway: &Gateway, target: &str, key: &str) -> Answer {
    eventually("the retention is over", || {
        let retry = gateway.post(target).key(key).json("{}").send();
        retry.header("idempotent-replayed").is_none().then_some(retry)
    })
}

#[test]
fn a_remembered_key_is_refused_after_its_retention_and_never_run_again() {
    let ledger = ledger();
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).with(REMEMBERED).start();
    wait_for_first_pass(&gateway);
    for (target, key) in [("/kept", "kept"), ("/kept", "held"), ("/plain", "plain")] {
        gateway.post(target).key(key).json("{}").send();
    }
    // A person's word that it was done counts like the API's own.
    assert!(gateway.keys(&["complete", "held", "--status", "201"]).status.success());

    for key in ["kept", "held"] {
        once_it_is_over(&gateway, "/kept", key).refused("key-expired");
        let other = gateway.post("/kept").key(key).json(r#"{"other":true}"#).send();
        other.refused("key-expired");
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
    assert_eq!(once_it_is_over(&gateway, "/plain", "plain").status, 201);
    assert_eq!(ledger.effects("plain"), 2);

    let gateway = gateway.kill().start();
    eventually("the reaper's first walk", || {
        (gateway.metric("selfsame_buried_total") >= 2.0).then_some(())
    });
    let tombstones = || gateway.metric("selfsame_records{state=\"tombstone\"}");
    eventually("the reaper's count", || (tombstones() == 2.0).then_some(()));
    for key in ["kept", "held"] {
        gateway.post("/kept").key(key).json("{}").send().refused("key-expired");
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
    let shown = String::from_utf8(gateway.keys(&["show", "kept"]).stdout).expect("text");
    for fact in ["state    tombstone\n", ", remembered until ", "410 key-expired"] {
        assert!(shown.contains(fact), "{fact:?} is missing in:\n{shown}");
    }
}

#[test]
fn a_key_is_new_when_it_is_remembered_no_longer() {
    let ledger = ledger();
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).with(REMEMBERED).start();
    gateway.post("/briefly").key("order-1").json("{}").send();
    once_it_is_over(&gateway, "/briefly", "order-1").refused("key-expired");
    let fresh = eventually("the tombstone is over", || {
        let retry = gateway.post("/briefly").key("order-1").json("{}").send();
        (retry.status == 201).then_some(retry)
    });
    assert_eq!(fresh.header("idempotent-replayed"), None);
    assert_eq!(ledger.effects("order-1"), 2);
}
