//! Rows 18, 19 and 25: the request was sent, and no whole answer came back.

use std::io::Write;

use crate::harness::{Answer, Gateway, Ledger, Then, eventually, reply};

/// What is said of a key whose answer was lost and which waits for a person.
#[track_caller]
fn assert_lost_and_held(answer: &Answer) {
    let refusal = answer.refused("upstream-failed");
    assert_eq!(refusal["retryable"], false);
}

#[test]
fn an_upstream_that_closes_without_an_answer_is_not_asked_again() {
    for recover in ["auto", "hold"] {
        let ledger = Ledger::start();
        ledger.behave(|_, _| Then::Close);
        let settings = format!("[idempotency]\nrecover = \"{recover}\"\nlease = \"1s\"\n");
        let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
        let request = gateway.post("/charges").key("silent").json(r#"{"amount":10}"#);

        assert_lost_and_held(&request.send());
        for _ in 0..3 {
            request.send().refused("outcome-unknown");
        }
        assert_eq!(ledger.all().len(), 1, "no silent resend");
    }
}

#[test]
fn under_resume_the_retry_runs_again_once_the_lease_is_over() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("selfsame-attempt") {
        Some("1") => Then::Close,
        _ => reply(client, 201, &[], "the second attempt"),
    });
    let settings = "[idempotency]\nrecover = \"resume\"\nlease = \"2s\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let request = gateway.post("/charges").key("resumed").json(r#"{"amount":10}"#);

    let refusal = request.send().refused("upstream-failed");
    assert_eq!(refusal["retryable"], true);
    // The upstream may still be at work: its lease runs out first.
    request.send().refused("in-progress");
    let second = eventually("the lease is over", || {
        let retry = request.send();
        (retry.status != 409).then_some(retry)
    });

    assert_eq!((second.status, second.text().as_str()), (201, "the second attempt"));
    request.send().replays(&second);
    let attempts = ledger.of("resumed");
    let attempts: Vec<_> = attempts.iter().map(|run| run.header("selfsame-attempt")).collect();
    assert_eq!(attempts, [Some("1"), Some("2")]);
}

#[test]
fn half_an_answer_is_neither_delivered_nor_stored() {
    let halves: [(&str, &str); 4] = [
        ("length", "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"secret\":\"half\""),
        ("chunk", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nsecret"),
        ("last-chunk", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nsecret\r\n"),
        ("head", "HTTP/1.1 201 Created\r\nX-Secret: secret\r\n"),
    ];
    let ledger = Ledger::start();
    ledger.behave(move |effect, client| {
        let half = halves.iter().find(|half| Some(half.0) == effect.header("idempotency-key"));
        client.write_all(half.expect("a known key").1.as_bytes()).expect("written");
        Then::Close
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    for (key, _) in halves {
        let request = gateway.post("/charges").key(key).json("{}");
        let first = request.send();
        assert_lost_and_held(&first);
        assert!(!first.text().contains("secret"), "{key}");
        request.send().refused("outcome-unknown");
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
}

#[test]
fn an_answer_that_is_not_http_is_a_lost_answer() {
    let ledger = Ledger::start();
    ledger.behave(|_, client| {
        client.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").expect("written");
        Then::Close
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("ssh").json("{}");
    assert_lost_and_held(&request.send());
    request.send().refused("outcome-unknown");
    assert_eq!(ledger.effects("ssh"), 1);
}

#[test]
fn a_pooled_connection_that_closes_on_our_request_is_not_followed_by_a_resend() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.target.as_str() {
        "/warm" => reply(client, 200, &[], ""),
        _ => Then::Close,
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    assert_eq!(gateway.request("GET", "/warm").send().status, 200);

    let request = gateway.post("/charges").key("pooled").json(r#"{"amount":10}"#);
    assert_lost_and_held(&request.send());
    request.send().refused("outcome-unknown");
    let unkeyed = gateway.post("/unkeyed").json("{}").send();
    assert_eq!(unkeyed.refused("upstream-failed")["retryable"], false);
    assert_eq!(ledger.effects("pooled"), 1);
    assert_eq!(ledger.all().len(), 3, "one for each request that was sent");
}

#[test]
fn connections_that_close_behind_every_answer_never_double_an_effect() {
    let ledger = Ledger::start();
    // It promises to keep the connection and closes it: the next request races with the close.
    ledger.behave(|effect, client| {
        reply(client, 201, &["Connection: keep-alive"], &format!("{}", effect.number));
        Then::Close
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    for number in 0..100 {
        let key = format!("race-{number}");
        let request = gateway.post("/charges").key(&key).json("{}");
        let first = request.send();
        match first.status {
            201 => request.send().replays(&first),
            _ => {
                assert_lost_and_held(&first);
                request.send().refused("outcome-unknown");
            }
        }
        assert!(ledger.effects(&key) <= 1, "{key}");
        assert!(first.status != 201 || ledger.effects(&key) == 1, "{key}");
    }
}

#[test]
fn work_over_run_timeout_has_an_unknown_outcome() {
    let (ledger, gate) = Ledger::gated(|_| "too late".to_owned());
    let settings = "[idempotency]\nresponse_timeout = \"1s\"\nrun_timeout = \"1s\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let request = gateway.post("/charges").key("endless").json("{}");

    let first = request.send();
    assert!(matches!(first.status, 502 | 504), "{}", first.text());
    eventually("the run ends", || {
        (request.send().problem().as_deref() == Some("outcome-unknown")).then_some(())
    });
    gate.open();
    request.send().refused("outcome-unknown");
    assert_eq!(ledger.effects("endless"), 1);
}
