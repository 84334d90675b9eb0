//! What an upstream is told of a request's way, what a client is told of an answer's, and `Expect`.

use std::io::{BufReader, Read, Write};

use crate::harness::{Answer, Effect, Gateway, Ledger, read_up_to, reply};

const SENT: [(&str, &str); 8] = [
    ("X-Real-IP", "192.0.2.1"),
    ("X-Forwarded-User", "root"),
    ("X-Forwarded-Prefix", "/admin"),
    ("X-Forwarded-For", "192.0.2.1"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "shop.example"),
    ("Forwarded", "for=192.0.2.1;proto=https"),
    ("Via", "1.0 other"),
];

/// A request with [`SENT`], as the upstream gets it through a gateway with these settings.
fn seen(settings: &str) -> (Effect, String) {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let request = gateway.post("/charges").key("k").json("{}");
    let request = SENT.iter().fold(request, |request, (name, value)| request.header(name, value));
    assert_eq!(request.send().status, 201);
    (ledger.all().remove(0), gateway.address.to_string())
}

fn via(effect: &Effect) -> Vec<&str> {
    let lines = effect.headers.iter().filter(|(name, _)| name == "via");
    lines.map(|(_, value)| value.as_str()).collect()
}

#[test]
fn a_strangers_word_on_its_way_is_replaced() {
    let (effect, host) = seen("");
    assert_eq!(effect.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(effect.header("x-forwarded-proto"), Some("http"));
    assert_eq!(effect.header("x-forwarded-host"), Some(host.as_str()));
    let forwarded = format!("for=127.0.0.1;host=\"{host}\";proto=http");
    assert_eq!(effect.header("forwarded"), Some(forwarded.as_str()));
    for name in ["x-real-ip", "x-forwarded-user", "x-forwarded-prefix"] {
        assert_eq!(effect.header(name), None, "{name}");
    }
    assert_eq!(via(&effect), ["1.0 other", "1.1 selfsame"]);
}

#[test]
fn a_trusted_proxys_word_is_added_to() {
    let (effect, host) = seen("trusted_proxies = [\"127.0.0.0/8\"]\n");
    assert_eq!(effect.header("x-forwarded-for"), Some("192.0.2.1, 127.0.0.1"));
    assert_eq!(effect.header("x-forwarded-proto"), Some("https"));
    assert_eq!(effect.header("x-forwarded-host"), Some("shop.example"));
    let ours = format!("for=127.0.0.1;host=\"{host}\";proto=http");
    let forwarded = format!("for=192.0.2.1;proto=https, {ours}");
    assert_eq!(effect.header("forwarded"), Some(forwarded.as_str()));
    for (name, value) in &SENT[..3] {
        assert_eq!(effect.header(&name.to_lowercase()), Some(*value), "{name}");
    }
}

#[test]
fn an_answer_is_signed_once_and_given_again_as_it_was() {
    let ledger = Ledger::start();
    let headers =
        ["Via: 1.1 backend", "Connection: X-Hop", "X-Hop: 1", "X-Own: 2", "Keep-Alive: 5"];
    ledger.behave(move |_, client| reply(client, 201, &headers, "charged"));
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("k").json("{}");
    let first = request.send();
    assert_eq!(first.all("via"), ["1.1 backend", "1.1 selfsame"]);
    assert_eq!((first.header("x-hop"), first.header("x-own")), (None, Some("2")));
    assert_eq!(first.header("keep-alive"), None);
    let again = request.send();
    again.replays(&first);
    assert_eq!(again.all("via"), first.all("via"));
    // What we say ourselves came through nobody.
    assert_eq!(gateway.post("/charges").key("").send().header("via"), None);
}

#[test]
fn a_body_is_asked_for_when_it_is_wanted_and_not_before() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let head = |key: &str| {
        format!(
            "POST /charges HTTP/1.1\r\nHost: a\r\n{key}Content-Length: 2\r\n\
             Expect: 100-continue\r\n\r\n"
        )
    };
    let request = gateway.post("/charges");
    for key in ["", "Idempotency-Key: k\r\n"] {
        let mut connection = request.open();
        connection.get_mut().write_all(head(key).as_bytes()).expect("sent");
        assert!(read_up_to(&mut connection, "\r\n\r\n").starts_with("HTTP/1.1 100 "), "{key}");
        connection.get_mut().write_all(b"{}").expect("sent");
        assert_eq!(Answer::read(&mut connection).expect("an answer").status, 201, "{key}");
    }
    assert!(ledger.all().iter().all(|effect| effect.header("expect").is_none()));

    // Two keys: refused, whatever the body is.
    let mut connection = request.connect().expect("a connection");
    let two = head("Idempotency-Key: a\r\nIdempotency-Key: b\r\n");
    connection.write_all(two.as_bytes()).expect("sent");
    let mut said = String::new();
    BufReader::new(connection).read_to_string(&mut said).expect("an answer, and the end");
    assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("#invalid-key"), "{said}");
    assert_eq!(ledger.all().len(), 2);
}
