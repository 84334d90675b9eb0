//! Everything at once: clients of two tenants that retry and hang up, an upstream that fails, an
//! operator who decides, and a gateway that is killed again and again. Then each invariant is
//! checked by its name, and that what was to be survived did happen.

mod history;
mod upstream;

use std::io::{BufReader, Write};
use std::net::SocketAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{Answer, Gateway, Ledger, Random, Request, assert_whole, eventually};
use history::{Event, History, Operation, Outcome};
use upstream::Bank;

const ROUNDS: u64 = 9;
const CLIENTS: u64 = 4;
/// How many keys each tenant has in use at once, and after how many requests one makes room for
/// a new one.
const KEYS: u64 = 20;
const REQUESTS_A_KEY: u64 = 30;

const SETTINGS: &str = "trusted_proxies = [\"127.0.0.1\"]\n\
    [idempotency]\nlease = \"1s\"\ntenant = \"header:X-Tenant\"\n";

/// What the clients share.
struct Stage {
    seed: u64,
    gateway: RwLock<SocketAddr>,
    is_over: AtomicBool,
    history: History,
}

impl Stage {
    fn client(&self, number: u64) {
        let mut random = Random::seeded(self.seed ^ number);
        while !self.is_over.load(Ordering::Relaxed) {
            let key = self.history.length() / REQUESTS_A_KEY + random.below(KEYS);
            let tenant = ["alice", "bob"][random.below(2) as usize];
            let operation = Operation { tenant, key: format!("order-{key}") };
            let is_answered = self.history.is_answered(&operation);
            match random.below(100) {
                0..5 => self.hang_up(operation, 3),
                5..10 => self.hang_up(operation, 0),
                10..15 if is_answered => self.ask(operation, "another body"),
                _ => self.ask(operation, ""),
            }
        }
    }

    /// Sends the whole request and waits for what comes.
    fn ask(&self, operation: Operation, more: &str) {
        let to = *self.gateway.read().expect("no panic holds it");
        let event = self.history.begin(operation);
        let request = request(to, &event, more);
        // The gateway may just have been killed: nothing is sent.
        let Ok(mut connection) = request.connect() else { return };
        let sent = connection.write_all(&request.bytes());
        let answer = sent.and_then(|()| Answer::read(&mut BufReader::new(connection)));
        self.history.end(event, answer.map_or(Outcome::Lost, Outcome::of));
    }

    /// Sends all but the last `missing` bytes, and leaves.
    fn hang_up(&self, operation: Operation, missing: usize) {
        let to = *self.gateway.read().expect("no panic holds it");
        let event = self.history.begin(operation);
        let request = request(to, &event, "");
        let Ok(mut connection) = request.connect() else { return };
        let bytes = request.bytes();
        let _gone = connection.write_all(&bytes[..bytes.len() - missing]);
        drop(connection);
        self.history.end(event, if missing == 0 { Outcome::Lost } else { Outcome::Cut });
    }
}

fn request(to: SocketAddr, event: &Event, more: &str) -> Request {
    let Event { number, operation: Operation { tenant, key }, .. } = event;
    Request::new(to, "POST", "/charges")
        .key(key)
        .header("X-Tenant", tenant)
        .header("X-Request", &number.to_string())
        .json(&format!(r#"{{"order":"{key}{more}"}}"#))
}

/// An operator looks one held key up in the upstream's ledger, and decides accordingly.
fn decide_one(gateway: &Gateway, bank: &Bank, ledger: &Ledger) {
    let held = gateway.admin("GET", "/api/v1/keys").send();
    let held: Vec<serde_json::Value> = serde_json::from_slice(&held.body).expect("records");
    let Some(record) = held.first() else { return };
    let text = |name: &str| record[name].as_str().expect("text").to_owned();
    let (id, tenant, key) = (text("id"), text("tenant"), text("key"));
    let decided = match bank.charge_of(ledger, &tenant, &key) {
        Some(answer) => gateway.keys(&["complete", &id, "--status", "201", "--body", &answer]),
        None => gateway.keys(&["free", &id]),
    };
    assert!(decided.status.success(), "{}", String::from_utf8_lossy(&decided.stderr));
}

/// Kills the gateway again and again while the clients go on; how often in the middle of a run.
fn torment(mut gateway: Gateway, stage: &Stage, bank: &Bank, ledger: &Ledger) -> (Gateway, usize) {
    let mut kills_in_a_run = 0;
    let mut random = Random::seeded(stage.seed ^ CLIENTS);
    for round in 0..ROUNDS {
        for _ in 0..3 {
            // Faults come at moments that nothing announces.
            std::thread::sleep(Duration::from_millis(50 + random.below(300)));
            decide_one(&gateway, bank, ledger);
        }
        if round % 2 == 0 {
            eventually("a run that takes its time", || bank.is_busy().then_some(()));
        }
        gateway.signal("KILL");
        kills_in_a_run += usize::from(bank.is_busy());
        // Clients wait for the next gateway's address.
        let mut address = stage.gateway.write().expect("no panic holds it");
        let setup = gateway.kill();
        assert_whole(&setup.data());
        gateway = setup.start();
        *address = gateway.address;
    }
    (gateway, kills_in_a_run)
}

#[test]
fn every_invariant_holds_while_everything_fails_at_once() {
    let seed = Random::seed();
    println!("seed {seed}");
    let (ledger, bank) = (Ledger::start(), Bank::new(seed));
    ledger.behave(bank.clone().behaviour());
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    let stage = Stage {
        seed,
        gateway: RwLock::new(gateway.address),
        is_over: AtomicBool::new(false),
        history: History::default(),
    };
    let (gateway, kills_in_a_run) = std::thread::scope(|threads| {
        let _over = OnDrop(&stage.is_over);
        for number in 0..CLIENTS {
            let stage = &stage;
            threads.spawn(move || stage.client(number));
        }
        torment(gateway, &stage, &bank, &ledger)
    });

    for operation in stage.history.operations() {
        eventually("I7: a decision about every key", || {
            stage.ask(operation.clone(), "");
            (!stage.history.ended_with(&operation, "in-progress")).then_some(())
        });
    }
    stage.history.check(&ledger, &bank);
    // I8: nothing runs at rest.
    gateway.expect_metric("selfsame_in_flight", 0.0);
    assert!(kills_in_a_run > 0, "sometimes: a kill in the middle of a run");
    stage.history.check_that_it_was_eventful();
}

/// The clients end also where the test fails.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
