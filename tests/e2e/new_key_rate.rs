//! One address begins so many new keys in a time and no more, under whatever credentials. Its known
//! keys are answered, and other addresses are served.

use std::io::BufReader;
use std::net::TcpStream;

use crate::address_limits::attack;
use crate::harness::{Answer, Gate, Gateway, Ledger, Request, Then, eventually, reply};

/// Ten keys at once, then one each second.
const ONE_PER_SECOND: &str = "[limits]\nmax_new_keys_per_address = 1\n";
const SHED: &str = r#"selfsame_shed_requests_total{reason="max_new_keys_per_address"}"#;
const REFUSED: &str = "too-many-keys";

/// A new key of a caller that nobody has seen before.
fn made_up(gateway: &Gateway, key: &str) -> Request {
    let bearer = format!("Bearer of-{key}");
    gateway.post("/charges").key(key).header("Authorization", &bearer).json("{}")
}

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json("{}")
}

/// Sends requests with new keys until one is refused, and returns how many were not, with the key
/// of the one that was.
fn exhaust(prefix: &str, mut send: impl FnMut(&str) -> Answer) -> (usize, String) {
    for number in 0..100 {
        let key = format!("{prefix}-{number}");
        let answer = send(&key);
        if answer.status == 429 {
            assert_refused(&answer);
            return (number, key);
        }
        assert_eq!(answer.status, 201, "{key}");
    }
    panic!("new keys are not limited");
}

fn assert_refused(answer: &Answer) {
    answer.refused(REFUSED);
    assert!(answer.header("retry-after").is_some());
    for part in ["max_new_keys_per_address", "nothing was sent"] {
        assert!(answer.text().contains(part), "{}", answer.text());
    }
}

#[test]
fn new_keys_beyond_the_rate_are_refused_whatever_credentials_they_come_with() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ONE_PER_SECOND).start();
    // Each on a connection of its own, which is closed: the address is remembered.
    let (begun, key) = exhaust("k", |key| made_up(&gateway, key).send());
    assert!(begun >= 10, "ten may come at once: {begun}");
    assert_eq!((ledger.effects(&key), ledger.all().len()), (0, begun));
    assert_eq!(gateway.metric(SHED), 1.0);
    let outcome = r#"selfsame_requests_total{route="default",outcome="too_many_keys"}"#;
    assert_eq!(gateway.metric(outcome), 1.0);

    let served = eventually("new keys are taken again", || {
        let answer = made_up(&gateway, &key).send();
        (answer.status == 201).then_some(answer)
    });
    made_up(&gateway, &key).send().replays(&served);
    assert_eq!(ledger.effects(&key), 1);

    let log = gateway.whole_log();
    let is_warning = |line: &&str| line.contains("began too many new keys");
    let warnings: Vec<&str> = log.lines().filter(is_warning).collect();
    // Once in ten seconds.
    assert!(!warnings.is_empty() && warnings.len() < 7, "{warnings:?}");
    for named in [
        r#""address":"127.0.0.1""#,
        r#""setting":"max_new_keys_per_address""#,
        "name it in trusted_proxies",
    ] {
        assert!(warnings[0].contains(named), "{warnings:?}");
    }
}

/// An upstream that answers at `/slow` once the gate is open, fails the first time at `/failing`,
/// and loses its answers at `/lost`.
fn upstream() -> (Ledger, Gate) {
    let (ledger, gate) = (Ledger::start(), Gate::shut());
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        let is_first = effect.header("selfsame-attempt") == Some("1");
        match effect.target.as_str() {
            "/slow" => at_gate.pass(),
            "/failing" if is_first => return reply(client, 503, &[], "not now"),
            "/lost" => return Then::Close,
            _ => {}
        }
        reply(client, 201, &[], &effect.number.to_string())
    });
    (ledger, gate)
}

#[test]
fn known_keys_of_the_address_are_never_refused() {
    let (ledger, gate) = upstream();
    let settings = format!("{ONE_PER_SECOND}[idempotency]\nrecover = \"hold\"\n");
    let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
    let of = |target: &str| gateway.post(target).key(&target[1..]).json("{}");
    let mut rounds = 0..;
    // Right before each request: a second later there is room for a new key.
    let mut beyond = |target: &str| {
        let round = rounds.next().expect("no end");
        exhaust(&format!("round-{round}"), |key| made_up(&gateway, key).send());
        of(target).send()
    };
    let done = of("/done").send();
    assert_eq!(of("/failing").send().status, 503);
    of("/lost").send().refused("upstream-failed");
    let mut slow: BufReader<TcpStream> = BufReader::new(of("/slow").begin());
    ledger.wait_for("slow", 1);

    for _ in 0..3 {
        beyond("/done").replays(&done);
        beyond("/slow").refused("in-progress");
        beyond("/lost").refused("outcome-unknown");
    }
    assert_eq!(beyond("/failing").status, 201);
    gate.open();
    let late = Answer::read(&mut slow).expect("an answer");
    assert_eq!(late.status, 201);
    beyond("/slow").replays(&late);
    let ran = ["done", "slow", "lost", "failing"].map(|key| ledger.of(key).len());
    assert_eq!(ran, [1, 1, 1, 2]);
}

