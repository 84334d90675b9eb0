//! Row 28: Redis loses records, and gateways notice that have written none of them.

use std::thread::sleep;
use std::time::Duration;

use selfsame_test_postgres::Server as Database;
use selfsame_test_redis::{Cluster, Server, Watched};

use crate::harness::{Answer, Gate, Gateway, Ledger, binary, eventually, reply};
use crate::postgres::database;

const KEYS: usize = 20;
/// By when a gateway that has nothing to do has looked at what others have written.
const LOOKED: Duration = Duration::from_millis(1500);

fn gateway(ledger: &Ledger, url: &str) -> Gateway {
    Gateway::in_front_of(ledger).store(url).store_with("near_cache = \"off\"\n").start()
}

fn charge(gateway: &Gateway, key: &str) -> Answer {
    gateway.post("/charges").key(key).json("{}").send()
}

/// Nothing that is written from now on reaches a replica, not even what is under way.
fn stall(replica: &Server, masters: &[&Server]) {
    replica.signal("STOP");
    for master in masters {
        master.command(0, &["client", "kill", "type", "replica"]);
    }
}

/// Keys that are charged at `gateway`, one after the other.
fn charged(gateway: &Gateway, name: &str, count: usize) -> Vec<String> {
    let keys: Vec<_> = (0..count).map(|at| format!("{name}-{at}")).collect();
    for key in &keys {
        assert_eq!(charge(gateway, key).status, 201, "{key}");
    }
    keys
}

fn expect_once_each(ledger: &Ledger, keys: &[String]) {
    let twice: Vec<_> = keys.iter().filter(|key| ledger.effects(key) != 1).collect();
    assert!(twice.is_empty(), "{} of {} ran again", twice.len(), keys.len());
}

/// Asks for all keys again until it is known that some were lost; none of them runs.
fn expect_noticed(gateways: &[&Gateway], ledger: &Ledger, keys: &[String]) {
    eventually("the loss is noticed", || {
        for (at, key) in keys.iter().enumerate() {
            let answer = charge(gateways[at % gateways.len()], key);
            assert!([409, 503].contains(&answer.status), "{key}: {}", answer.status);
        }
        let is_noticed = |gateway: &&Gateway| {
            let ready = gateway.admin("GET", "/readyz").send();
            ready.status == 503 && ready.text().contains("lost records")
        };
        gateways.iter().all(is_noticed).then_some(())
    });
    expect_once_each(ledger, keys);
}

fn reopen(url: &str, args: &[&str]) -> String {
    let output = binary().args(["store", "reopen", "--store", url]).args(args).output();
    let output = output.expect("the command runs");
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn what_a_lagging_replica_lost_is_not_run_by_a_gateway_that_had_nothing_to_do() {
    let mut watched = Watched::start();
    let ledger = Ledger::start();
    let url = watched.url_as("");
    let (busy, idle) = (gateway(&ledger, &url), gateway(&ledger, &url));
    charged(&busy, "before", 1);
    sleep(LOOKED);
    stall(watched.server(1), &[watched.server(0)]);
    let lost = charged(&busy, "lost", 60);
    watched.server_mut(0).crash();
    watched.server(1).signal("CONT");
    // From the first moment on: who looks may come later.
    eventually("another master is there", || {
        for key in &lost {
            let answer = charge(&idle, key);
            let is_refused = [409, 503].contains(&answer.status);
            let effects = ledger.effects(key);
            assert!(is_refused, "{key}: {effects} runs\n{}\n\n{}", idle.log(), busy.log());
            if watched.is_master(1) {
                return Some(());
            }
        }
        None
    });
    expect_noticed(&[&idle, &busy], &ledger, &lost);
}

#[test]
fn a_fail_over_that_loses_nothing_lets_both_gateways_go_on_by_themselves() {
    let mut watched = Watched::start();
    let ledger = Ledger::start();
    let url = watched.url_as("");
    let gateways = [gateway(&ledger, &url), gateway(&ledger, &url)];
    let kept = charged(&gateways[0], "kept", 5);
    sleep(Duration::from_millis(500));
    watched.server_mut(0).crash();
    for (at, gateway) in gateways.iter().enumerate() {
        let key = format!("new-{at}");
        eventually("a new key is taken", || (charge(gateway, &key).status == 201).then_some(()));
        assert_eq!(gateway.admin("GET", "/readyz").send().status, 200);
        for key in &kept {
            assert_eq!(charge(gateway, key).status, 201);
        }
    }
    expect_once_each(&ledger, &kept);
}

#[test]
fn what_a_replica_of_a_cluster_lost_is_not_run_by_the_other_gateway() {
    let mut cluster = Cluster::start();
    let ledger = Ledger::start();
    let url = cluster.url();
    let (first, second) = (gateway(&ledger, &url), gateway(&ledger, &url));
    charged(&first, "before", 3);
    sleep(LOOKED);
    let replicas: Vec<_> = (0..6).filter(|at| !cluster.masters().contains(at)).collect();
    let masters: Vec<_> = cluster.masters().iter().map(|at| cluster.server(*at)).collect();
    replicas.iter().for_each(|replica| stall(cluster.server(*replica), &masters));
    let (one, other) = (charged(&first, "a", 30), charged(&second, "b", 30));
    cluster.server_mut(0).crash();
    replicas.iter().for_each(|replica| cluster.server(*replica).signal("CONT"));
    let crosswise = || {
        for (gateway, keys) in [(&second, &one), (&first, &other)] {
            for key in keys {
                charge(gateway, key);
            }
        }
    };
    eventually("another master is there", || {
        crosswise();
        (cluster.masters().len() == 3).then_some(())
    });
    for _ in 0..10 {
        crosswise();
        sleep(Duration::from_millis(200));
    }
    expect_once_each(&ledger, &one);
    expect_once_each(&ledger, &other);
}

#[test]
fn a_gateway_that_starts_after_a_flush_is_told_by_one_that_has_nothing_to_do() {
    let server = Server::start();
    let ledger = Ledger::start();
    let idle = gateway(&ledger, &server.url(0));
    let lost = charged(&idle, "lost", KEYS);
    sleep(LOOKED);
    server.command(0, &["flushall"]);
    let new = gateway(&ledger, &server.url(0));
    expect_noticed(&[&new, &idle], &ledger, &lost);
}

#[test]
fn work_whose_claim_was_lost_is_not_run_by_a_gateway_that_starts_later() {
    let (database_server, redis, ledger) = (Database::start(), Server::start(), Ledger::start());
    let url = database(&database_server);
    let settings =
        format!("cache_url = \"{}\"\nlock = \"redis\"\nnear_cache = \"off\"\n", redis.url(0));
    let start = || {
        let setup = Gateway::in_front_of(&ledger).with("[idempotency]\nlease = \"30s\"\n");
        setup.store(&url).store_with(&settings).start()
    };
    let runs = start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    ledger.behave(move |_, client| {
        at_gate.pass();
        reply(client, 201, &[], "slow")
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| charge(&runs, "slow"));
        ledger.wait_for("slow", 1);
        redis.command(0, &["flushall"]);
        let new = start();
        for _ in 0..20 {
            let answer = charge(&new, "slow");
            assert!([409, 503].contains(&answer.status), "{}", answer.status);
        }
        gate.open();
        let answer = first.join().expect("answered");
        assert_eq!((answer.status, answer.text().as_str()), (201, "slow"));
        charge(&new, "slow").replays(&answer);
    });
    assert_eq!(ledger.effects("slow"), 1);
}

