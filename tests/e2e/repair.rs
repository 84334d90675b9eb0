//! Row 33: a store that is damaged is repaired, or restored from a copy, and no key runs again.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use tempfile::TempDir;

use crate::harness::{
    Answer, Ended, Gateway, Ledger, Request, Setup, Then, binary, copied, eventually, reply,
    run_to_end,
};

/// An upstream that loses the answer of `interrupted`.
fn upstream() -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("idempotency-key") {
        Some("interrupted") => Then::Close,
        key => reply(client, 201, &[], &format!("done for {}", key.unwrap_or_default())),
    });
    ledger
}

/// A route that would rather run than wait: a loss is no outage.
fn setup(ledger: &Ledger) -> Setup {
    Gateway::in_front_of(ledger).with("[idempotency]\non_store_error = \"bypass\"\n")
}

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json(r#"{"amount":10}"#)
}

fn charged(gateway: &Gateway, keys: &[String]) -> Vec<Answer> {
    let answers = keys.iter().map(|key| charge(gateway, key).send());
    answers.inspect(|answer| assert_eq!(answer.status, 201)).collect()
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("order-{number}")).collect()
}

fn store(args: &[&str], folder: &Path) -> Ended {
    let mut command = binary();
    command.arg("store").args(args).args(["--store", &format!("file:{}", folder.display())]);
    run_to_end(command)
}

/// Damages the log so that the store does not open, and the frames of a few keys are lost.
fn damage(folder: &Path) {
    let log = folder.join("records-00000001.log");
    let mut bytes = fs::read(&log).expect("the log is there");
    let written = bytes.iter().rposition(|byte| *byte != 0).expect("something is written");
    // A whole page, as a disk may lose one, and the beginning of the file but for its salt.
    let page = written / 2 / 4096 * 4096;
    bytes[page..(page + 4096).min(written)].fill(0);
    bytes[..12].fill(0);
    fs::write(log, bytes).expect("the log can be written");
    fs::remove_dir_all(folder.join("index")).expect("there is an index");
}

/// What was answered is answered so, or refused. Returns how many were answered.
fn replayed(gateway: &Gateway, ledger: &Ledger, keys: &[String], answers: &[Answer]) -> usize {
    let mut replayed = 0;
    for (key, first) in keys.iter().zip(answers) {
        let retry = charge(gateway, key).send();
        match retry.status {
            201 => {
                retry.replays(first);
                replayed += 1;
            }
            409 => drop(retry.refused("outcome-unknown")),
            500 => assert_eq!(retry.problem().as_deref(), Some("record-damaged")),
            _ => drop(retry.refused("store-unavailable")),
        }
        assert_eq!(ledger.effects(key), 1, "{key}");
    }
    replayed
}

fn refuses_to_start(setup: &Setup, part: &str) {
    let mut serve = binary();
    serve.args(["serve", "--config"]).arg(setup.write_config());
    let refused = run_to_end(serve);
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains(part), "{}", refused.stderr);
}

