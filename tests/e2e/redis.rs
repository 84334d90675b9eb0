//! Rows 5, 28 and 30: several gateways over one Redis, and Redis away.

use std::thread;

use selfsame_test_redis::{Authority, Server};

use crate::harness::{Gateway, Ledger, Setup, binary, eventually};
use crate::postgres::race;

const PASSWORD: &str = "correct-horse";

fn gateway(ledger: &Ledger, url: &str) -> Setup {
    Gateway::in_front_of(ledger).store(url)
}

#[test]
fn rivals_on_three_gateways_run_once() {
    let server = Server::start();
    let password = format!(">{PASSWORD}");
    server.command(0, &["acl", "setuser", "keys", "on", &password, "~*", "&*", "+@all"]);
    let url = server.url_as(&format!("keys:{PASSWORD}@"), 0);
    let ledger = Ledger::start();
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
fn while_redis_is_away_nothing_runs_and_answers_wait_for_it() {
    // With `everysec`, a Redis whose disk is busy acknowledges what a crash takes away.
    let mut server = Server::start_with(&["appendfsync always"]);
    let (ledger, gate) = Ledger::gated(|_| "the one charge".to_owned());
    let gateway = gateway(&ledger, &server.url(0)).start();
    let running = gateway.post("/charges").key("running").json("{}");
    let sent = running.clone();
    let sent = thread::spawn(move || sent.send());
    eventually("it runs", || (ledger.effects("running") == 1).then_some(()));
    server.crash();
    let new = gateway.post("/charges").key("new").json("{}");
    assert_eq!(new.send().refused("store-unavailable")["retryable"], true);
    assert_eq!(gateway.admin("GET", "/readyz").send().status, 503);
    gate.open();
    let answer = sent.join().expect("sent");
    assert_eq!(answer.status, 201, "the client gets its real answer");
    assert_eq!(ledger.effects("new"), 0);
    server.start_again();
    let replay = eventually("it is recorded", || {
        let replay = running.send();
        (replay.status == 201).then_some(replay)
    });
    replay.replays(&answer);
    // A claim of which nothing was heard is given back first.
    eventually("a new key runs", || (new.send().status == 201).then_some(()));
    assert_eq!((ledger.effects("running"), ledger.effects("new")), (1, 1));
}

#[test]
fn a_gateway_that_ends_takes_itself_off_the_list() {
    let server = Server::start();
    let ledger = Ledger::start();
    let ending = gateway(&ledger, &server.url(0)).start();
    assert_eq!(ending.post("/charges").key("k").json("{}").send().status, 201);
    let (status, _) = ending.terminate();
    assert!(status.success(), "{status}");
    let members = server.command(0, &["hget", "selfsame:{0}:guard", "members"]);
    assert!(members.contains(":-"), "{members}");
}

#[test]
fn after_a_flush_nothing_that_ran_runs_again() {
    let server = Server::start();
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, &server.url(0)).start();
    let charge = gateway.post("/charges").key("k").json("{}");
    assert_eq!(charge.send().status, 201);
    server.command(0, &["flushall"]);
    for _ in 0..2 {
        charge.send().refused("store-unavailable");
    }
    gateway.expect_log("Redis has lost records");
    assert_eq!(ledger.effects("k"), 1);
    // An operator knows better.
    let reopen = ["store", "reopen", "--yes", "--store", &server.url(0)];
    assert!(binary().args(reopen).output().expect("it runs").status.success());
    assert_eq!(charge.send().status, 201);
    assert_eq!(ledger.effects("k"), 2);
}

#[test]
fn a_redis_that_loses_records_is_refused_unless_that_is_accepted() {
    let server = Server::start_with(&["appendonly no", "maxmemory-policy allkeys-lru"]);
    let ledger = Ledger::start();
    let setup = gateway(&ledger, &server.url(0));
    let config = setup.write_config();
    let refused = binary().arg("serve").arg("--config").arg(&config).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    for word in ["maxmemory-policy is allkeys-lru", "appendonly is no", "accept_loss = true"] {
        assert!(said.contains(word), "{said}");
    }
    let accept = || gateway(&ledger, &server.url(0)).store_with("accept_loss = true");
    let setup = accept();
    let config = setup.write_config();
    let refused = binary().arg("serve").arg("--config").arg(&config).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("needs secret_file"), "{said}");
    let secret = server.keep("secret", "0123456789abcdef0123456789abcdef");
    let accepted = accept().with(&format!("secret_file = {secret:?}\n")).start();
    accepted.expect_log("work can run twice");
    assert_eq!(accepted.post("/charges").key("k").json("{}").send().status, 201);
}

#[test]
fn the_connection_to_redis_is_encrypted_and_leads_to_the_right_one() {
    let authority = Authority::new("ours");
    let server = Server::start_encrypted(&authority.server("localhost"));
    let ledger = Ledger::start();
    let setup = gateway(&ledger, &server.url(0));
    let config = setup.write_config();
    let serve = || {
        let mut command = binary();
        command.arg("serve").arg("--config").arg(&config);
        command
    };
    let refused = serve().output().expect("it runs");
    assert!(!refused.status.success(), "nobody knows who answers");
    // The authorities of the system, which a variable may name.
    let mut command = serve();
    command.env("SSL_CERT_FILE", server.keep("authority.crt", &authority.pem()));
    let gateway = setup.start_as(command);
    assert_eq!(gateway.post("/charges").key("k").json("{}").send().status, 201);
}
