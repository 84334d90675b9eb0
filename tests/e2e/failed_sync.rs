//! Row 32: a sync to the disk fails. The gateway writes nothing more until a restart, and says so. What it
//! could not record is in the spool, and is recorded after the restart, whatever the disk has kept.

use std::fs;
use std::io::BufReader;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::harness::{Answer, Gate, Gateway, Ledger, Machine, Request, Setup, copied, reply};

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json(r#"{"amount":10}"#)
}

fn status(gateway: &Gateway, path: &str) -> (u16, String) {
    let answer = gateway.admin("GET", path).send();
    (answer.status, answer.text())
}

/// A gateway whose disk failed while the work behind the key `running` was under way.
struct Failed {
    machine: Machine,
    ledger: Ledger,
    gateway: Gateway,
    spool: PathBuf,
    /// The files of the store before the failure.
    before: TempDir,
    known: Answer,
    answer: Answer,
}

impl Failed {
    fn new() -> Self {
        let (machine, ledger, gate) = (Machine::new(), Ledger::start(), Gate::shut());
        let at_gate = gate.clone();
        ledger.behave(move |effect, client| {
            if effect.header("idempotency-key") == Some("running") {
                at_gate.pass();
            }
            reply(client, 201, &[], &effect.number.to_string())
        });
        let setup = Gateway::in_front_of(&ledger).with("[idempotency]\nrecover = \"resume\"\n");
        let spool = setup.data().with_extension("spool");
        let setup = setup.spool(&spool);
        let gateway = start(&machine, setup);
        let known = charge(&gateway, "known").send();
        assert_eq!(known.status, 201);
        let mut running = BufReader::new(charge(&gateway, "running").begin());
        ledger.wait_for("running", 1);
        let before = copied(&gateway.data());

        machine.fail_syncs_of_log(true);
        gate.open();
        let answer = Answer::read(&mut running).expect("the answer of the work");
        assert_eq!(answer.status, 201);
        machine.fail_syncs_of_log(false);
        Self { machine, ledger, gateway, spool, before, known, answer }
    }

    /// Restarts the gateway. The log is as the process left it.
    fn restart(self) -> Restarted {
        let Self { machine, ledger, gateway, spool, known, answer, .. } = self;
        let gateway = start(&machine, gateway.kill());
        Restarted { _machine: machine, ledger, gateway, spool, known, answer }
    }

    /// Restarts the gateway after a power cut: the disk has nothing of what was not synced.
    fn restart_after_power_cut(self) -> Restarted {
        let Self { machine, ledger, gateway, spool, before, known, answer } = self;
        let setup = gateway.kill();
        fs::remove_dir_all(setup.data()).expect("removed");
        fs::rename(before.keep(), setup.data()).expect("put in its place");
        let gateway = start(&machine, setup);
        Restarted { _machine: machine, ledger, gateway, spool, known, answer }
    }
}

struct Restarted {
    _machine: Machine,
    ledger: Ledger,
    gateway: Gateway,
    spool: PathBuf,
    known: Answer,
    answer: Answer,
}

impl Restarted {
    fn assert_nothing_was_lost(&self) {
        let Self { ledger, gateway, spool, known, answer, .. } = self;
        charge(gateway, "running").send().replays(answer);
        charge(gateway, "known").send().replays(known);
        assert_eq!((ledger.effects("running"), ledger.effects("known")), (1, 1));
        assert_eq!(fs::read_dir(spool).map_or(0, Iterator::count), 0, "it is recorded");
        assert_eq!(charge(gateway, "new").send().status, 201);
        assert_eq!(status(gateway, "/healthz").0, 200);
        assert_eq!(status(gateway, "/readyz").0, 200);
    }
}

fn start(machine: &Machine, setup: Setup) -> Gateway {
    let config = setup.write_config();
    setup.start_as(machine.serve(&config))
}

#[test]
fn after_a_failed_sync_nothing_is_written_and_the_health_page_says_so() {
    let failed = Failed::new();
    let Failed { gateway, ledger, known, spool, .. } = &failed;
    for path in ["/healthz", "/readyz"] {
        let (code, text) = status(gateway, path);
        assert_eq!((code, text.contains("the disk failed")), (503, true), "{text}");
    }
    let refused = charge(gateway, "new").send();
    assert_eq!((refused.status, refused.problem().as_deref()), (503, Some("store-unavailable")));
    assert_eq!(ledger.effects("new"), 0);
    charge(gateway, "known").send().replays(known);
    let retry = charge(gateway, "running").send();
    assert!(matches!(retry.status, 201 | 409 | 503), "{retry:?}");
    assert_eq!(ledger.effects("running"), 1);
    assert_eq!(fs::read_dir(spool).map_or(0, Iterator::count), 1, "the answer is on a disk");
}

#[test]
fn a_restart_after_a_failed_sync_records_what_was_spooled() {
    Failed::new().restart().assert_nothing_was_lost();
}

#[test]
fn a_power_cut_after_a_failed_sync_takes_nothing_that_was_spooled() {
    Failed::new().restart_after_power_cut().assert_nothing_was_lost();
}
