//! Row 7: the same JSON written otherwise is the same request, and so is a form with a new boundary
//! or a body packed anew; where two meanings are possible nothing is merged.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::harness::{Answer, Gateway, Ledger};

struct Trial {
    ledger: Ledger,
    gateway: Gateway,
}

impl Trial {
    fn start() -> Self {
        Self::with("")
    }

    fn with(settings: &str) -> Self {
        let ledger = Ledger::start();
        let gateway = Gateway::in_front_of(&ledger).with(settings).start();
        Self { ledger, gateway }
    }

    fn send_packed(&self, key: &str, coding: &str, body: &[u8]) -> Answer {
        let post = self.gateway.post("/charges").key(key).header("Content-Type", JSON);
        post.header("Content-Encoding", coding).body(body).send()
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

/// A form with a file, as clients write it.
fn form(boundary: &str, file: &str) -> (String, Vec<u8>) {
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n10\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\
         Content-Type: text/plain\r\n\r\n{file}\r\n--{boundary}--\r\n"
    );
    (format!("multipart/form-data; boundary={boundary}"), body.into_bytes())
}

#[test]
fn a_form_sent_again_with_a_new_boundary_replays() {
    let trial = Trial::start();
    let (kind, body) = form("----WebKitFormBoundaryA", "a file\r\n--end");
    let first = trial.send("form", &kind, &body);
    assert_eq!(first.status, 201);
    let (other_kind, other_body) = form("0123456789abcdef", "a file\r\n--end");
    trial.send("form", &other_kind, &other_body).replays(&first);
    let (other_kind, other_body) = form("0123456789abcdef", "a file\r\n--End");
    trial.send("form", &other_kind, &other_body).refused("key-reused");
    assert_eq!(trial.ledger.effects("form"), 1);
    assert_eq!(trial.ledger.of("form")[0].body, body, "forwarded as it was sent");
}

#[test]
fn a_form_whose_parts_are_in_doubt_counts_byte_by_byte() {
    let trial = Trial::start();
    let (kind, body) = form("A", "a file\n--A");
    let first = trial.send("doubt", &kind, &body);
    assert_eq!(first.status, 201);
    let (other_kind, other_body) = form("B", "a file\n--B");
    trial.send("doubt", &other_kind, &other_body).refused("key-reused");
    trial.send("doubt", &kind, &body).replays(&first);
    assert_eq!(trial.ledger.effects("doubt"), 1);
}

fn gzip(plain: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(plain).expect("in memory");
    encoder.finish().expect("in memory")
}

fn deflate(plain: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).expect("in memory");
    encoder.finish().expect("in memory")
}

#[test]
fn a_body_packed_anew_replays() {
    let trial = Trial::start();
    let plain = br#"{"amount":10,"note":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;
    let first = trial.send_packed("packed", "gzip", &gzip(plain, 1));
    assert_eq!(first.status, 201);
    assert_ne!(gzip(plain, 1), gzip(plain, 9));
    trial.send_packed("packed", "gzip", &gzip(plain, 9)).replays(&first);
    trial.send_packed("packed", "deflate", &deflate(plain)).replays(&first);
    trial.send_packed("packed", "identity", plain).replays(&first);
    trial.send("packed", JSON, plain).replays(&first);
    trial.send_packed("packed", "gzip", &gzip(b"{\"amount\":11}", 9)).refused("key-reused");
    trial.send_packed("packed", "br", &gzip(plain, 1)).refused("key-reused");
    let effects = trial.ledger.of("packed");
    assert_eq!(effects.len(), 1);
    assert_eq!(effects[0].body, gzip(plain, 1), "forwarded as it was sent");
    assert_eq!(effects[0].header("content-encoding"), Some("gzip"));
}

#[test]
fn a_body_that_would_not_fit_unpacked_counts_as_it_was_sent() {
    let trial = Trial::with("[idempotency]\nmax_request_body = \"64KiB\"\n");
    let bomb = vec![b' '; 32 << 20];
    let (one, two) = (gzip(&bomb, 6), gzip(&bomb, 6));
    assert!(one.len() < 1 << 16);
    let before = trial.gateway.resident_kib();
    let first = trial.send_packed("bomb", "gzip", &one);
    assert_eq!(first.status, 201);
    trial.send_packed("bomb", "gzip", &two).replays(&first);
    trial.send_packed("bomb", "gzip", &gzip(&bomb[1..], 6)).refused("key-reused");
    let grown = trial.gateway.resident_kib().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB for a body of 64");
    assert_eq!(trial.ledger.effects("bomb"), 1);
}

#[test]
fn members_that_a_route_ignores_do_not_count() {
    let settings =
        "[[route]]\nmatch = \"POST /charges\"\nignore = [\"/sent_at\", \"/meta/trace\"]\n";
    let trial = Trial::with(settings);
    let body = br#"{"amount":10,"sent_at":"09:00","meta":{"trace":1,"who":"ann"}}"#;
    let first = trial.send("ignore", JSON, body);
    assert_eq!(first.status, 201);
    for same in [
        &br#"{"amount":10,"sent_at":"09:01","meta":{"trace":2,"who":"ann"}}"#[..],
        br#"{"amount":10,"meta":{"who":"ann"}}"#,
    ] {
        trial.send("ignore", JSON, same).replays(&first);
    }
    for other in [
        &br#"{"amount":11,"sent_at":"09:00","meta":{"trace":1,"who":"ann"}}"#[..],
        br#"{"amount":10,"sent_at":"09:00","meta":{"trace":1,"who":"bob"}}"#,
        br#"{"amount":10,"sent_at":1,"sent_at":2,"meta":{"who":"ann"}}"#,
    ] {
        trial.send("ignore", JSON, other).refused("key-reused");
    }
    trial.send("ignore", "text/plain", body).refused("key-reused");
    let effects = trial.ledger.of("ignore");
    assert_eq!(effects.len(), 1);
    assert_eq!(effects[0].body, body, "forwarded as it was sent");
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
    let identity = gateway.post("/charges").key("raw").header("Content-Encoding", "identity");
    identity.json(r#"{"a":1,"b":2}"#).send().refused("key-reused");
}
