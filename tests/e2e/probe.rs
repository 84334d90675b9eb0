//! Rows 18 and 19, where the upstream can be asked what became of a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::harness::{Answer, Gateway, Ledger, Then, eventually, reply};

const SETTINGS: &str = r#"
    [idempotency]
    recover = "probe"
    probe   = "GET /idempotency/{key}"
    lease   = "1s"
"#;

/// An upstream that loses the answer to its first charge, and says `told` when it is asked about one.
fn ledger() -> (Ledger, Arc<AtomicU16>) {
    let (ledger, told) = (Ledger::start(), Arc::new(AtomicU16::new(503)));
    let status = told.clone();
    ledger.behave(move |effect, client| match (effect.method.as_str(), effect.number) {
        ("GET", _) => {
            reply(client, status.load(Ordering::SeqCst), &["X-Told: by the service"], "known")
        }
        (_, 1) => Then::Close,
        _ => reply(client, 201, &[], "charged"),
    });
    (ledger, told)
}

fn charge(gateway: &Gateway) -> Answer {
    let request = gateway.post("/charges").key("a/b").json("{}");
    request.header("Authorization", "Bearer ann").header("If-None-Match", "x").send()
}

/// A gateway whose first charge was lost, and whose lease is over.
fn lost(ledger: &Ledger) -> Gateway {
    let gateway = Gateway::in_front_of(ledger).with(SETTINGS).start();
    let lost = charge(&gateway);
    assert_eq!((lost.status, lost.problem().as_deref()), (502, Some("upstream-failed")));
    assert_eq!(lost.header("x-should-retry"), Some("true"), "a retry finds out more");
    gateway
}

/// A retry that did not come too early.
fn retry(gateway: &Gateway) -> Answer {
    eventually("the lease is over", || {
        Some(charge(gateway)).filter(|retry| retry.problem().as_deref() != Some("in-progress"))
    })
}

/// How often work was done, and how often somebody asked.
fn seen(ledger: &Ledger) -> (usize, usize) {
    let all = ledger.all();
    let asked = all.iter().filter(|effect| effect.method == "GET").count();
    (all.len() - asked, asked)
}

#[test]
fn work_that_was_done_is_not_done_again() {
    let (ledger, told) = ledger();
    let gateway = lost(&ledger);
    told.store(200, Ordering::SeqCst);
    let answer = retry(&gateway);
    assert_eq!((answer.status, answer.text().as_str()), (200, "known"));
    assert_eq!(answer.header("x-told"), Some("by the service"));
    assert_eq!(answer.header("idempotent-replayed"), Some("true"));
    charge(&gateway).replays(&answer);
    assert_eq!(seen(&ledger), (1, 1));

    let question = &ledger.all()[1];
    assert_eq!(question.target, "/idempotency/a%2Fb");
    assert_eq!(question.header("authorization"), Some("Bearer ann"));
    assert_eq!(question.header("idempotency-key"), Some("a/b"));
    assert_eq!((question.header("content-type"), question.header("if-none-match")), (None, None));
    assert!(question.body.is_empty());
}

#[test]
fn work_that_was_not_done_runs() {
    let (ledger, told) = ledger();
    let gateway = lost(&ledger);
    told.store(404, Ordering::SeqCst);
    let answer = retry(&gateway);
    assert_eq!((answer.status, answer.text().as_str()), (201, "charged"));
    assert_eq!(answer.header("idempotent-replayed"), None);
    charge(&gateway).replays(&answer);
    assert_eq!(seen(&ledger), (2, 1));
    assert_eq!(ledger.all()[2].header("selfsame-attempt"), Some("2"));
}

#[test]
fn while_nothing_is_told_the_key_is_held_and_few_ask() {
    let (ledger, told) = ledger();
    let gateway = lost(&ledger);
    retry(&gateway).refused("outcome-unknown");
    std::thread::scope(|threads| {
        for _ in 0..20 {
            threads.spawn(|| charge(&gateway).refused("outcome-unknown"));
        }
    });
    assert_eq!(seen(&ledger), (1, 1));
    told.store(200, Ordering::SeqCst);
    let answer = eventually("it is asked again", || {
        Some(charge(&gateway)).filter(|answer| answer.status == 200)
    });
    charge(&gateway).replays(&answer);
    assert_eq!(seen(&ledger), (1, 2));
    for (told, times) in [("unknown", 1.0), ("done", 1.0), ("not_done", 0.0)] {
        let name = format!("selfsame_probes_total{{route=\"default\",told=\"{told}\"}}");
        gateway.expect_metric(&name, times);
    }
}

#[test]
fn of_many_who_hear_that_nothing_was_done_one_runs() {
    let (ledger, told) = ledger();
    let gateway = lost(&ledger);
    told.store(404, Ordering::SeqCst);
    std::thread::scope(|threads| {
        for _ in 0..20 {
            threads.spawn(|| {
                eventually("an answer", || Some(charge(&gateway)).filter(|a| a.status == 201))
            });
        }
    });
    assert_eq!(seen(&ledger), (2, 1));
}
