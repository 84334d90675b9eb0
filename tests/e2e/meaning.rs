//! Row 7: the same JSON written otherwise is the same request; where two meanings are possible
//! nothing is merged.

use crate::harness::{Answer, Gateway, Ledger};

struct Trial {
    ledger: Ledger,
    gateway: Gateway,
}

impl Trial {
    fn start() -> Self {
        let ledger = Ledger::start();
        let gateway = Gateway::in_front_of(&ledger).start();
        Self { ledger, gateway }
    }

    fn send(&self, key: &str, kind: &str, body: &[u8]) -> Answer {
        self.gateway.post("/charges").key(key).header("Content-Type", kind).body(body).send()
    }
}

const JSON: &str = "application/json";

#[test]
fn the_same_json_written_otherwise_replays() {
    let trial = Trial::start();
    let first = r#"{"amount":10,"to":"caf\u00e9","tags":["a","b"],"card":{"x":1,"y":null}}"#;
    let same: [&str; 4] = [
        r#"{"card":{"y":null,"x":1},"tags":["a","b"],"to":"caf\u00e9","amount":10}"#,
        "\r\n{ \"amount\" : 10,\t\"to\":\"caf\\u00E9\", \"tags\":[ \"a\" , \"b\" ],\"card\":{\"x\":1,\"y\":null} }\n",
        r#"{"amount":10,"to":"café","tags":["\u0061","b"],"card":{"x":1,"y":null}}"#,
        r#"{"\u0061mount":10,"to":"café","tags":["a","b"],"card":{"x":1,"y":null}}"#,
    ];
    let answer = trial.send("json", JSON, first.as_bytes());
    assert_eq!(answer.status, 201);
    for body in same {
        trial.send("json", JSON, body.as_bytes()).replays(&answer);
    }
    assert_eq!(trial.ledger.effects("json"), 1);
    assert_eq!(trial.ledger.of("json")[0].body, first.as_bytes(), "forwarded as it was sent");
}

#[test]
fn what_could_mean_something_else_is_never_merged() {
    let trial = Trial::start();
    let pairs: [(&str, &[u8], &[u8]); 18] = [
        ("a number with a point", br#"{"n":1}"#, br#"{"n":1.0}"#),
        ("a number with an exponent", br#"{"n":100}"#, br#"{"n":1e2}"#),
        ("zeros at the end", br#"{"n":1.10}"#, br#"{"n":1.1}"#),
        ("minus zero", br#"{"n":0}"#, br#"{"n":-0}"#),
        ("beyond 2^53", br#"{"n":9007199254740993}"#, br#"{"n":9007199254740992}"#),
        ("a number as text", br#"{"n":1}"#, br#"{"n":"1"}"#),
        ("a member twice, and its last", br#"{"n":1,"n":2}"#, br#"{"n":2}"#),
        ("a member twice, and its first", br#"{"n":1,"n":2}"#, br#"{"n":1}"#),
        ("a member twice, the other way round", br#"{"n":1,"n":2}"#, br#"{"n":2,"n":1}"#),
        ("a member twice, once escaped", br#"{"n":1,"\u006e":2}"#, br#"{"\u006e":2,"n":1}"#),
        ("an escaped NUL", br#"{"s":"a\u0000b"}"#, br#"{"s":"a"}"#),
        ("a raw NUL", b"{\"s\":\"a\0b\"}", br#"{"s":"a"}"#),
        ("a NUL at the end", b"{\"s\":\"a\"}\0", br#"{"s":"a"}"#),
        ("two broken bytes", b"{\"s\":\"\xff\"}", b"{\"s\":\"\xfe\"}"),
        ("a broken byte and its stand-in", b"{\"s\":\"\xff\"}", b"{\"s\":\"\xef\xbf\xbd\"}"),
        ("lone surrogates", br#"{"s":"\ud800"}"#, br#"{"s":"\udc00"}"#),
        ("the order of a list", br#"{"l":[1,2]}"#, br#"{"l":[2,1]}"#),
        (
            "another letter of the same look",
            "{\"s\":\"é\"}".as_bytes(),
            "{\"s\":\"e\u{301}\"}".as_bytes(),
        ),
    ];
    for (number, (what, first, second)) in pairs.into_iter().enumerate() {
        let key = format!("pair-{number}");
        let answer = trial.send(&key, JSON, first);
        assert_eq!(answer.status, 201, "{what}");
        assert_eq!(trial.send(&key, JSON, second).status, 422, "{what}");
        trial.send(&key, JSON, first).replays(&answer);
        assert_eq!(trial.ledger.effects(&key), 1, "{what}");
        assert_eq!(trial.ledger.of(&key)[0].body, first, "{what}");
    }
}

#[test]
fn the_type_of_a_body_counts_and_its_spelling_does_not() {
    let trial = Trial::start();
    let body = br#"{"amount":10,"to":"x"}"#;
    let first = trial.send("kind", JSON, body);
    for kind in ["application/json; charset=utf-8", "Application/JSON;charset=\"UTF-8\""] {
        trial.send("kind", kind, body).replays(&first);
        trial.send("kind", kind, br#"{"to":"x", "amount":10}"#).replays(&first);
    }
    let others = [
        "application/json; charset=latin1",
        "application/vnd.x+json",
        "text/plain",
        "text/pl\u{e4}in",
    ];
    for kind in others {
        trial.send("kind", kind, body).refused("key-reused");
    }
    assert_eq!(trial.ledger.effects("kind"), 1);

    let odd = trial.send("odd-kind", "text/\u{e4}", body);
    assert_eq!(odd.status, 201);
    trial.send("odd-kind", "text/\u{f6}", body).refused("key-reused");
    let none = trial.gateway.post("/charges").key("odd-kind").body(body).send();
    none.refused("key-reused");
}

#[test]
fn text_that_is_not_json_counts_byte_by_byte() {
    let trial = Trial::start();
    let kind = "application/x-www-form-urlencoded";
    let first = trial.send("form", kind, b"a=1&b=2");
    assert_eq!(first.status, 201);
    trial.send("form", kind, b"b=2&a=1").refused("key-reused");
    trial.send("form", kind, b"a=1&b=2").replays(&first);
    assert_eq!(trial.ledger.effects("form"), 1);
}

#[test]
fn with_raw_fingerprints_json_counts_byte_by_byte() {
    let ledger = Ledger::start();
    let settings = "[idempotency]\nfingerprint = \"raw\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let first = gateway.post("/charges").key("raw").json(r#"{"a":1,"b":2}"#).send();
    assert_eq!(first.status, 201);
    gateway.post("/charges").key("raw").json(r#"{"b":2,"a":1}"#).send().refused("key-reused");
    gateway.post("/charges").key("raw").json(r#"{"a":1,"b":2}"#).send().replays(&first);
}
