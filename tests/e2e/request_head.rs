//! Heads of requests that two readers could read in two ways: none of them reaches the upstream.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{
    Answer, Frame, Gateway, Ledger, PATIENCE, PREFACE, RST_STREAM, headers, reply,
};

const ROUTES: &str = r#"
[[route]]
host  = "api.example.com"
match = "POST /charges"
key   = "required"
"#;

/// Sends these bytes and reads until the gateway closes the connection.
fn exchange(gateway: &Gateway, bytes: &str) -> String {
    let mut connection = TcpStream::connect(gateway.address).expect("a connection");
    connection.set_read_timeout(Some(PATIENCE)).expect("it is open");
    connection.write_all(bytes.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    let _reset = connection.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[track_caller]
fn assert_refused(answer: &str, status: u16, detail: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(answer.contains("application/problem+json") && answer.contains(detail), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "the rest is not read: {answer}");
}

#[test]
fn a_request_without_one_valid_host_is_refused_and_its_connection_closed() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ROUTES).start();
    let smuggled = "POST /smuggled HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let hosts = [
        ("", "names no host"),
        ("Host: other\r\nHost: api.example.com\r\n", "more than one host"),
        ("Host: api.example.com\r\nHost: api.example.com\r\n", "more than one host"),
        ("Host: other, api.example.com\r\n", "not valid"),
        ("Host: me@api.example.com\r\n", "not valid"),
        ("Host: api.example.com/x\r\n", "not valid"),
        ("Host: %61pi.example.com\r\n", "not valid"),
        ("Host:\r\n", "not valid"),
    ];
    for (lines, detail) in hosts {
        for target in ["/charges", "http://api.example.com/charges"] {
            let request =
                format!("POST {target} HTTP/1.1\r\n{lines}Content-Length: 0\r\n\r\n{smuggled}");
            assert_refused(&exchange(&gateway, &request), 400, detail);
        }
    }
    let target = "http://me:secret@api.example.com/charges";
    let request = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_refused(&exchange(&gateway, &request), 400, "not valid");
    assert_eq!(ledger.all().len(), 0);
    gateway.expect_metric("selfsame_refused_heads_total{reason=\"host\"}", 17.0);

    let old = exchange(&gateway, "POST /charges HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
    assert!(old.starts_with("HTTP/1.0 201") || old.starts_with("HTTP/1.1 201"), "{old}");
}

/// Packed fields: `POST http /`.
const POST: [u8; 3] = [0x83, 0x86, 0x84];
/// The packed status 400.
const BAD_REQUEST: u8 = 0x8c;

/// A field that is packed letter by letter.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| vec![u8::try_from(text.len()).expect("short")];
    [vec![0], length(name), name.into(), length(value), value.into()].concat()
}

#[test]
fn over_http2_too_heads_have_one_valid_host_and_clear_values() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ROUTES).start();
    let requests = [
        vec![],
        vec![field("host", "a"), field("host", "a")],
        vec![field(":authority", "a"), field("host", "api.example.com")],
        vec![field(":authority", "me@api.example.com")],
        vec![field(":authority", "a"), field("host", "")],
        vec![field("host", "a, b")],
        // Spaces around a value are no part of it over HTTP/1.
        vec![field(":authority", "a"), field("idempotency-key", " k")],
        vec![field(":authority", "a"), field("x-account", "ann\t")],
    ];
    for fields in requests {
        let mut connection = TcpStream::connect(gateway.address).expect("a connection");
        connection.set_read_timeout(Some(PATIENCE)).expect("it is open");
        let fields = [&POST[..], &fields.concat()].concat();
        let frames = [Frame::settings().bytes(), headers(1, &fields, true).bytes()].concat();
        connection.write_all(&[PREFACE, &frames].concat()).expect("sent");
        let answer = loop {
            let frame = Frame::read(&mut connection).expect("an answer");
            if frame.stream == 1 {
                break frame;
            }
        };
        // A reset is as good: then it is hyper that calls the request malformed.
        let is_refused = answer.kind == RST_STREAM || answer.payload[0] == BAD_REQUEST;
        assert!(is_refused, "{fields:?}: {answer:?}");
    }
    assert_eq!(ledger.all().len(), 0);
}

