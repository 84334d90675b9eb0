//! Rows 9 and 10: the gateway is killed while work is under way. A claim means "may have been
//! sent", so what happens next is the route's `recover`, once the lease is over.

use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::harness::{Answer, Gate, Gateway, Ledger, Request, Setup, Then, eventually};

const LEASE: Duration = Duration::from_secs(10);

/// Work that waits at a gate, under a key whose gateway is killed meanwhile.
struct Interrupted {
    ledger: Ledger,
    setup: Setup,
    gate: Gate,
}

impl Interrupted {
    /// Every request in `targets` runs, under a key of the same name, when the gateway dies.
    fn at(targets: &[&str], settings: &str) -> Self {
        let (ledger, gate) =
            Ledger::gated(|effect| format!(r#"{{"charge":"ch_{}"}}"#, effect.number));
        let gateway = Gateway::in_front_of(&ledger).with(settings).start();
        let waiting: Vec<_> = targets.iter().map(|at| charge(&gateway, at).begin()).collect();
        for target in targets {
            ledger.wait_for(target, 1);
        }
        let setup = gateway.kill();
        drop(waiting);
        Self { ledger, setup, gate }
    }
}

fn charge(gateway: &Gateway, target: &str) -> Request {
    gateway.post(target).key(target).json(r#"{"amount":10}"#)
}

/// Retries until the answer is another one than "in progress".
fn decided(gateway: &Gateway, target: &str) -> Answer {
    eventually("a decision about the key", || {
        let answer = charge(gateway, target).send();
        (answer.problem().as_deref() != Some("in-progress")).then_some(answer)
    })
}

#[test]
#[expect(clippy::disallowed_methods, reason = "that a lease ends in time is what is tested")]
fn a_killed_run_is_in_progress_until_its_lease_is_over_and_unknown_from_then_on() {
    let routes = "[idempotency]\nlease = \"10s\"\n\
        [[route]]\nmatch = \"POST /hold\"\nrecover = \"hold\"\n\
        [[route]]\nmatch = \"POST /auto\"\nrecover = \"auto\"\n";
    let interrupted = Interrupted::at(&["/hold", "/auto"], routes);
    let killed = Instant::now();
    let gateway = interrupted.setup.start();

    for target in ["/hold", "/auto"] {
        let retry = charge(&gateway, target).send();
        assert_eq!((retry.status, retry.problem().as_deref()), (409, Some("in-progress")));
        assert_eq!(retry.header("retry-after"), Some("1"));
        assert_eq!(retry.header("x-should-retry"), Some("true"));
    }
    for target in ["/hold", "/auto"] {
        let retry = decided(&gateway, target);
        assert_eq!((retry.status, retry.problem().as_deref()), (409, Some("outcome-unknown")));
        assert_eq!(retry.header("x-should-retry"), Some("false"));
    }
    let took = killed.elapsed();
    assert!(took < LEASE * 2, "I7: decided only after {took:?}");

    // The work of the dead gateway ends at last; nobody is there to hear of it.
    interrupted.gate.open();
    for target in ["/hold", "/auto"] {
        let retry = charge(&gateway, target).send();
        assert_eq!(retry.problem().as_deref(), Some("outcome-unknown"), "{target}");
        assert_eq!(interrupted.ledger.effects(target), 1, "{target}");
    }
    gateway.expect_metric("selfsame_leases_expired_total", 2.0);
}

#[test]
fn a_claim_that_was_never_forwarded_counts_as_one_that_may_have_been() {
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = deaf.local_addr().expect("bound");
    let settings = "[idempotency]\nlease = \"1s\"\n";
    let gateway = Gateway::before(address).with(settings).start();
    let waiting = charge(&gateway, "/charges").begin();
    eventually("the claim", || {
        let shown = gateway.keys(&["show", "/charges"]).stdout;
        String::from_utf8_lossy(&shown).contains("claimed until").then_some(())
    });
    let gateway = gateway.kill().start();
    drop(waiting);

    let retry = decided(&gateway, "/charges");
    assert_eq!((retry.status, retry.problem().as_deref()), (409, Some("outcome-unknown")));
}

#[test]
fn half_an_answer_is_no_answer() {
    let ledger = Ledger::start();
    let gate = Gate::shut();
    let (half_way, at_gate) = (Gate::shut(), gate.clone());
    let sent = half_way.clone();
    ledger.behave(move |_, client| {
        let half = b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\nhalf ";
        client.write_all(half).expect("the gateway reads");
        sent.open();
        at_gate.pass();
        Then::Close
    });
    let gateway = Gateway::in_front_of(&ledger).with("[idempotency]\nlease = \"1s\"\n").start();
    let waiting = charge(&gateway, "/charges").begin();
    half_way.pass();
    let gateway = gateway.kill().start();
    drop(waiting);

    let retry = decided(&gateway, "/charges");
    gate.open();
    assert_eq!((retry.status, retry.problem().as_deref()), (409, Some("outcome-unknown")));
    assert_eq!(ledger.effects("/charges"), 1);
}

#[test]
fn a_held_key_that_is_freed_runs_as_the_second_attempt() {
    let Interrupted { ledger, setup, gate } =
        Interrupted::at(&["/charges"], "[idempotency]\nlease = \"1s\"\nrecover = \"hold\"\n");
    gate.open();
    let gateway = setup.start();
    assert_eq!(decided(&gateway, "/charges").problem().as_deref(), Some("outcome-unknown"));

    let shown = gateway.keys(&["show", "/charges"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("held since"), "{shown}");
    assert!(shown.contains("free the key"), "what to do is said: {shown}");
    let all_held = gateway.keys(&["show"]);
    assert_eq!(String::from_utf8_lossy(&all_held.stdout), shown);

    let freed = gateway.keys(&["free", "/charges"]);
    assert!(freed.status.success(), "{}", String::from_utf8_lossy(&freed.stderr));
    assert_eq!(ledger.effects("/charges"), 1, "freeing runs nothing by itself");

    let retry = charge(&gateway, "/charges").send();
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (201, None));
    let attempts = ledger.of("/charges");
    let attempts: Vec<_> =
        attempts.iter().map(|effect| effect.header("selfsame-attempt")).collect();
    assert_eq!(attempts, [Some("1"), Some("2")]);

    let replay = charge(&gateway, "/charges").send();
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    assert_eq!(replay.body, retry.body);
    assert_eq!(ledger.effects("/charges"), 2);
}

#[test]
fn a_held_key_that_is_completed_replays_the_operators_answer() {
    let Interrupted { ledger, setup, gate } =
        Interrupted::at(&["/charges"], "[idempotency]\nlease = \"1s\"\nrecover = \"hold\"\n");
    gate.open();
    let gateway = setup.start();
    assert_eq!(decided(&gateway, "/charges").problem().as_deref(), Some("outcome-unknown"));

    let body = r#"{"charge":"ch_by_hand","note":"ü"}"#;
    let completed = gateway.keys(&[
        "complete",
        "/charges",
        "--status",
        "202",
        "--header",
        "Content-Type: application/json",
        "--header",
        "X-Decided-By: a person",
        "--body",
        body,
    ]);
    assert!(completed.status.success(), "{}", String::from_utf8_lossy(&completed.stderr));

    let gateway = gateway.kill().start();
    for _ in 0..2 {
        let retry = charge(&gateway, "/charges").send();
        assert_eq!((retry.status, retry.text()), (202, body.to_owned()));
        assert_eq!(retry.header("content-type"), Some("application/json"));
        assert_eq!(retry.header("x-decided-by"), Some("a person"));
        assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    }
    assert_eq!(ledger.effects("/charges"), 1);
}

#[test]
fn under_resume_the_retry_after_the_lease_runs_as_the_second_attempt() {
    let Interrupted { ledger, setup, gate } =
        Interrupted::at(&["/charges"], "[idempotency]\nlease = \"10s\"\nrecover = \"resume\"\n");
    gate.open();
    let gateway = setup.start();

    let early = charge(&gateway, "/charges").send();
    assert_eq!(early.problem().as_deref(), Some("in-progress"), "the upstream may be at work yet");
    assert_eq!(ledger.effects("/charges"), 1);

    let retry = decided(&gateway, "/charges");
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (201, None));
    let second = &ledger.of("/charges")[1];
    assert_eq!(second.header("selfsame-attempt"), Some("2"));
    assert_eq!(charge(&gateway, "/charges").send().body, retry.body);
    assert_eq!(ledger.effects("/charges"), 2, "a crash under resume may run twice, not thrice");
    gateway.expect_metric("selfsame_leases_expired_total", 1.0);
    gateway.expect_metric(r#"selfsame_requests_total{route="default",outcome="resumed"}"#, 1.0);
}
