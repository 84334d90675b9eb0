//! How much one tenant may have, and how little others notice of a tenant that has too much.

use std::net::Shutdown;

use crate::harness::{Answer, Gateway, Ledger, Then, eventually, reply};

/// An upstream that loses the answer to `POST /lost`, and answers everything else.
fn forgetful() -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| {
        if effect.target == "/lost" {
            let _closed = client.shutdown(Shutdown::Both);
            return Then::Close;
        }
        reply(client, 201, &[], &format!("{{\"charge\":\"ch_{}\"}}", effect.number))
    });
    ledger
}

fn post(gateway: &Gateway, path: &str, key: &str) -> Answer {
    gateway.post(path).key(key).json("{}").send()
}

#[test]
fn held_keys_of_callers_without_a_credential_are_bounded() {
    let ledger = forgetful();
    let gateway = Gateway::in_front_of(&ledger).with("[idempotency]\nmax_held_keys = 3\n").start();
    let kept = post(&gateway, "/charges", "kept");
    assert_eq!(kept.status, 201);
    for key in ["lost-1", "lost-2", "lost-3"] {
        assert_eq!(post(&gateway, "/lost", key).problem().as_deref(), Some("upstream-failed"));
    }
    gateway.expect_metric("selfsame_held_total", 3.0);

    let refused = post(&gateway, "/lost", "lost-4");
    refused.refused("too-many-keys");
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("max_held_keys"), "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    assert_eq!(ledger.effects("lost-4"), 0);
    // Nothing is dropped, known keys are answered, and others are not affected.
    post(&gateway, "/charges", "kept").replays(&kept);
    assert_eq!(post(&gateway, "/lost", "lost-1").problem().as_deref(), Some("outcome-unknown"));
    let other = gateway.post("/charges").key("new").header("Authorization", "Bearer other");
    assert_eq!(other.json("{}").send().status, 201);

    let freed = gateway.keys(&["free", "lost-1"]);
    assert!(freed.status.success(), "{}", String::from_utf8_lossy(&freed.stderr));
    eventually("new keys are taken again", || {
        (post(&gateway, "/charges", "lost-4").status == 201).then_some(())
    });
    assert_eq!(ledger.effects("lost-4"), 1);
}

#[test]
fn limits_have_defaults_which_are_tighter_without_a_credential() {
    let ledger = forgetful();
    let gateway = Gateway::in_front_of(&ledger).start();
    for n in 0..100 {
        post(&gateway, "/lost", &format!("lost-{n}"));
    }
    post(&gateway, "/charges", "new").refused("too-many-keys");
    let known = gateway.post("/charges").key("new").header("Authorization", "Bearer known");
    assert_eq!(known.json("{}").send().status, 201);
}