#[test]
fn a_backup_that_is_restored_after_an_earlier_loss_is_noticed_and_an_operator_reopens() {
    let mut server = Server::start();
    let ledger = Ledger::start();
    let url = server.url(0);
    let (busy, idle) = (gateway(&ledger, &url), gateway(&ledger, &url));
    let earlier = charged(&busy, "earlier", 1);
    server.command(0, &["flushall"]);
    expect_noticed(&[&busy, &idle], &ledger, &earlier);
    let waits = charge(&idle, "new");
    let seconds: u64 =
        waits.header("retry-after").expect("it tells when").parse().expect("seconds");
    assert_eq!(seconds, 3600, "the retention is a day, and clients ask again before");
    eventually("the metric says so, too", || {
        (idle.metric("selfsame_redis_closed_seconds") > 80_000.0).then_some(())
    });

    assert!(reopen(&url, &[]).contains("nothing was changed"));
    assert_eq!(charge(&idle, "new").status, 503);
    assert!(reopen(&url, &["--yes"]).contains("reopened"));
    for gateway in [&idle, &busy] {
        eventually("it is ready", || {
            (gateway.admin("GET", "/readyz").send().status == 200).then_some(())
        });
        eventually("that is logged", || gateway.log().contains("an operator").then_some(()));
    }
    charged(&busy, "kept", 1);
    sleep(LOOKED);
    server.copy_kept();
    let lost = charged(&busy, "lost", KEYS);
    sleep(LOOKED);
    server.crash();
    server.go_back();
    server.start_again();
    expect_noticed(&[&idle, &busy], &ledger, &lost);
}

#[test]
fn a_loss_is_no_outage_and_the_answer_to_what_runs_is_given() {
    let server = Server::start();
    let (ledger, gate) = Ledger::gated(|_| "the one charge".to_owned());
    let setup = Gateway::in_front_of(&ledger).with("[idempotency]\non_store_error = \"bypass\"\n");
    let gateway = setup.store(&server.url(0)).start();
    let answer = std::thread::scope(|scope| {
        let runs = scope.spawn(|| charge(&gateway, "runs"));
        ledger.wait_for("runs", 1);
        server.command(0, &["flushall"]);
        charge(&gateway, "new").refused("store-unavailable");
        // It runs here, whatever Redis knows of it.
        charge(&gateway, "runs").refused("in-progress");
        gate.open();
        runs.join().expect("answered")
    });
    assert_eq!((answer.status, answer.text().as_str()), (201, "the one charge"));
    charge(&gateway, "runs").replays(&answer);
    assert_eq!((ledger.effects("runs"), ledger.effects("new")), (1, 0));
}