#[test]
fn a_damaged_store_is_repaired_and_refuses_unknown_keys_until_it_is_reopened() {
    let ledger = upstream();
    let gateway = setup(&ledger).start();
    let keys = keys(40);
    let answers = charged(&gateway, &keys);
    charge(&gateway, "interrupted").send().refused("upstream-failed");
    let (_, setup) = gateway.terminate();
    let folder = setup.data();
    assert!(store(&["repair"], &folder).stdout.contains("nothing to repair"));

    damage(&folder);
    refuses_to_start(&setup, "selfsame store repair");
    let repaired = store(&["repair"], &folder);
    assert_eq!(repaired.code, Some(0), "{}", repaired.stderr);
    for part in ["repaired: ", "closed     for 1day", "records-00000001.log, bytes", "damaged-"] {
        assert!(repaired.stdout.contains(part), "{}", repaired.stdout);
    }
    let info = store(&["info"], &folder);
    assert!(info.stdout.contains("damaged   "), "{info:?}");
    assert!(info.stdout.contains("closed    to keys that it does not know"), "{info:?}");

    let gateway = setup.start();
    let kept = replayed(&gateway, &ledger, &keys, &answers);
    assert!(kept > 20 && kept < keys.len(), "{kept} kept");
    charge(&gateway, "interrupted").send().refused("outcome-unknown");
    let unknown = charge(&gateway, "unknown").send();
    unknown.refused("store-unavailable");
    assert_eq!((unknown.status, unknown.header("retry-after")), (503, Some("3600")));
    assert_eq!(ledger.effects("unknown"), 0);
    let ready = gateway.admin("GET", "/readyz").send();
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("has lost records"), "{}", ready.text());
    eventually("the metric says so, too", || {
        (gateway.metric("selfsame_store_closed_seconds") > 80_000.0).then_some(())
    });
    let gateway = gateway.kill().start();
    assert_eq!(charge(&gateway, "unknown").send().status, 503, "after a restart, too");
    for command in ["repair", "reopen"] {
        assert!(store(&[command], &folder).stderr.contains("in use"));
    }

    let (_, setup) = gateway.terminate();
    let to = TempDir::new().expect("a folder");
    let redis = "redis://127.0.0.1:1";
    let copy = store(&["copy", &format!("file:{}", folder.display()), redis], to.path());
    assert!(copy.stderr.contains("has lost records"), "{}", copy.stderr);
    assert!(store(&["reopen"], &folder).stderr.contains("nothing was changed"));
    assert!(store(&["reopen", "--yes"], &folder).stdout.contains("reopened"));
    assert!(store(&["reopen", "--yes"], &folder).stdout.contains("nothing to do"));
    let gateway = setup.start();
    assert_eq!(charge(&gateway, "unknown").send().status, 201);
    assert_eq!(gateway.admin("GET", "/readyz").send().status, 200);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long a repair takes here is measured")]
fn a_repair_that_is_killed_at_any_time_is_finished_by_the_next() {
    let ledger = upstream();
    let gateway = setup(&ledger).start();
    let keys = keys(200);
    let answers = charged(&gateway, &keys);
    let (_, setup) = gateway.terminate();
    damage(&setup.data());
    let sound = copied(&setup.data());
    let begun = Instant::now();
    assert_eq!(store(&["repair"], sound.path()).code, Some(0));
    let took = begun.elapsed();
    const KILLS: u32 = 16;
    let mut kept = Vec::new();
    for kill in 0..KILLS {
        let copy = copied(&setup.data());
        let mut repair = binary();
        repair.args(["store", "repair", "--store", &format!("file:{}", copy.path().display())]);
        let mut repair =
            repair.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        // What it is doing then is left to chance, on purpose.
        std::thread::sleep(took * kill / KILLS);
        let _gone = repair.kill();
        repair.wait().expect("it is ours");
        let again = store(&["repair"], copy.path());
        assert_eq!(again.code, Some(0), "{}", again.stderr);
        let other = format!("file:{}", copy.path().display());
        let gateway = self::setup(&ledger).store(&other).start();
        kept.push(replayed(&gateway, &ledger, &keys, &answers));
        assert_eq!(charge(&gateway, "unknown").send().status, 503);
    }
    assert!(kept[0] > 100 && kept.iter().all(|count| *count == kept[0]), "{kept:?}");
}

#[test]
fn a_copy_is_restored_and_what_was_used_since_does_not_run_again() {
    let ledger = upstream();
    let gateway = setup(&ledger).start();
    let keys = keys(5);
    let answers = charged(&gateway, &keys);
    let (_, setup) = gateway.terminate();
    let backup = copied(&setup.data());
    let gateway = setup.start();
    assert_eq!(charge(&gateway, "later").send().status, 201);
    let (_, setup) = gateway.terminate();
    let folder = setup.data();
    let backup_path = backup.path().display().to_string();
    let refused = store(&["restore", &backup_path], &folder);
    assert!(refused.stderr.contains("holds a store already"), "{}", refused.stderr);

    fs::remove_dir_all(&folder).expect("it is there");
    let restored = store(&["restore", &backup_path], &folder);
    assert!(restored.stdout.contains("restored to "), "{restored:?}");
    let gateway = setup.start();
    assert_eq!(replayed(&gateway, &ledger, &keys, &answers), keys.len());
    charge(&gateway, "later").send().refused("store-unavailable");
    assert_eq!(ledger.effects("later"), 1);
}
