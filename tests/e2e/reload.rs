//! Another configuration, put in place while requests come and go.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::harness::{Answer, Gateway, Ledger, binary, eventually};

const PAGE: &str = "/.well-known/idempotency";
const REQUIRED: &str = "[idempotency]\nkey = \"required\"\n";
const TAKEN: &str = r#"selfsame_reloads_total{result="taken"}"#;
const REFUSED: &str = r#"selfsame_reloads_total{result="refused"}"#;

fn keyless(gateway: &Gateway) -> Answer {
    gateway.post("/charges").json("{}").send()
}

fn charge(gateway: &Gateway, key: &str) -> Answer {
    gateway.post("/charges").key(key).json("{}").send()
}

#[test]
fn at_sighup_the_file_counts_as_it_is_now() {
    let ledger = Ledger::start();
    let mut gateway = Gateway::in_front_of(&ledger).start();
    assert_eq!(keyless(&gateway).status, 201);
    let first = charge(&gateway, "order-1");

    gateway.rewrite(REQUIRED);
    gateway.signal("HUP");
    gateway.expect_metric(TAKEN, 1.0);
    keyless(&gateway).refused("missing-key");
    charge(&gateway, "order-1").replays(&first);
    for page in [gateway.request("GET", PAGE), gateway.admin("GET", PAGE)] {
        assert!(page.send().text().contains("needs a key"), "the page tells the rules of now");
    }
    assert_eq!(ledger.effects("order-1"), 1);
}

#[test]
fn a_file_with_mistakes_changes_nothing_and_says_why() {
    let ledger = Ledger::start();
    let mut gateway = Gateway::in_front_of(&ledger).with(REQUIRED).start();
    gateway.rewrite("[idempotency]\nkey = \"off\"\nretension = \"1h\"\nlease = 3\n");
    let told = gateway.reload();
    assert_eq!(told.status, 422);
    for mistake in [
        "the configuration stays as it was",
        "did you mean \"retention\"?",
        "idempotency.lease: expected a duration",
        "2 mistakes",
    ] {
        assert!(told.text().contains(mistake), "{}", told.text());
    }
    keyless(&gateway).refused("missing-key");
    gateway.expect_metric(REFUSED, 1.0);
    gateway.expect_metric(TAKEN, 0.0);
    gateway.expect_log("retension");

    gateway.rewrite("");
    assert_eq!(gateway.reload().status, 200);
    assert_eq!(keyless(&gateway).status, 201);
}

#[test]
fn what_cannot_change_while_it_serves_is_named() {
    let ledger = Ledger::start();
    let mut gateway = Gateway::in_front_of(&ledger).start();
    charge(&gateway, "order-1");
    for (settings, reason) in [
        (
            "[checkpoints]\nlisten = \"127.0.0.1:0\"\n",
            "[checkpoints] cannot change while requests are served",
        ),
        ("secret_file = \"secret\"\n", "secret_file cannot change while requests are served"),
        ("[idempotency]\nscope = \"endpoint\"\n", "keys that the store knows would run again"),
        ("[idempotency]\ntenant = \"none\"\n", "keys that the store knows would run again"),
    ] {
        gateway.rewrite(settings);
        let told = gateway.reload();
        assert_eq!(told.status, 422, "{settings}");
        assert!(told.text().contains(reason), "{}", told.text());
    }
    assert_eq!(charge(&gateway, "order-1").header("idempotent-replayed"), Some("true"));
}

#[test]
fn only_who_shows_the_token_may_have_it_read_again() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    assert_eq!(gateway.admin("POST", "/api/v1/reload").send().status, 401);
    gateway.expect_metric(TAKEN, 0.0);
}

#[test]
fn without_a_file_there_is_nothing_to_read_again_and_sighup_ends_nothing() {
    let ledger = Ledger::start();
    let setup = Gateway::in_front_of(&ledger);
    let mut command = binary();
    let upstream = format!("http://{}", ledger.address());
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.args(["--upstream", &upstream, "--store", "file:data"]);
    let gateway = setup.start_as(command);
    gateway.signal("HUP");
    gateway.expect_log("there is no file");
    assert_eq!(charge(&gateway, "order-1").status, 201);
}

#[test]
fn what_was_begun_ends_as_it_began_also_where_its_upstream_is_no_longer_named() {
    let (old, gate) = Ledger::gated(|effect| format!("old {}", effect.number));
    let new = Ledger::start();
    let mut gateway = Gateway::in_front_of(&old).start();
    let mut begun =
        std::io::BufReader::new(gateway.post("/charges").key("order-1").json("{}").begin());
    old.wait_for("order-1", 1);

    gateway.rewrite(&route_to(&new));
    assert_eq!(gateway.reload().status, 200);
    assert_eq!(charge(&gateway, "order-2").text(), r#"{"charge":"ch_1"}"#);
    gate.open();
    let answer = Answer::read(&mut begun).expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (201, "old 1"));
    charge(&gateway, "order-1").replays(&answer);
    assert_eq!((old.effects("order-1"), new.effects("order-1")), (1, 0));
}

fn route_to(ledger: &Ledger) -> String {
    format!("[[route]]\nmatch = \"/charges\"\nupstream = \"http://{}\"\n", ledger.address())
}

#[test]
fn a_hundred_reloads_under_load_fail_no_request() {
    const CONNECTIONS: usize = 64;
    const RELOADS: usize = 100;
    let (ledger, other) = (Ledger::start(), Ledger::start());
    // All clients have one address.
    let unlimited = "[limits]\nmax_new_keys_per_address = \"off\"\n";
    let mut gateway = Gateway::in_front_of(&ledger).with(unlimited).start();
    let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let address = gateway.address;
    std::thread::scope(|threads| {
        for client in 0..CONNECTIONS {
            let (is_over, served) = (&is_over, &served);
            threads.spawn(move || {
                let request = |key: &str| {
                    crate::harness::Request::new(address, "POST", "/charges").key(key).json("{}")
                };
                let mut connection = request("").open();
                for number in 0.. {
                    let key = format!("{client}-{number}");
                    let first = request(&key).send_on(&mut connection).expect("an answer");
                    assert_eq!(first.status, 201, "{key}: {first:?}");
                    request(&key).send_on(&mut connection).expect("an answer").replays(&first);
                    served.fetch_add(1, Ordering::SeqCst);
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                }
            });
        }
        for reload in 0..RELOADS {
            let to_other = if reload % 2 == 0 { route_to(&other) } else { String::new() };
            gateway.rewrite(&format!("{unlimited}{to_other}"));
            if reload % 3 == 0 {
                gateway.signal("HUP");
            } else {
                assert_eq!(gateway.reload().status, 200);
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(served.into_inner() >= CONNECTIONS);
    eventually("reloads are counted", || (gateway.metric(TAKEN) > 66.0).then_some(()));
    gateway.expect_metric(REFUSED, 0.0);
    for client in 0..CONNECTIONS {
        let key = format!("{client}-0");
        assert_eq!(ledger.effects(&key) + other.effects(&key), 1, "{key}");
    }
}
