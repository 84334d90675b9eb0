//! Rows 5 and 28: several gateways over a Redis Cluster, or over what sentinels watch, while masters die.

use std::thread::{self, sleep};
use std::time::Duration;

use selfsame_test_redis::{Cluster, Watched};

use crate::harness::{Answer, Gateway, Ledger, Request, eventually};
use crate::postgres::race;

const PASSWORD: &str = "correct-horse";
const RIVALS: usize = 50;

fn start() -> Cluster {
    Cluster::start_with(&[&format!("user keys on >{PASSWORD} ~* &* +@all")])
}

fn three(ledger: &Ledger, url: &str, settings: &str) -> Vec<Gateway> {
    let gateway = || Gateway::in_front_of(ledger).store(url).store_with(settings).start();
    thread::scope(|scope| {
        let starting: Vec<_> = (0..3).map(|_| scope.spawn(gateway)).collect();
        starting.into_iter().map(|start| start.join().expect("started")).collect()
    })
}

/// Asks until there is an answer of the upstream's.
fn insist(request: &Request) -> Answer {
    eventually("an answer", || {
        let answer = request.send();
        match answer.status {
            201 => Some(answer),
            409 | 503 => {
                sleep(Duration::from_millis(20));
                None
            }
            status => panic!("{status}: {}", answer.text()),
        }
    })
}

/// Rivals on all gateways insist on the same keys while `meanwhile` goes on.
fn insist_on_all(gateways: &[Gateway], ledger: &Ledger, meanwhile: impl FnOnce()) {
    let keys: Vec<_> = (0..6).map(|at| format!("k-{at}")).collect();
    let request = |gateway: &Gateway, key: &str| gateway.post("/charges").key(key).json("{}");
    thread::scope(|scope| {
        for gateway in gateways {
            for _ in 0..RIVALS {
                let requests: Vec<_> = keys.iter().map(|key| request(gateway, key)).collect();
                scope.spawn(move || {
                    for request in requests {
                        sleep(Duration::from_millis(400));
                        insist(&request);
                    }
                });
            }
        }
        meanwhile();
    });
    for key in &keys {
        assert_eq!(ledger.effects(key), 1, "{key}");
        let answers: Vec<_> = gateways.iter().map(|gateway| request(gateway, key).send()).collect();
        assert!(answers.iter().all(|answer| answer.body == answers[0].body));
    }
}

#[test]
fn rivals_on_three_gateways_over_a_cluster_run_once() {
    let cluster = start();
    let ledger = Ledger::start();
    let url = cluster.url_as(&format!("keys:{PASSWORD}@"));
    let gateways = three(&ledger, &url, "");
    race(&gateways, &ledger);
    for gateway in gateways {
        assert!(!gateway.whole_log().contains(PASSWORD), "no log tells a password");
    }
}

#[test]
fn rivals_on_three_gateways_run_once_while_a_master_of_the_cluster_dies() {
    let mut cluster = start();
    let ledger = Ledger::start();
    let gateways = three(&ledger, &cluster.url(), "wait_replicas = 1");
    insist_on_all(&gateways, &ledger, || {
        sleep(Duration::from_millis(600));
        cluster.server_mut(1).crash();
        while cluster.masters().len() < 3 {}
        cluster.server_mut(1).start_again();
        cluster.wait_until_whole();
    });
}

#[test]
fn rivals_on_three_gateways_run_once_while_slots_of_the_cluster_move() {
    let cluster = start();
    let ledger = Ledger::start();
    let gateways = three(&ledger, &cluster.url(), "");
    insist_on_all(&gateways, &ledger, || cluster.reshard(0, 2, 500));
}

#[test]
fn a_gateway_follows_the_master_that_sentinels_name() {
    let mut watched = Watched::start();
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).store(&watched.url_as("")).start();
    let before = gateway.post("/charges").key("before").json("{}");
    let answer = before.send();
    assert_eq!(answer.status, 201);
    // Its replica has it by then.
    sleep(Duration::from_millis(500));
    watched.server_mut(0).crash();
    insist(&gateway.post("/charges").key("after").json("{}"));
    before.send().replays(&answer);
    assert_eq!((ledger.effects("before"), ledger.effects("after")), (1, 1));
}
