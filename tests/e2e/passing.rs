//! What is none of our business passes: methods, routes and requests without a key; and what goes
//! on to the upstream.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};

use crate::harness::{Answer, Gate, Gateway, Ledger, PATIENCE, Request, read_up_to, reply};

/// Sends it twice, and checks that both reached the upstream.
#[track_caller]
fn assert_passes(ledger: &Ledger, request: &Request) {
    let before = ledger.all().len();
    for sent in 1..=2 {
        let answer = request.send();
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, None));
        assert_eq!(ledger.all().len(), before + sent);
    }
}

/// Sends it twice, and checks that one reached the upstream.
#[track_caller]
fn assert_protected(ledger: &Ledger, request: &Request) {
    let before = ledger.all().len();
    let first = request.send();
    assert_eq!(first.status, 201);
    request.send().replays(&first);
    assert_eq!(ledger.all().len(), before + 1);
}

#[test]
fn other_methods_pass_with_and_without_a_key() {
    let ledger = Ledger::start();
    let settings = "[idempotency]\nkey = \"required\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "QUERY"] {
        assert_passes(&ledger, &gateway.request(method, "/charges/1"));
        assert_passes(&ledger, &gateway.request(method, "/charges/1").key("k").json("{}"));
        // A key that could not be read does not matter either.
        assert_passes(&ledger, &gateway.request(method, "/charges/1").key(""));
    }
    for method in ["POST", "PATCH"] {
        gateway.request(method, "/charges/1").json("{}").send().refused("missing-key");
        assert_protected(&ledger, &gateway.request(method, "/charges/1").key(method).json("{}"));
    }
}

#[test]
fn without_a_key_a_post_passes_where_none_is_required() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    assert_passes(&ledger, &gateway.post("/charges").json("{}"));
    assert_passes(&ledger, &gateway.post("/charges").body(&vec![b'x'; 3 * 1024 * 1024]));
    assert!(ledger.all().iter().all(|effect| effect.header("selfsame-attempt").is_none()));
}

#[test]
fn methods_can_be_added_and_keys_switched_off() {
    let ledger = Ledger::start();
    let settings = "\
        [[route]]\nmatch = \"/off/{*rest}\"\nkey = \"off\"\n\
        [[route]]\nmatch = \"/put/{*rest}\"\nmethods = [\"PUT\", \"DELETE\"]\nkey = \"required\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();

    assert_passes(&ledger, &gateway.post("/off/x").key("off").json("{}"));
    assert_passes(&ledger, &gateway.post("/off/x").key("").json("{}"));
    for method in ["PUT", "DELETE"] {
        gateway.request(method, "/put/x").json("{}").send().refused("missing-key");
        assert_protected(&ledger, &gateway.request(method, "/put/x").key(method).json("{}"));
    }
    // The route does not take POST, so the defaults do.
    assert_passes(&ledger, &gateway.post("/put/x").json("{}"));
    assert_protected(&ledger, &gateway.post("/put/x").key("post").json("{}"));
}

#[test]
fn routes_are_found_by_method_and_path() {
    let ledger = Ledger::start();
    let settings = "\
        [[route]]\nmatch = \"POST /v1/charges/{id}/capture\"\nkey = \"required\"\n\
        [[route]]\nmatch = \"POST,PATCH /v2/{*rest}\"\nkey = \"required\"\n\
        [[route]]\nmatch = \"POST /v2/free\"\nkey = \"optional\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let needs_a_key = [
        ("POST", "/v1/charges/ch_1/capture"),
        ("POST", "/v1/charges/ch_1/capture?now"),
        ("POST", "/v1/charges/ch_1/capture/"),
        ("POST", "/v2/a"),
        ("PATCH", "/v2/a/b/c"),
        ("PATCH", "/v2/free"),
    ];
    for (method, target) in needs_a_key {
        gateway.request(method, target).send().refused("missing-key");
    }
    assert_eq!(ledger.all().len(), 0);
    let needs_none = ["/v1/charges/capture", "/v1/charges/a/b/capture", "/v2", "/v2/free"];
    for target in needs_none {
        assert_eq!(gateway.post(target).send().status, 201, "{target}");
    }
    let counted = r#"selfsame_requests_total{route="/v2/{*rest}",outcome="missing_key"}"#;
    gateway.expect_metric(counted, 3.0);
}