#[test]
fn a_replay_from_the_store_takes_nothing_from_new_keys() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ONE_PER_SECOND).start();
    let known: Vec<_> = (0..8).map(|number| format!("known-{number}")).collect();
    let firsts: Vec<_> = known.iter().map(|key| charge(&gateway, key).send()).collect();
    let setup = gateway.terminate().1;
    // Nothing is at hand in another process.
    let gateway = setup.start();
    for (key, first) in known.iter().zip(&firsts) {
        charge(&gateway, key).send().replays(first);
    }
    let (begun, _) = exhaust("k", |key| made_up(&gateway, key).send());
    assert!(begun >= 10, "{begun}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_addresses_are_served() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ONE_PER_SECOND).start();
    let mut connection = attack(gateway.address).await;
    for round in 0..3 {
        let mut send = |key: &str| made_up(&gateway, key).send_on(&mut connection);
        exhaust(&format!("round-{round}"), |key| send(key).expect("an answer"));
        let key = format!("honest-{round}");
        assert_eq!(charge(&gateway, &key).send().status, 201);
        assert_eq!(ledger.effects(&key), 1);
    }
}

#[test]
fn clients_behind_a_trusted_proxy_are_told_apart() {
    let ledger = Ledger::start();
    let settings = format!("trusted_proxies = [\"127.0.0.1\"]\n{ONE_PER_SECOND}");
    let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
    let of = |client: &str, key: &str| {
        let key = format!("{key}-{}", ledger.all().len());
        made_up(&gateway, &key).header("X-Forwarded-For", client).send()
    };
    for (client, same, other) in [
        ("192.0.2.1", "198.51.100.7, 192.0.2.1", "192.0.2.2"),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::1", "2001:db8:1:3::1"),
    ] {
        let (begun, _) = exhaust("k", |key| of(client, key));
        assert!(begun >= 10, "{begun}");
        let (begun, _) = exhaust("again", |key| of(same, key));
        assert!(begun < 10, "it is the same client: {begun}");
        for number in 0..10 {
            assert_eq!(of(other, &format!("other-{number}")).status, 201);
        }
    }
}

#[test]
fn an_address_cannot_be_made_up() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ONE_PER_SECOND).start();
    exhaust("k", |key| {
        let client = format!("192.0.2.{}", ledger.all().len());
        made_up(&gateway, key).header("X-Forwarded-For", &client).send()
    });
}

#[test]
fn the_limit_changes_while_requests_are_served() {
    let ledger = Ledger::start();
    let mut gateway = Gateway::in_front_of(&ledger).with(ONE_PER_SECOND).start();
    exhaust("first", |key| made_up(&gateway, key).send());
    gateway.rewrite("[limits]\nmax_new_keys_per_address = \"off\"\n");
    assert_eq!(gateway.reload().status, 200);
    for number in 0..50 {
        assert_eq!(made_up(&gateway, &format!("free-{number}")).send().status, 201);
    }
    gateway.rewrite(ONE_PER_SECOND);
    gateway.signal("HUP");
    gateway.expect_metric(r#"selfsame_reloads_total{result="taken"}"#, 2.0);
    exhaust("last", |key| made_up(&gateway, key).send());
}

#[test]
fn a_route_that_observes_refuses_nothing() {
    let ledger = Ledger::start();
    let settings =
        format!("{ONE_PER_SECOND}[[route]]\nmatch = \"/observed\"\nmode = \"observe\"\n");
    let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
    let observed = r#"selfsame_observed_total{route="/observed",outcome="too_many_keys"}"#;
    let mut number = 0;
    eventually("more were observed than may be new", || {
        number += 1;
        let request = gateway.post("/observed").key(&format!("observed-{number}")).json("{}");
        assert_eq!(request.send().status, 201);
        (gateway.metric(observed) > 0.0).then_some(())
    });
    assert_eq!((ledger.all().len(), gateway.metric(SHED)), (number, 0.0));
    // They took nothing from routes that enforce.
    let (begun, _) = exhaust("k", |key| made_up(&gateway, key).send());
    assert!(begun >= 10, "{begun}");
}
