//! Row 40: answers and checkpoints that are encrypted, and keys that are rotated, removed or wrong.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use selfsame_test_postgres::Server;

use crate::harness::{Answer, Gateway, Ledger, Setup, Then, binary, eventually, reply};
use crate::postgres::database;

const SETTINGS: &str = "[encryption]\nkey_file = \"keys\"\n";
/// What no file may hold.
const BODY: &str = "card-4242-charged";
const HEADER: &str = "customer-9001";
const DATA: &str = "ride-for-jenny-rosen";

pub(crate) fn new_key(id: &str) -> String {
    let output = binary().args(["config", "new-key", id]).output().expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Writes the keys where the gateway finds them.
fn write_keys(folder: &Path, keys: &[&str]) {
    let path = folder.join("keys");
    let _none = fs::remove_file(&path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(keys.concat().as_bytes())).expect("ours");
}

fn upstream() -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(|_, client| reply(client, 201, &[&format!("X-Customer: {HEADER}")], BODY));
    ledger
}

/// The folder in which the gateway runs.
fn folder_of(setup: &Setup) -> PathBuf {
    setup.data().parent().expect("the store has a folder in it").to_owned()
}

pub(crate) fn start(setup: Setup, keys: &[&str]) -> Gateway {
    write_keys(&folder_of(&setup), keys);
    setup.start()
}

fn charge(gateway: &Gateway, key: &str) -> Answer {
    gateway.post("/charges").key(key).json("{}").send()
}

/// All that the files in `folder` hold.
pub(crate) fn bytes_in(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        match path.is_dir() {
            true => bytes.extend(bytes_in(&path)),
            false => bytes.extend(fs::read(path).expect("readable")),
        }
    }
    bytes
}

