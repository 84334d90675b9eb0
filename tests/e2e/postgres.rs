//! Row 5: several gateways over one PostgreSQL.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use selfsame_test_postgres::{Authority, PASSWORD, Pooler, Server};

use crate::harness::{Answer, Gate, Gateway, Ledger, Setup, binary, eventually, is_long, reply};

const RIVALS: usize = 50;

/// How often rivals race.
fn rounds() -> usize {
    if is_long() { 20 } else { 1 }
}

/// A database of the test's own, and its address.
pub(crate) fn database(server: &Server) -> String {
    server.sql("postgres", &format!("create role keys login password '{PASSWORD}'"));
    server.sql("postgres", "create database keys owner keys");
    server.url("keys", "keys")
}

pub(crate) fn gateway(ledger: &Ledger, url: &str) -> Setup {
    Gateway::in_front_of(ledger).store(url)
}

/// Many ask each gateway for one key at the same moment: one runs, and all get its answer.
pub(crate) fn race(gateways: &[Gateway], ledger: &Ledger) {
    race_and_retry(gateways, ledger, |retry, ran| retry().replays(ran));
}

/// Races as [`race`] does, and has `expect` compare retries with the answer of the one that ran.
pub(crate) fn race_and_retry(
    gateways: &[Gateway],
    ledger: &Ledger,
    expect: impl Fn(&dyn Fn() -> Answer, &Answer),
) {
    for round in 0..rounds() {
        let key = format!("round-{round}");
        let start = Arc::new(Barrier::new(gateways.len() * RIVALS));
        let answers: Vec<Answer> = thread::scope(|scope| {
            let requests = gateways
                .iter()
                .map(|gateway| gateway.post("/charges").key(&key).json(r#"{"amount":10}"#));
            let requests: Vec<_> =
                requests.flat_map(|request| std::iter::repeat_n(request, RIVALS)).collect();
            let rivals: Vec<_> = requests
                .into_iter()
                .map(|request| {
                    let start = start.clone();
                    scope.spawn(move || {
                        let mut connection = request.open();
                        start.wait();
                        request.send_on(&mut connection).expect("an answer")
                    })
                })
                .collect();
            rivals.into_iter().map(|rival| rival.join().expect("answered")).collect()
        });
        let ran = Answer::of_the_one_that_ran(answers);
        assert_eq!(ledger.effects(&key), 1);
        for gateway in gateways {
            let retry = || gateway.post("/charges").key(&key).json(r#"{"amount":10}"#).send();
            expect(&retry, &ran);
        }
    }
}

#[test]
fn rivals_on_three_gateways_run_once() {
    let server = Server::start();
    let url = database(&server);
    let ledger = Ledger::start();
    // All three make the schema, or find it made.
    let gateways = thread::scope(|scope| {
        let starting: Vec<_> =
            (0..3).map(|_| scope.spawn(|| gateway(&ledger, &url).start())).collect();
        let started = starting.into_iter().map(|start| start.join().expect("started"));
        started.collect::<Vec<_>>()
    });
    race(&gateways, &ledger);
    for gateway in gateways {
        assert!(!gateway.whole_log().contains(PASSWORD), "no log tells a password");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how soon it wakes is what is tested")]
fn a_request_that_waits_wakes_when_another_gateway_is_done() {
    let server = Server::start();
    let url = database(&server);
    let ledger = Ledger::start();
    let settings = "[idempotency]\non_conflict = \"wait\"\nwait_max = \"20s\"\n";
    let first = gateway(&ledger, &url).with(settings).start();
    let second = gateway(&ledger, &url).with(settings).start();
    let send = |gateway: &Gateway, key: &str| {
        let request = gateway.post("/charges").key(key).json("{}");
        thread::spawn(move || (request.send(), Instant::now()))
    };
    // A busy machine may delay one of them. Without a wake-up all are late.
    let is_soon = ["k-1", "k-2", "k-3"].into_iter().any(|key| {
        let gate = Gate::shut();
        let at_gate = gate.clone();
        ledger.behave(move |_, client| {
            at_gate.pass();
            reply(client, 201, &[], "the one charge")
        });
        let runs = send(&first, key);
        eventually("it runs", || (ledger.effects(key) == 1).then_some(()));
        let waits = send(&second, key);
        // By itself it has looked after 3.1 s, and looks again after 6.3 s.
        thread::sleep(Duration::from_millis(3600));
        gate.open();
        let ((answer, at), (replay, later)) =
            (runs.join().expect("sent"), waits.join().expect("sent"));
        replay.replays(&answer);
        assert_eq!(ledger.effects(key), 1);
        later.saturating_duration_since(at) < Duration::from_millis(750)
    });
    assert!(is_soon, "no wake-up came");
}

#[test]
fn work_goes_on_where_another_gateway_died() {
    let server = Server::start();
    let url = database(&server);
    let ledger = Ledger::start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |effect, client| {
        if effect.header("selfsame-attempt") == Some("1") {
            at_gate.pass();
        }
        reply(client, 201, &[], "done")
    });
    let settings = "[idempotency]\nrecover = \"resume\"\nlease = \"4s\"\n";
    let first = gateway(&ledger, &url).with(settings).start();
    let second = gateway(&ledger, &url).with(settings).start();
    let _unanswered = first.post("/charges").key("k").json("{}").begin();
    eventually("it runs", || (ledger.effects("k") == 1).then_some(()));
    let retry = second.post("/charges").key("k").json("{}");
    retry.send().refused("in-progress");
    drop(first.kill());
    retry.send().refused("in-progress");
    let answer = eventually("the lease is over", || {
        let answer = retry.send();
        (answer.status != 409).then_some(answer)
    });
    gate.open();
    assert_eq!((answer.status, ledger.effects("k")), (201, 2));
    retry.send().replays(&answer);
}

#[test]
fn a_gateway_says_what_is_wrong_with_its_database() {
    let server = Server::start();
    let url = database(&server);
    let ledger = Ledger::start();
    let wrong = url.replace(PASSWORD, "battery-staple");
    let setup = gateway(&ledger, &wrong);
    let output = binary().arg("serve").arg("--config").arg(setup.write_config()).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("password authentication"), "{said}");
    assert!(!said.contains("battery-staple"), "{said}");
}

#[test]
fn a_database_that_could_lose_answers_is_warned_of() {
    let settings = ["shared_buffers=64MB", "fsync=off", "full_page_writes=off"];
    let server = Server::start_in(&std::env::temp_dir(), &settings);
    let url = database(&server);
    server.sql("postgres", "alter role keys set synchronous_commit = off");
    let gateway = gateway(&Ledger::start(), &url).start();
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        let warning = format!("{setting} is off in the database");
        gateway.expect_log(&warning);
    }
}

#[test]
fn a_role_that_is_named_like_the_schema_is_warned_of() {
    let server = Server::start();
    let url = database(&server);
    let warning = "the database role has the name of the schema";
    server.sql("postgres", "alter role keys rename to selfsame");
    server.sql("postgres", &format!("alter role selfsame password '{PASSWORD}'"));
    let same_name = url.replace("//keys:", "//selfsame:");
    gateway(&Ledger::start(), &same_name).start().expect_log(warning);
    server.sql("postgres", "alter role selfsame rename to keys");
    server.sql("postgres", &format!("alter role keys password '{PASSWORD}'"));
    let log = gateway(&Ledger::start(), &url).start().whole_log();
    assert!(!log.contains(warning), "{log}");
}

#[test]
fn the_connection_to_the_database_is_encrypted_and_leads_to_the_right_one() {
    let server = Server::start();
    let authority = Authority::new("ours");
    server.encrypt(&authority.server("localhost"), &authority, "nobody");
    let url = database(&server).replace("127.0.0.1", "localhost");
    let ledger = Ledger::start();
    // The authorities of the system, which a variable may name.
    let setup = gateway(&ledger, &format!("{url}?sslmode=verify-full"));
    let mut command = binary();
    let file = server.keep("authority.crt", &authority.pem());
    command.arg("serve").arg("--config").arg(setup.write_config()).env("SSL_CERT_FILE", file);
    let gateway = setup.start_as(command);
    assert_eq!(gateway.post("/charges").key("k").json("{}").send().status, 201);
    let encrypted = "select distinct ssl from pg_stat_ssl join pg_stat_activity using (pid) \
                     where application_name = 'selfsame'";
    assert_eq!(server.sql("postgres", encrypted), "t");
    let log = gateway.whole_log();
    assert!(!log.contains("the connection to the database"), "{log}");
}

#[test]
fn a_connection_that_others_could_read_is_warned_of() {
    let server = Server::start();
    // It leads here, and does not look like it.
    let url = database(&server).replace("127.0.0.1", "0.0.0.0");
    let ledger = Ledger::start();
    let plain = gateway(&ledger, &url).start();
    plain.expect_log("is not encrypted");
    // The way past a pooler leads there too, also where nothing but wake-ups takes it.
    let pooler = Pooler::start(&server, &["keys"], 2);
    let past = format!("direct_url = \"{url}\"\nauto_migrate = false\n");
    let past = gateway(&ledger, &pooler.url("keys", "keys")).store_with(&past).start();
    past.expect_log("is not encrypted");
    let authority = Authority::new("ours");
    server.encrypt(&authority.server("localhost"), &authority, "nobody");
    let unchecked = gateway(&ledger, &format!("{url}?sslmode=require")).start();
    unchecked.expect_log("nobody checked who answers");
}

#[test]
fn rivals_behind_a_pooler_run_once() {
    let server = Server::start();
    let direct = database(&server);
    let pooler = Pooler::start(&server, &["keys"], 2);
    let ledger = Ledger::start();
    let past = format!("direct_url = \"{direct}\"");
    let wait = "[idempotency]\non_conflict = \"wait\"\nwait_max = \"20s\"\n";
    let start = || {
        let setup = gateway(&ledger, &pooler.url("keys", "keys")).store_with(&past).with(wait);
        setup.start()
    };
    let gateways = [start(), start()];
    for round in 0..rounds() {
        let key = format!("round-{round}");
        let answers: Vec<Answer> = thread::scope(|scope| {
            let rivals: Vec<_> = (0..RIVALS)
                .map(|rival| {
                    let gateway = &gateways[rival % 2];
                    let request = gateway.post("/charges").key(&key).json("{}");
                    scope.spawn(move || request.send())
                })
                .collect();
            rivals.into_iter().map(|rival| rival.join().expect("answered")).collect()
        });
        assert!(answers.iter().all(|answer| answer.status == 201), "{key}");
        assert_eq!(ledger.effects(&key), 1);
    }
}

#[test]
fn a_schema_is_made_by_a_command_for_a_role_that_may_not() {
    let server = Server::start();
    let owner = database(&server);
    let ledger = Ledger::start();
    let setup = gateway(&ledger, &owner).store_with("auto_migrate = false");
    let config = setup.write_config();
    let refused = binary().arg("serve").arg("--config").arg(&config).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("selfsame store migrate"), "{said}");

    let migrate = |arguments: &[&str]| {
        let output = binary().args(["store", "migrate"]).args(arguments).output();
        let output = output.expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let config = config.display().to_string();
    let (is_done, said) = migrate(&["--config", &config]);
    assert!(is_done && said.starts_with("the schema was made: version "), "{said}");
    let (is_done, said) = migrate(&["--store", &owner]);
    assert!(is_done && said.starts_with("nothing to do: the schema has version "), "{said}");
    assert!(!migrate(&["--store", "file:./nowhere"]).0);
    let gateway = setup.start();
    assert_eq!(gateway.post("/charges").key("k").json("{}").send().status, 201);
}