#[test]
fn a_key_counts_for_the_tenant_or_for_the_endpoint() {
    let settings = |scope: &str| {
        format!(
            "[idempotency]\nscope = \"{scope}\"\n\
             [[route]]\nmatch = \"POST /a/{{id}}\"\n[[route]]\nmatch = \"POST,PATCH /b\"\n"
        )
    };
    let first_and_others = |gateway: &Gateway| -> [Answer; 4] {
        let send =
            |method: &str, target: &str| gateway.request(method, target).key("k").json("{}").send();
        [send("POST", "/b"), send("PATCH", "/b"), send("POST", "/a/1"), send("POST", "/a/2")]
    };

    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(&settings("tenant")).start();
    let [first, others @ ..] = first_and_others(&gateway);
    assert_eq!(first.status, 201);
    for other in others {
        other.refused("key-reused");
    }
    assert_eq!(ledger.effects("k"), 1);

    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(&settings("endpoint")).start();
    let [first, other_method, other_route, other_path] = first_and_others(&gateway);
    for answer in [&first, &other_method, &other_route] {
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, None));
    }
    other_path.refused("key-reused");
    gateway.post("/b").key("k").json("{}").send().replays(&first);
    assert_eq!(ledger.effects("k"), 3);
}

#[test]
fn the_upstream_gets_the_request_as_it_was_sent_and_our_headers_from_us_alone() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let body = "{ \"amount\" : 10.00,\n \"to\" : \"caf\\u00e9\" }";
    let request =
        gateway.request("PATCH", "/v1/charges/%7Bid%7D?a=1&a=%20&b").key("\"quoted\";v=1");
    let request = request
        .header("Selfsame-Attempt", "7")
        .header("Selfsame-Claim", "forged")
        .header("SELFSAME-Anything", "forged")
        .header("Connection", "X-Hop")
        .header("X-Hop", "1")
        .header("Authorization", "Bearer ann")
        .header("X-Twice", "1")
        .header("X-Twice", "2")
        .json(body);
    assert_eq!(request.send().status, 201);

    let effects = ledger.all();
    let [effect] = effects.as_slice() else { panic!("one effect, not {effects:?}") };
    assert_eq!(effect.method, "PATCH");
    assert_eq!(effect.target, "/v1/charges/%7Bid%7D?a=1&a=%20&b");
    assert_eq!(effect.body, body.as_bytes());
    assert_eq!(effect.header("idempotency-key"), Some("\"quoted\";v=1"));
    assert_eq!(effect.header("authorization"), Some("Bearer ann"));
    assert_eq!(effect.header("host"), Some(gateway.address.to_string().as_str()));
    let ours: Vec<_> =
        effect.headers.iter().filter(|(name, _)| name.starts_with("selfsame-")).collect();
    assert_eq!(ours, [&("selfsame-attempt".to_owned(), "1".to_owned())]);
    assert_eq!(effect.header("x-hop"), None);
    let twice: Vec<_> = effect.headers.iter().filter(|(name, _)| name == "x-twice").collect();
    assert_eq!(twice.len(), 2);

    let unkeyed = gateway.post("/unkeyed").header("Selfsame-Attempt", "7").send();
    assert_eq!(unkeyed.status, 201);
    assert_eq!(ledger.all()[1].header("selfsame-attempt"), None);
}

#[test]
fn without_a_key_both_bodies_stream_through() {
    let upstream = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let gateway = Gateway::before(upstream.local_addr().expect("bound")).start();
    let request =
        gateway.post("/upload").header("Transfer-Encoding", "chunked").body(b"5\r\nfirst\r\n");

    let mut client: BufReader<TcpStream> = BufReader::new(request.begin());
    let (mut server, _) = upstream.accept().expect("the gateway connects");
    server.set_read_timeout(Some(PATIENCE)).expect("a socket");
    read_up_to(&mut server, "first");
    client.get_mut().write_all(b"6\r\nsecond\r\n0\r\n\r\n").expect("sent");
    read_up_to(&mut server, "second");

    let head = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n";
    server.write_all(format!("{head}half").as_bytes()).expect("written");
    read_up_to(&mut client, "half");
    server.write_all(b"half").expect("written");
    read_up_to(&mut client, "half");
}

#[test]
fn an_unkeyed_post_is_not_refused_while_a_keyed_one_runs() {
    let ledger = Ledger::start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        if effect.header("idempotency-key").is_some() {
            at_gate.pass();
        }
        reply(client, 201, &[], "")
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let running = gateway.post("/charges").key("runs").json("{}").begin();
    ledger.wait_for("runs", 1);
    assert_eq!(gateway.post("/charges").json("{}").send().status, 201);
    assert_eq!(gateway.post("/charges").json("{}").send().status, 201);
    gate.open();
    assert_eq!(Answer::read(&mut BufReader::new(running)).expect("an answer").status, 201);
}
