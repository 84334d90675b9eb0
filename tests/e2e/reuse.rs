//! Row 6: one key for two different requests.

use serde_json::{Value, json};

use crate::harness::{Gateway, Ledger, Request, reply};

/// The request that comes first, and others that must not pass for it.
fn original_and_others(gateway: &Gateway, key: &str) -> (Request, Vec<(&'static str, Request)>) {
    let post = |target: &str| gateway.post(target).key(key);
    let original = post("/charges?currency=eur").json(r#"{"amount":10}"#);
    let others = vec![
        ("body", post("/charges?currency=eur").json(r#"{"amount":11}"#)),
        ("empty body", post("/charges?currency=eur").json("")),
        ("path", post("/refunds?currency=eur").json(r#"{"amount":10}"#)),
        ("query", post("/charges?currency=usd").json(r#"{"amount":10}"#)),
        ("no query", post("/charges").json(r#"{"amount":10}"#)),
        (
            "type",
            post("/charges?currency=eur")
                .header("Content-Type", "text/plain")
                .body(br#"{"amount":10}"#),
        ),
        (
            "method",
            gateway.request("PATCH", "/charges?currency=eur").key(key).json(r#"{"amount":10}"#),
        ),
    ];
    (original, others)
}

#[test]
fn a_finished_key_is_not_lent_to_another_request() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let (original, others) = original_and_others(&gateway, "finished");
    let first = original.send();
    assert_eq!(first.status, 201);

    for (what, other) in &others {
        let refused = other.send().refused("key-reused");
        let parts = match *what {
            "path" | "method" => json!([what]),
            "query" | "no query" => json!(["query"]),
            "type" => json!(["content type"]),
            // The parts are the same, and members are named only where it was asked for.
            _ => Value::Null,
        };
        assert_eq!(refused["mismatch"]["parts"], parts, "{what}: {refused}");
        assert!(!refused.to_string().contains("eur"), "no value is told");
        original.send().replays(&first);
    }
    assert_eq!(ledger.all().len(), 1, "nothing else was forwarded");
}

#[test]
fn a_key_in_flight_is_not_lent_to_another_request() {
    let (ledger, gate) = Ledger::gated(|_| "the original".to_owned());
    let gateway = Gateway::in_front_of(&ledger).start();
    let (original, others) = original_and_others(&gateway, "in-flight");

    let running = std::thread::spawn({
        let original = original.clone();
        move || original.send()
    });
    ledger.wait_for("in-flight", 1);
    for (_, other) in &others {
        other.send().refused("key-reused");
    }
    gate.open();

    let first = running.join().expect("an answer");
    assert_eq!((first.status, first.text().as_str()), (201, "the original"));
    original.send().replays(&first);
    assert_eq!(ledger.all().len(), 1);
}

#[test]
fn a_freed_key_still_stands_for_its_first_request() {
    let ledger = Ledger::start();
    ledger.behave(|_, client| reply(client, 503, &[], ""));
    let gateway = Gateway::in_front_of(&ledger).start();
    let (original, others) = original_and_others(&gateway, "freed");
    assert_eq!(original.send().status, 503);

    for (what, other) in &others {
        assert_eq!(other.send().status, 422, "{what}");
    }
    assert_eq!(ledger.all().len(), 1);
    assert_eq!(original.send().status, 503);
    assert_eq!(ledger.effects("freed"), 2);
}

#[test]
fn chosen_headers_are_part_of_the_request_and_others_are_not() {
    let ledger = Ledger::start();
    let settings = "[idempotency]\nheaders = [\"Stripe-Account\"]\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let request = |accounts: &[&str], agent: &str| {
        let request = gateway.post("/charges").key("chosen").header("User-Agent", agent).json("{}");
        accounts.iter().fold(request, |request, account| request.header("Stripe-Account", account))
    };

    let first = request(&["acct_1"], "curl/8").send();
    assert_eq!(first.status, 201);
    request(&["acct_1"], "python/3").send().replays(&first);
    request(&["acct_2"], "curl/8").send().refused("key-reused");
    request(&[], "curl/8").send().refused("key-reused");
    request(&["acct_1", "acct_2"], "curl/8").send().refused("key-reused");
    assert_eq!(ledger.all().len(), 1);
}

#[test]
fn what_differs_is_named_where_the_route_says_so() {
    let ledger = Ledger::start();
    let settings = "[idempotency]\nmismatch_hint = true\nignore = [\"/sent_at\"]\n\
                    [[route]]\nmatch = \"POST /quiet\"\nmismatch_hint = false\n";
    let mut gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let first = r#"{"amount":10,"card":{"kind":"visa"},"sent_at":1}"#;
    let other = r#"{"amount":10,"card":{"kind":"amex"},"sent_at":2,"tip":1}"#;
    let send = |gateway: &Gateway, path: &str, body: &str| {
        let request = gateway.post(path).key("k").header("Authorization", path);
        request.json(body).send()
    };
    for path in ["/charges", "/quiet"] {
        assert_eq!(send(&gateway, path, first).status, 201);
    }

    for restarted in [false, true] {
        let refusal = send(&gateway, "/charges", other);
        refusal.refused("key-reused");
        let told = refusal.text();
        assert!(told.contains("in the body card, tip differ"), "{told}");
        assert!(told.contains(r#""members":["card","tip"]"#), "{told}");
        assert!(!told.contains("visa") && !told.contains("amex"), "{told}");
        let quiet = send(&gateway, "/quiet", other);
        quiet.refused("key-reused");
        assert!(!quiet.text().contains("mismatch"), "{}", quiet.text());
        if !restarted {
            gateway = gateway.kill().start();
        }
    }
    assert_eq!(ledger.all().len(), 2);
}
