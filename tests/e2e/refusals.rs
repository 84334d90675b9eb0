//! The contract's refusals as their readers see them; that each has its status, headers and
//! members is checked by `Answer::refused` wherever one is met.

use std::io::{BufReader, Write};

use crate::harness::{Answer, Gate, Gateway, Ledger, Then, read_up_to, reply};

#[test]
fn no_refusal_tells_what_was_sent_or_answered() {
    const SENT: &str = r#"{"card":"4242-sent-secret"}"#;
    const OTHER: &str = r#"{"card":"4242-other-secret"}"#;
    let ledger = Ledger::start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| match effect.target.as_str() {
        "/gated" => {
            at_gate.pass();
            Then::Close
        }
        "/lost" => Then::Close,
        "/large" => reply(client, 201, &[], &"answered-secret".repeat(200)),
        _ => reply(client, 201, &[], "answered-secret"),
    });
    let settings = "[idempotency]\nmax_response_body = \"1KiB\"\nmax_request_body = \"1KiB\"\n\
        response_timeout = \"1s\"\n[[route]]\nmatch = \"POST /required\"\nkey = \"required\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let post =
        |target: &str, key: &str, body: &str| gateway.post(target).key(key).json(body).send();

    assert_eq!(post("/done", "done-secret", SENT).status, 201);
    assert_eq!(post("/large", "large-secret", SENT).status, 201);
    let refusals: [(&str, Answer); 11] = [
        ("upstream-timeout", post("/gated", "gated-secret", SENT)),
        ("in-progress", post("/gated", "gated-secret", SENT)),
        ("upstream-failed", post("/lost", "lost-secret", SENT)),
        ("outcome-unknown", post("/lost", "lost-secret", SENT)),
        ("key-reused", post("/done", "done-secret", OTHER)),
        ("key-reused", post("/other?query-secret", "done-secret", SENT)),
        ("response-not-kept", post("/large", "large-secret", SENT)),
        ("body-too-large", post("/done", "k", &SENT.repeat(100))),
        ("invalid-key", post("/done", "a secret", SENT)),
        ("missing-key", gateway.post("/required").json(SENT).send()),
        (
            "missing-tenant",
            gateway.post("/done").key("k").header("Cookie", "a=secret").json(SENT).send(),
        ),
    ];
    let mut instances = Vec::new();
    for (slug, answer) in refusals {
        let refusal = answer.refused(slug);
        assert!(!answer.text().contains("secret"), "{}", answer.text());
        assert!(answer.headers.iter().all(|(_, value)| !value.contains("secret")), "{slug}");
        instances.push(refusal["instance"].clone());
    }
    instances.sort_by_key(ToString::to_string);
    instances.dedup();
    assert_eq!(instances.len(), 11, "each refusal has a name of its own");
    gate.open();
}

#[test]
fn a_body_that_is_announced_too_large_is_refused_before_it_is_sent() {
    let ledger = Ledger::start();
    let settings = "[idempotency]\nmax_request_body = \"1KiB\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let request = gateway.post("/charges").key("large");

    let announced = request.clone().header("Content-Length", "1025").send();
    let detail = announced.refused("body-too-large")["detail"].to_string();
    assert!(detail.contains("1024"), "it says how much is allowed: {detail}");
    let polite = request.clone().header("Content-Length", "1025").header("Expect", "100-continue");
    polite.send().refused("body-too-large");
    assert_eq!(ledger.all().len(), 0);

    let fits = request.body(&[b'x'; 1024]).send();
    assert_eq!(fits.status, 201, "the refused ones left the key as it was");
    assert_eq!(ledger.effects("large"), 1);
}

#[test]
fn a_body_that_turns_out_too_large_is_refused_before_anything_runs() {
    let ledger = Ledger::start();
    let settings = "[idempotency]\nmax_request_body = \"1KiB\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let request = gateway.post("/charges").key("chunks").header("Transfer-Encoding", "chunked");

    let chunk = format!("200\r\n{}\r\n", "x".repeat(512));
    let endless = request.clone().body(format!("{chunk}{chunk}1\r\nx\r\n").as_bytes());
    endless.send().refused("body-too-large");
    assert_eq!(ledger.all().len(), 0);

    let fits = request.body(format!("{chunk}{chunk}0\r\n\r\n").as_bytes()).send();
    assert_eq!(fits.status, 201);
    assert_eq!(ledger.of("chunks")[0].body.len(), 1024);
}