pub(crate) fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn nothing_of_an_answer_is_in_the_files_and_a_key_is_rotated_while_it_serves() {
    let (ledger, old, new) = (upstream(), new_key("old"), new_key("new"));
    let gateway = start(Gateway::in_front_of(&ledger).with(SETTINGS), &[&old]);
    let first = charge(&gateway, "order-1");
    assert_eq!((first.text().as_str(), first.header("x-customer")), (BODY, Some(HEADER)));
    charge(&gateway, "order-1").replays(&first);
    assert!(gateway.keys(&["show", "order-1"]).status.success());

    write_keys(gateway.folder(), &[&new, &old]);
    assert_eq!(gateway.reload().status, 200);
    charge(&gateway, "order-1").replays(&first);
    let second = charge(&gateway, "order-2");
    let (status, setup) = gateway.terminate();
    assert!(status.success());
    let bytes = bytes_in(&setup.data());
    assert!(holds(&bytes, "order-1") && holds(&bytes, "order-2"), "keys stay readable");
    assert!(!holds(&bytes, BODY) && !holds(&bytes, HEADER));

    // Each was encrypted by the key that was the first then.
    let mut gateway = start(setup, &[&new]);
    charge(&gateway, "order-2").replays(&second);
    refused(&gateway, "order-1", "key \\\"old\\\", which is not in the key file");
    write_keys(gateway.folder(), &[&old.replace("old", "new")]);
    gateway.signal("HUP");
    eventually("the wrong key counts", || {
        (charge(&gateway, "order-2").status == 500).then_some(())
    });
    refused(&gateway, "order-2", "was not encrypted with this key");
    gateway.rewrite("");
    assert_eq!(gateway.reload().status, 200);
    refused(&gateway, "order-2", "no encryption key is configured");
    eventually("alarms are counted", || {
        (gateway.metric("selfsame_damaged_records_total") >= 3.0).then_some(())
    });

    gateway.rewrite(SETTINGS);
    write_keys(gateway.folder(), &[&new, &old]);
    assert_eq!(gateway.reload().status, 200);
    charge(&gateway, "order-1").replays(&first);
    charge(&gateway, "order-2").replays(&second);
    for key in ["order-1", "order-2"] {
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
}

/// The key's record cannot be opened: nothing is served, nothing runs, and the log says why.
fn refused(gateway: &Gateway, key: &str, why: &str) {
    let answer = charge(gateway, key);
    assert_eq!((answer.status, answer.problem().as_deref()), (500, Some("record-damaged")));
    gateway.expect_log(why);
}

#[test]
fn a_key_file_that_everybody_can_read_is_refused_at_the_start_and_at_a_reload() {
    let (ledger, key) = (upstream(), new_key("a"));
    let gateway = start(Gateway::in_front_of(&ledger).with(SETTINGS), &[&key]);
    let first = charge(&gateway, "order-1");
    let path = gateway.folder().join("keys");
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    fs::set_permissions(&path, mode(0o644)).expect("ours");
    let told = gateway.reload();
    assert_eq!(told.status, 422);
    assert!(told.text().contains("run chmod o-rwx"), "{}", told.text());
    charge(&gateway, "order-1").replays(&first);
    let (_, setup) = gateway.terminate();
    let config = setup.write_config();
    let mut check = binary();
    check.args(["config", "check"]).arg(config).current_dir(folder_of(&setup));
    let checked = check.output().expect("the command runs");
    assert!(!checked.status.success());
    assert!(String::from_utf8_lossy(&checked.stderr).contains("run chmod o-rwx"), "{checked:?}");
}

#[test]
fn a_checkpoint_is_encrypted_and_a_run_goes_on_from_it_only_with_the_key() {
    let (old, new) = (new_key("old"), new_key("new"));
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("selfsame-attempt") {
        Some("1") => {
            let saved = format!(r#"{{"recovery_point":"ride_created","data":"{DATA}"}}"#);
            assert_eq!(crate::checkpoints::save(effect, &saved).status, 204);
            Then::Close
        }
        _ => {
            let shown = crate::checkpoints::at_url(effect, "GET").send().text();
            reply(client, 201, &[], &shown)
        }
    });
    let settings = format!(
        "{SETTINGS}[checkpoints]\nlisten = \"127.0.0.1:0\"\n[idempotency]\nlease = \"1s\"\n"
    );
    let gateway = start(Gateway::in_front_of(&ledger).with(&settings), &[&old]);
    charge(&gateway, "order-1").refused("upstream-failed");
    let bytes = bytes_in(&gateway.data());
    assert!(holds(&bytes, "ride_created") && !holds(&bytes, DATA));

    write_keys(gateway.folder(), &[&new]);
    assert_eq!(gateway.reload().status, 200);
    let decided = |gateway: &Gateway| {
        eventually("a decision", || {
            let answer = charge(gateway, "order-1");
            (answer.problem().as_deref() != Some("in-progress")).then_some(answer)
        })
    };
    for _ in 0..2 {
        assert_eq!(decided(&gateway).problem().as_deref(), Some("record-damaged"));
        assert_eq!(ledger.effects("order-1"), 1);
    }
    write_keys(gateway.folder(), &[&new, &old]);
    assert_eq!(gateway.reload().status, 200);
    let resumed = decided(&gateway);
    assert!(resumed.text().contains(DATA), "{}", resumed.text());
    assert_eq!(ledger.effects("order-1"), 2);
}

#[test]
fn nothing_of_an_answer_is_in_a_database_either() {
    let (server, ledger, key) = (Server::start(), upstream(), new_key("a"));
    let url = database(&server);
    let gateway = start(Gateway::in_front_of(&ledger).with(SETTINGS).store(&url), &[&key]);
    let first = charge(&gateway, "order-1");
    charge(&gateway, "order-1").replays(&first);
    let found = |text: &str| {
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let sql = format!(
            "select count(*) from selfsame.answers where encode(body, 'hex') like '%{hex}%'"
        );
        server.sql("keys", &sql)
    };
    assert_eq!(server.sql("keys", "select count(*) from selfsame.answers").trim(), "1");
    assert_eq!((found(BODY).trim(), found(HEADER).trim()), ("0", "0"));
    write_keys(gateway.folder(), &[&new_key("b")]);
    gateway.signal("HUP");
    eventually("the other key counts", || {
        (charge(&gateway, "order-1").status == 500).then_some(())
    });
    refused(&gateway, "order-1", "not in the key file");
    assert_eq!(ledger.effects("order-1"), 1);
}