#[test]
fn a_dot_at_the_end_of_a_host_is_the_same_host() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ROUTES).start();
    for host in ["api.example.com.", "API.example.com.:80"] {
        gateway.post("/charges").host(host).json("{}").send().refused("missing-key");
    }
    assert_eq!(ledger.all().len(), 0);
}

#[test]
fn connect_and_trace_go_nowhere() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let body = "POST /smuggled HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    for target in ["CONNECT a:443", "CONNECT a", "CONNECT /charges", "TRACE /charges"] {
        let length = body.len();
        let request =
            format!("{target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
        let answer = exchange(&gateway, &request);
        assert_refused(&answer, 501, "not forwarded");
    }
    assert_eq!(ledger.all().len(), 0);
}

#[test]
fn a_method_in_lower_case_does_not_lead_past_a_route() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ROUTES).start();
    for method in ["post", "Post", "POSt", "get", "patch"] {
        let request = format!(
            "{method} /charges HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 0\r\n\r\n"
        );
        assert_refused(&exchange(&gateway, &request), 400, "upper case");
    }
    assert_eq!(ledger.all().len(), 0);
}

/// A gateway that knows its callers by `X-Tenant` from its proxies, and those of one route by another
/// service.
fn with_tenants(ledger: &Ledger, auth: &Ledger, more: &str) -> Gateway {
    let settings = format!(
        "{more}[forward_auth]\nurl = \"http://{}/\"\ntenant_header = \"X-User\"\n\
         [[route]]\nmatch = \"POST /users\"\ntenant = \"forward-auth\"\n\
         [[route]]\nmatch = \"POST /tenants\"\ntenant = \"header:X-Tenant\"\n",
        auth.address()
    );
    Gateway::in_front_of(ledger).with(&settings).start()
}

/// Values of a header as an application reads it that takes `-` and `_` for the same.
fn seen(ledger: &Ledger, name: &str) -> Vec<String> {
    let last = ledger.all().pop().expect("a request came");
    let headers = last.headers.iter();
    headers
        .filter(|(found, _)| found.replace('_', "-") == name)
        .map(|(_, value)| value.clone())
        .collect()
}

#[test]
fn nobody_but_the_service_and_the_proxies_names_a_caller() {
    let (ledger, auth) = (Ledger::start(), Ledger::start());
    auth.behave(|_, client| reply(client, 200, &["X-User: ann"], ""));
    for underscores in ["", "underscores_in_headers = true\n"] {
        let settings = format!("trusted_proxies = [\"192.0.2.1\"]\n{underscores}");
        let gateway = with_tenants(&ledger, &auth, &settings);
        let targets =
            [("POST", "/other"), ("GET", "/users"), ("GET", "/tenants"), ("POST", "/%75sers")];
        for (method, target) in targets {
            for name in ["X-User", "X_User", "x_user", "X-Tenant", "X_Tenant"] {
                let answer = gateway.request(method, target).header(name, "eve").send();
                assert_eq!(answer.status, 201, "{method} {target} {name}");
                let name = name.to_lowercase().replace('_', "-");
                assert!(seen(&ledger, &name).is_empty(), "{method} {target} {name}");
            }
        }
        let key = format!("k{}", underscores.len());
        let vouched =
            gateway.post("/users").key(&key).header("X_User", "eve").header("X-User", "eve");
        assert_eq!(vouched.json("{}").send().status, 201);
        assert_eq!(seen(&ledger, "x-user"), ["ann"]);
    }
}