#[test]
fn a_body_that_cannot_be_read_is_refused_and_the_key_stays_free() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("garbled").header("Transfer-Encoding", "chunked");
    let garbled = request.clone().body(b"4\r\nhalf\r\nnot a size\r\n").send();
    assert_eq!(garbled.status, 400);
    let mut half = BufReader::new(request.clone().body(b"4\r\nhalf\r\n").begin());
    half.get_mut().shutdown(std::net::Shutdown::Write).expect("half open");
    Answer::read(&mut half).expect("an answer").refused("body-incomplete");
    assert_eq!(ledger.all().len(), 0);
    assert_eq!(request.body(b"4\r\nhalf\r\n0\r\n\r\n").send().status, 201);
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let head = gateway.post("/charges").key("polite").header("Content-Length", "2");
    let mut connection = BufReader::new(head.header("Expect", "100-continue").begin());
    read_up_to(&mut connection, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(ledger.all().len(), 0);
    connection.get_mut().write_all(b"{}").expect("sent");
    assert_eq!(Answer::read(&mut connection).expect("an answer").status, 201);
    assert_eq!(ledger.of("polite")[0].body, b"{}");
}

#[test]
fn stripes_sdks_are_refused_in_their_own_words() {
    let ledger = Ledger::start();
    let gateway =
        Gateway::in_front_of(&ledger).with("[idempotency]\nprofile = \"stripe\"\n").start();
    let post = |body: &str| gateway.post("/charges").key("stripe").json(body).send();
    assert_eq!(post("{}").status, 201);
    let reused = post(r#"{"another":1}"#);
    assert_eq!(reused.status, 400);
    assert_eq!(reused.header("stripe-should-retry"), Some("false"));
    assert_eq!(reused.header("content-type"), Some("application/json"));
    let body: serde_json::Value = serde_json::from_slice(&reused.body).expect("JSON");
    assert_eq!(body["error"]["type"], "idempotency_error");
    assert_eq!(ledger.all().len(), 1);
}

#[test]
fn stripes_manners_keep_a_server_error_and_say_not_to_retry_it() {
    let ledger = Ledger::start();
    ledger.behave(|_, client| reply(client, 500, &[], "broken"));
    let gateway =
        Gateway::in_front_of(&ledger).with("[idempotency]\nprofile = \"stripe\"\n").start();
    let post = || gateway.post("/charges").key("kept-error").json("{}").send();
    let (first, replay) = (post(), post());
    assert_eq!((first.status, first.header("stripe-should-retry")), (500, None));
    assert_eq!((replay.status, replay.header("stripe-should-retry")), (500, Some("false")));
    assert_eq!(replay.header("x-should-retry"), Some("false"));
    assert_eq!(replay.body, first.body);
    assert_eq!(ledger.all().len(), 1);
}

#[test]
fn pages_of_named_origins_can_read_what_the_upstream_did_not_answer() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.target.as_str() {
        "/lost" => Then::Close,
        _ => reply(client, 201, &[], ""),
    });
    let settings = "[idempotency]\ncors_origins = [\"https://shop.test\"]\n\
        [[route]]\nmatch = \"POST /closed\"\ncors_origins = []\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let from = |origin: &str, target: &str, key: &str| {
        gateway.post(target).key(key).header("Origin", origin).json("{}").send()
    };

    assert_eq!(from("https://shop.test", "/done", "done").status, 201);
    for origin in ["https://shop.test", "https://stranger.test"] {
        let fresh = format!("lost-{origin}");
        let unkeyed = gateway.post("/lost").header("Origin", origin).json("{}").send();
        let refusals = [
            ("key-reused", from(origin, "/other", "done")),
            ("invalid-key", from(origin, "/done", "")),
            ("upstream-failed", from(origin, "/lost", &fresh)),
            ("outcome-unknown", from(origin, "/lost", &fresh)),
            ("upstream-failed", unkeyed),
        ];
        for (slug, answer) in refusals {
            answer.refused(slug);
            let may_read = (origin == "https://shop.test").then_some(origin);
            assert_eq!(answer.header("access-control-allow-origin"), may_read, "{slug}");
            assert_eq!(answer.header("vary"), Some("Origin"), "{slug}");
        }
    }
    let closed = from("https://shop.test", "/closed", "done");
    closed.refused("key-reused");
    assert_eq!(closed.header("access-control-allow-origin"), None);
}
