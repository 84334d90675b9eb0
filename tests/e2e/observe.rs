//! `mode = "observe"`: everything reaches the upstream, and what would have happened is counted.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};

use crate::harness::{
    Answer, Gate, Gateway, Ledger, PATIENCE, SmallDisk, Then, eventually, read_up_to, reply,
};
use crate::unreachable::nobody;

const OBSERVE: &str = "[idempotency]\nmode = \"observe\"\n";

/// How many requests would have been served so.
fn observed(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!(r#"selfsame_observed_total{{route="default",outcome="{outcome}"}}"#))
}

/// Waits until that many are counted: they are, beside their requests.
#[track_caller]
fn await_observed(gateway: &Gateway, outcome: &str, number: usize) {
    let counted = || (observed(gateway, outcome) >= number as f64).then_some(());
    eventually(&format!("{number} counted as {outcome}"), counted);
    assert_eq!(observed(gateway, outcome), number as f64, "{outcome}");
}

/// Waits until nothing that is observed is still under way.
fn settle(gateway: &Gateway, key: &str) {
    eventually("the answer is recorded", || {
        let shown = gateway.keys(&["show", key, "--json"]);
        String::from_utf8_lossy(&shown.stdout).contains("\"completed\"").then_some(())
    });
}

#[test]
fn a_double_charge_is_seen_and_counted_and_nothing_is_refused() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(OBSERVE).start();
    let charge = |body: &str| gateway.post("/charges").key("order-1").json(body);

    let first = charge(r#"{"amount":10}"#).send();
    settle(&gateway, "order-1");
    let retry = charge(r#"{ "amount" : 10 }"#).send();
    assert_eq!((first.status, retry.status), (201, 201));
    assert_ne!(first.body, retry.body, "there are two charges");
    let reused = charge(r#"{"amount":11}"#).send();
    assert_eq!(reused.status, 201);

    assert_eq!(ledger.effects("order-1"), 3);
    assert!(ledger.all().iter().all(|effect| effect.header("selfsame-attempt").is_none()));
    for answer in [&first, &retry, &reused] {
        let names: Vec<_> = answer.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["content-length", "via", "date"],
            "no other header than Via comes from us"
        );
    }
    for outcome in ["executed", "replayed", "key_reused"] {
        await_observed(&gateway, outcome, 1);
    }
    let differing = r#"selfsame_observed_differing_answers_total{route="default"}"#;
    gateway.expect_metric(differing, 1.0);
    let passed = r#"selfsame_requests_total{route="default",outcome="passed"}"#;
    gateway.expect_metric(passed, 3.0);
    let log = gateway.whole_log();
    assert_eq!(log.matches("requests are observed, and not protected").count(), 1, "{log}");
}

#[test]
fn what_would_be_refused_passes_and_is_counted() {
    let ledger = Ledger::start();
    let settings = format!("{OBSERVE}key = \"required\"\nmax_request_body = \"1KiB\"\n");
    let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
    let charges = || gateway.post("/charges").json("{}");
    let large = "x".repeat(2000);

    let requests = [
        charges(),
        charges().key(""),
        charges().key("a").key("b"),
        charges().key("c").header("Cookie", "sid=1"),
        charges().key("d").header("X-Api-Key", "1"),
        gateway.post("/charges").key("large").body(large.as_bytes()),
    ];
    for request in requests {
        assert_eq!(request.send().status, 201);
    }
    assert_eq!(ledger.all().len(), 6);
    assert_eq!(ledger.all()[5].body.len(), large.len());
    await_observed(&gateway, "invalid_key", 2);
    await_observed(&gateway, "missing_tenant", 2);
    for outcome in ["missing_key", "bad_body"] {
        await_observed(&gateway, outcome, 1);
    }
}

#[test]
fn a_request_beside_another_with_its_key_reaches_the_upstream_too() {
    let (ledger, gate) = (Ledger::start(), Gate::shut());
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        if effect.number == 1 {
            at_gate.pass();
        }
        reply(client, 201, &[], &format!("charge {}", effect.number))
    });
    let gateway = Gateway::in_front_of(&ledger).with(OBSERVE).start();
    let request = gateway.post("/charges").key("twice").json("{}");
    let first = request.begin();
    let claimed = r#"selfsame_store_seconds_count{store="file",op="claim"}"#;
    gateway.expect_metric(claimed, 1.0);

    assert_eq!(request.send().text(), "charge 2");
    await_observed(&gateway, "in_progress", 1);
    gate.open();
    let first = Answer::read(&mut BufReader::new(first)).expect("an answer");
    assert_eq!(first.text(), "charge 1");
    await_observed(&gateway, "executed", 1);
}