#[test]
fn a_trusted_proxy_names_callers_and_their_clients_do_not() {
    let (ledger, auth) = (Ledger::start(), Ledger::start());
    let settings = "trusted_proxies = [\"127.0.0.1\"]\nunderscores_in_headers = true\n";
    let gateway = with_tenants(&ledger, &auth, settings);
    let request =
        gateway.post("/tenants").key("k").header("X-Tenant", "ann").header("X_Tenant", "eve");
    let first = request.json("{}").send();
    assert_eq!(first.status, 201);
    assert_eq!(seen(&ledger, "x-tenant"), ["ann"]);
    gateway.post("/tenants").key("k").header("X-Tenant", "ann").json("{}").send().replays(&first);
    // What the other service says is not for proxies to say.
    assert_eq!(gateway.post("/other").header("X-User", "eve").send().status, 201);
    assert!(seen(&ledger, "x-user").is_empty());
}

#[test]
fn a_name_with_an_underscore_is_guarded_as_one_with_a_dash() {
    let ledger = Ledger::start();
    let settings = "trusted_proxies = [\"192.0.2.1\"]\nunderscores_in_headers = true\n\
                    [[route]]\nmatch = \"POST /tenants\"\ntenant = \"header:X_Tenant\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    for name in ["X_Tenant", "X-Tenant"] {
        assert_eq!(gateway.post("/other").header(name, "eve").send().status, 201);
        assert!(seen(&ledger, "x-tenant").is_empty(), "{name}");
    }
}

#[test]
fn connection_cannot_take_away_what_belongs_to_the_whole_request() {
    let (ledger, auth) = (Ledger::start(), Ledger::start());
    auth.behave(|_, client| reply(client, 200, &["X-User: ann"], ""));
    let gateway = with_tenants(&ledger, &auth, "trusted_proxies = [\"127.0.0.1\"]\n");
    let names = [
        "X-User",
        "x-tenant",
        "Host",
        "Authorization",
        "Cookie",
        "Forwarded",
        "X-Forwarded-For",
        "X-Real-IP",
        "Selfsame-Attempt",
        "Idempotency-Key",
        "Content-Length",
    ];
    for name in names {
        for line in [name.to_owned(), format!("close, {name}"), format!(",{name} ,")] {
            let request = gateway.post("/users").key("k").header("Connection", &line);
            let refused: Answer = request.json("{}").send();
            assert_eq!(
                (refused.status, refused.header("connection")),
                (400, Some("close")),
                "{line}"
            );
        }
    }
    let many = ["x"; 11].join(",");
    assert_eq!(gateway.post("/users").header("Connection", &many).send().status, 400);
    assert_eq!((ledger.all().len(), auth.all().len()), (0, 0));

    let taken =
        gateway.post("/users").key("k").header("Connection", "close, X-Hop").header("X-Hop", "1");
    assert_eq!(taken.json("{}").send().status, 201);
    assert_eq!((seen(&ledger, "x-hop"), seen(&ledger, "x-user")), (vec![], vec!["ann".to_owned()]));
}

#[test]
fn names_with_underscores_reach_the_upstream_only_where_that_is_allowed() {
    let ledger = Ledger::start();
    let send = |gateway: &Gateway| {
        let request = gateway.post("/charges").header("X_Own", "1").header("Idempotency_Key", "k");
        assert_eq!(request.header("X_Forwarded_For", "192.0.2.1").json("{}").send().status, 201);
        ["x-own", "idempotency-key"].map(|name| seen(&ledger, name))
    };
    let gateway = Gateway::in_front_of(&ledger).start();
    assert_eq!(send(&gateway), [vec![], Vec::<String>::new()]);
    gateway.expect_metric("selfsame_removed_headers_total", 3.0);
    let gateway = Gateway::in_front_of(&ledger).with("underscores_in_headers = true\n").start();
    assert_eq!(send(&gateway), [vec!["1".to_owned()], vec![]]);
    assert_eq!(seen(&ledger, "x-forwarded-for"), ["127.0.0.1"]);
}
