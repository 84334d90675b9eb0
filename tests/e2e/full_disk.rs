//! Rows 30 and 31: the disk is full at the claim, or at the completion.

use std::path::Path;

use crate::harness::{Answer, Gate, Gateway, Ledger, Request, SmallDisk, assert_whole, eventually, reply};

/// An answer that no leftover of a page has room for.
const LARGE: usize = 64 * 1024;

/// A gateway whose store is on a small disk, and whose spool is not.
struct OnSmallDisk {
    disk: SmallDisk,
    ledger: Ledger,
    gate: Gate,
}

impl OnSmallDisk {
    /// Keys that begin with `slow` wait at the gate.
    fn new() -> Self {
        let (disk, ledger, gate) = (SmallDisk::mount(), Ledger::start(), Gate::shut());
        let at_gate = gate.clone();
        ledger.behave(move |effect, client| {
            if effect.header("idempotency-key").is_some_and(|key| key.starts_with("slow")) {
                at_gate.pass();
            }
            reply(client, 201, &[], &format!("{}:{}", effect.number, "x".repeat(LARGE)))
        });
        Self { disk, ledger, gate }
    }

    fn start(&self) -> Gateway {
        let setup = Gateway::in_front_of(&self.ledger)
            .with("[idempotency]\nlease = \"1s\"\n")
            .store(&format!("file:{}", self.store().display()));
        let spool = setup.data().join("spool");
        let setup = setup.spool(&spool);
        let config = setup.write_config();
        setup.start_as(self.disk.serve(&config))
    }

    fn store(&self) -> std::path::PathBuf {
        self.disk.folder().join("data")
    }
}