#[test]
fn lost_answers_and_an_upstream_that_is_away_are_told_as_without_a_key() {
    let ledger = Ledger::start();
    ledger.behave(|_, _| Then::Close);
    let gateway = Gateway::in_front_of(&ledger).with(OBSERVE).start();
    let request = gateway.post("/charges").key("lost").json("{}");
    request.send().refused("upstream-failed");
    settle(&gateway, "lost");
    request.send().refused("upstream-failed");
    assert_eq!(ledger.effects("lost"), 2);
    await_observed(&gateway, "executed", 1);
    await_observed(&gateway, "held", 1);
    let shown = gateway.keys(&["show"]);
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "no key is held\n");

    let gateway = Gateway::before(nobody()).with(OBSERVE).start();
    gateway.post("/charges").key("away").send().refused("upstream-unreachable");
    await_observed(&gateway, "unreachable", 1);
    // A body that nobody read says nothing about the request.
    gateway.post("/charges").key("away").json("{}").send().refused("upstream-unreachable");
    let unread = r#"selfsame_unobserved_total{route="default",reason="unread"}"#;
    gateway.expect_metric(unread, 1.0);
}

#[test]
fn with_a_key_both_bodies_stream_through() {
    let upstream = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let gateway = Gateway::before(upstream.local_addr().expect("bound")).with(OBSERVE).start();
    let request = gateway.post("/upload").key("stream").header("Transfer-Encoding", "chunked");

    let mut client: BufReader<TcpStream> = BufReader::new(request.body(b"5\r\nfirst\r\n").begin());
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
    await_observed(&gateway, "executed", 1);
}

#[test]
fn on_a_full_disk_everything_passes() {
    let (ledger, disk) = (Ledger::start(), SmallDisk::mount());
    let store = format!("file:{}", disk.folder().join("data").display());
    let setup = Gateway::in_front_of(&ledger).with(OBSERVE).store(&store);
    let config = setup.write_config();
    let gateway = setup.start_as(disk.serve(&config));

    disk.fill();
    // Enough that what the store has written beforehand is used up.
    const REQUESTS: u32 = 500;
    for number in 1..=REQUESTS {
        let request = gateway.post("/charges").key(&format!("full-{number}")).json("{}");
        assert_eq!(request.send().status, 201);
    }
    assert_eq!(ledger.all().len(), REQUESTS as usize);
    eventually("they are counted", || {
        let counted = observed(&gateway, "store_error") + observed(&gateway, "executed");
        (counted == f64::from(REQUESTS)).then_some(())
    });
    assert!(observed(&gateway, "store_error") > 0.0);

    disk.make_room();
    let done = observed(&gateway, "executed");
    let mut numbers = 0..;
    eventually("they are observed again", || {
        let key = format!("room-{}", numbers.next().expect("endless"));
        assert_eq!(gateway.post("/charges").key(&key).json("{}").send().status, 201);
        (observed(&gateway, "executed") > done).then_some(())
    });
}

#[test]
fn enforcement_begins_with_nothing_of_what_was_observed() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(OBSERVE).start();
    let charge = |gateway: &Gateway, amount: u32| {
        gateway.post("/charges").key("order-1").json(&format!(r#"{{"amount":{amount}}}"#)).send()
    };
    assert_eq!(charge(&gateway, 10).status, 201);
    settle(&gateway, "order-1");

    let (status, setup) = gateway.terminate();
    assert!(status.success());
    let enforce = "[[route]]\nmatch = \"POST /charges\"\nmode = \"enforce\"\n";
    let gateway = setup.with(enforce).start();
    let first = charge(&gateway, 11);
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None));
    charge(&gateway, 11).replays(&first);
    charge(&gateway, 10).refused("key-reused");
    assert_eq!(ledger.effects("order-1"), 2);

    let shown = gateway.keys(&["show", "order-1"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(shown.matches("default (observed)\n").count(), 1, "{shown}");
    assert_eq!(shown.matches("Nothing: it was only observed").count(), 1, "{shown}");
    assert_eq!(shown.matches("route    /charges\n").count(), 1, "{shown}");
}
