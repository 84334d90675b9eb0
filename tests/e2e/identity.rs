//! What forms a key's identity cannot change unnoticed: known keys would run again.

use std::process::Command;

use crate::harness::{Ended, Gateway, Ledger, Setup, binary, run_to_end};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn serve(setup: &Setup, flags: &[&str]) -> Command {
    let mut command = binary();
    command.args(["serve", "--config"]).arg(setup.write_config()).args(flags);
    command
}

/// A stopped gateway that has answered `order-1`, and what it answered.
fn used(ledger: &Ledger, settings: &str) -> (Setup, Vec<u8>) {
    let gateway = Gateway::in_front_of(ledger).with(settings).start();
    let answer = gateway.post("/charges").key("order-1").send();
    assert_eq!(answer.status, 201);
    (gateway.kill(), answer.body)
}

fn assert_refused(refused: &Ended) {
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("keys it knows would run again"), "{refused:?}");
    assert!(refused.stderr.contains("--new-identity"), "{refused:?}");
}

#[test]
fn a_change_of_tenant_scope_or_key_source_is_refused_unless_it_is_meant() {
    let changes = [
        "[idempotency]\ntenant = \"none\"\n",
        "[idempotency]\nscope = \"endpoint\"\n",
        "[idempotency]\nkey_headers = [\"Idempotency-Key\", \"X-Key\"]\n",
        "[idempotency]\nkey_pointer = \"/idempotency_key\"\n",
        "[[route]]\nmatch = \"POST /charges\"\ntenant = \"cookie:session\"\n",
        "[[route]]\nhost = \"a.example\"\nmatch = \"POST /charges\"\ntenant = \"none\"\n",
    ];
    for change in changes {
        let ledger = Ledger::start();
        let (setup, _) = used(&ledger, "");
        let setup = setup.with(change);
        assert_refused(&run_to_end(serve(&setup, &[])));
        assert_eq!(ledger.all().len(), 1, "{change}");

        let meant = serve(&setup, &["--new-identity"]);
        let gateway = setup.start_as(meant);
        // Said once, it is so from then on.
        gateway.kill().start();
    }
}

#[test]
fn another_secret_is_refused_unless_it_is_meant() {
    let ledger = Ledger::start();
    let (setup, _) = used(&ledger, "");
    let file = setup.data().with_file_name("secret");
    std::fs::write(&file, SECRET).expect("written");
    let file = file.display().to_string();

    assert_refused(&run_to_end(serve(&setup, &["--secret-file", &file])));
    let meant = serve(&setup, &["--new-identity", "--secret-file", &file]);
    let setup = setup.start_as(meant).kill();
    assert_refused(&run_to_end(serve(&setup, &[])));
}

#[test]
fn a_plain_route_changes_no_identity() {
    let ledger = Ledger::start();
    let (setup, first) = used(&ledger, "");
    let route = "[[route]]\nmatch = \"POST /charges\"\nkey = \"required\"\nlease = \"9s\"\n";
    let gateway = setup.with(route).start();
    let retry = gateway.post("/charges").key("order-1").send();
    assert_eq!((retry.header("idempotent-replayed"), &retry.body), (Some("true"), &first));
    assert_eq!(gateway.post("/charges").send().problem().as_deref(), Some("missing-key"));
    assert_eq!(ledger.all().len(), 1);
}

#[test]
fn a_secret_file_that_is_missing_or_too_short_is_named() {
    let ledger = Ledger::start();
    let setup = Gateway::in_front_of(&ledger);
    let file = setup.data().with_file_name("secret");
    let path = file.display().to_string();

    let refused = run_to_end(serve(&setup, &["--secret-file", &path]));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains(&format!("{path} cannot be read")), "{refused:?}");

    std::fs::write(&file, "too short\n").expect("written");
    let refused = run_to_end(serve(&setup, &["--secret-file", &path]));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains(&format!("{path} holds 9 bytes")), "{refused:?}");
    assert!(!refused.stderr.contains("too short"), "a secret is not shown: {refused:?}");

    std::fs::write(&file, SECRET).expect("written");
    let right = serve(&setup, &["--secret-file", &path]);
    let gateway = setup.start_as(right);
    assert_eq!(gateway.post("/charges").key("order-1").send().status, 201);
}
