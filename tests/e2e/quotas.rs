//! How much one tenant may have, and how little others notice of a tenant that has too much.

use std::net::Shutdown;

use crate::harness::{Answer, Gateway, Http2, Ledger, Then, binary, eventually, reply, run_to_end};

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

/// As [`post`], by a caller with a credential.
fn post_as_other(gateway: &Gateway, path: &str, key: &str) -> Answer {
    gateway.post(path).key(key).header("Authorization", "Bearer other").json("{}").send()
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
    assert_eq!(post_as_other(&gateway, "/charges", "new").status, 201);

    // Held keys of others count neither here nor in the store.
    for key in ["other-1", "other-2"] {
        post_as_other(&gateway, "/lost", key).refused("upstream-failed");
    }
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
        post(&gateway, "/lost", &format!("lost-{n}")).refused("upstream-failed");
        post_as_other(&gateway, "/lost", &format!("other-{n}")).refused("upstream-failed");
    }
    gateway.expect_metric("selfsame_held_total", 200.0);
    post(&gateway, "/charges", "new").refused("too-many-keys");
    assert_eq!(post_as_other(&gateway, "/charges", "new").status, 201);

    let setup = gateway.kill();
    let mut check = binary();
    check.args(["config", "check", "--try", "POST /charges"]).arg(setup.write_config());
    let shown = run_to_end(check).stdout;
    for (setting, each, anonymous) in [
        ("max_live_keys", "100000000", "10000000"),
        ("max_claims", "5000", "500"),
        ("max_held_keys", "1000", "100"),
    ] {
        let line = shown.lines().find(|line| line.contains(setting)).unwrap_or_default();
        let numbers: Vec<&str> = line.split(|c: char| !c.is_ascii_digit()).collect();
        assert!(numbers.contains(&each) && numbers.contains(&anonymous), "{setting}: {shown}");
    }
}

#[test]
fn live_keys_of_callers_without_a_credential_are_bounded() {
    let ledger = forgetful();
    let gateway = Gateway::in_front_of(&ledger).with("[idempotency]\nmax_live_keys = 2\n").start();
    let first = post(&gateway, "/charges", "k-1");
    assert_eq!((first.status, post(&gateway, "/charges", "k-2").status), (201, 201));
    let refused = post(&gateway, "/charges", "k-3");
    refused.refused("too-many-keys");
    assert!(refused.text().contains("max_live_keys"), "{}", refused.text());
    post(&gateway, "/charges", "k-1").replays(&first);
    assert_eq!(post_as_other(&gateway, "/charges", "k-3").status, 201);
    assert_eq!(ledger.effects("k-3"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_callers_without_a_credential_are_bounded_by_default() {
    /// Default of `max_claims` for callers without a credential.
    const RUNS: usize = 500;
    let (ledger, gate) = Ledger::gated(|_| "{}".into());
    let gateway = Gateway::in_front_of(&ledger).start();
    let (mut clients, mut runs) = (Vec::new(), Vec::new());
    for number in 0..RUNS {
        if number % 250 == 0 {
            clients.push(Http2::connect(gateway.address).await);
        }
        let post = http::Request::post("http://a/charges")
            .header("idempotency-key", format!("k-{number}"));
        let client = clients.last().expect("there is one");
        runs.push(client.begin(post.body(()).expect("a request"), true).await);
    }
    eventually("all run", || (ledger.all().len() == RUNS).then_some(()));

    let refused = post(&gateway, "/charges", "new");
    refused.refused("too-many-keys");
    assert!(refused.text().contains("max_claims"), "{}", refused.text());
    let other = gateway.post("/charges").key("other").header("Authorization", "Bearer other");
    let other = other.json("{}").begin();
    ledger.wait_for("other", 1);
    assert_eq!(ledger.effects("new"), 0);

    gate.open();
    eventually("others may run again", || {
        (post(&gateway, "/charges", "new").status == 201).then_some(())
    });
    drop((runs, other));
}
