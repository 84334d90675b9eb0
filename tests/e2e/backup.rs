//! Backups of a store that is served, verification, and what is said of a store.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use selfsame::stores::{BackupError, EmbeddedOptions, EmbeddedStore};
use tempfile::TempDir;

use crate::harness::{
    Answer, Ended, Gateway, Ledger, Request, Setup, SmallDisk, binary, eventually, reply,
    run_to_end,
};

fn ledger() -> Ledger {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| {
        let key = effect.header("idempotency-key").unwrap_or_default().to_owned();
        let len = if key.starts_with("large") { 512 * 1024 } else { 10 };
        reply(client, 201, &[], &format!("{}: {key} {}", effect.number, "x".repeat(len)))
    });
    ledger
}

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json("{}")
}

fn fill(gateway: &Gateway, count: usize) {
    for at in 0..count {
        assert_eq!(charge(gateway, &format!("large-{at}")).send().status, 201);
    }
}

fn store(folder: &Path, args: &[&str]) -> Ended {
    let mut command = binary();
    command.arg("store").args(args).arg("--store").arg(format!("file:{}", folder.display()));
    run_to_end(command)
}

/// `selfsame store backup` of what a gateway serves.
fn backed_up(gateway: &Gateway, folder: &Path) -> Ended {
    let admin = format!("http://{}", gateway.admin);
    let token = gateway.data().join("admin-token");
    let args = ["backup", "--admin", &admin, "--token-file", &token.display().to_string()];
    let folder = folder.display().to_string();
    store(&gateway.data(), &[&args[..], &[&folder]].concat())
}

fn ask(gateway: &Gateway, body: &str) -> Answer {
    let token = fs::read_to_string(gateway.data().join("admin-token")).expect("a token");
    let bearer = format!("Bearer {}", token.trim());
    let request = gateway.admin("POST", "/api/v1/backup").header("Authorization", &bearer);
    request.json(body).send()
}

#[track_caller]
fn assert_refused(ended: &Ended, parts: &[&str]) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in parts {
        assert!(ended.stderr.contains(part), "{part:?} in {ended:?}");
    }
}

/// Serves a backup, as after a restore.
fn serve(ledger: &Ledger, backup: &Path) -> Gateway {
    fs::remove_file(backup.join("backup")).expect("it is a backup");
    Gateway::in_front_of(ledger).store(&format!("file:{}", backup.display())).start()
}

#[test]
fn a_store_that_is_served_is_backed_up_and_the_copy_replays() {
    let (ledger, elsewhere) = (ledger(), TempDir::new().expect("a folder"));
    let gateway = Gateway::in_front_of(&ledger).start();
    let first = charge(&gateway, "first").send();
    assert_eq!(charge(&gateway, "erased").send().status, 201);
    assert!(gateway.keys(&["erase", "erased"]).status.success());
    let copy = elsewhere.path().join("copy");
    let ended = backed_up(&gateway, &copy);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("2 records") && ended.stdout.contains("made: "), "{ended:?}");
    let mode = fs::metadata(&copy).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    let later = charge(&gateway, "later").send();
    assert_eq!(later.status, 201);
    let sound = store(&copy, &["verify"]);
    assert_eq!(sound.code, Some(0), "{sound:?}");
    let refused = binary()
        .args(["serve", "--upstream", "http://127.0.0.1:1", "--store"])
        .arg(format!("file:{}", copy.display()))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("selfsame store restore"), "{said}");

    let restored = serve(&ledger, &copy);
    charge(&restored, "first").send().replays(&first);
    charge(&restored, "erased").send().refused("key-expired");
    assert_eq!((ledger.effects("first"), ledger.effects("erased")), (1, 1));
    charge(&gateway, "later").send().replays(&later);
}

#[test]
fn a_store_that_nobody_serves_is_backed_up_without_a_gateway() {
    let (ledger, elsewhere) = (ledger(), TempDir::new().expect("a folder"));
    let gateway = Gateway::in_front_of(&ledger).start();
    let first = charge(&gateway, "first").send();
    let (_, setup) = gateway.terminate();
    let copy = elsewhere.path().join("copy");
    let name = copy.display().to_string();
    let ended = store(&setup.data(), &["backup", &name]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_refused(&store(&setup.data(), &["backup", &name]), &["is there already"]);
    charge(&serve(&ledger, &copy), "first").send().replays(&first);
}

#[test]
fn backups_that_would_overwrite_or_that_nobody_may_ask_for_are_refused() {
    let (ledger, elsewhere) = (ledger(), TempDir::new().expect("a folder"));
    let gateway = Gateway::in_front_of(&ledger).start();
    assert_eq!(charge(&gateway, "first").send().status, 201);
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, "mine").expect("written");
    let asked = |folder: &str| ask(&gateway, &format!("{{\"folder\":{folder:?}}}"));
    let cases = [
        (victim.display().to_string(), 409, "is there already"),
        (elsewhere.path().display().to_string(), 409, "is there already"),
        (gateway.data().join("copy").display().to_string(), 409, "store's own folder"),
        (elsewhere.path().join("a/b").display().to_string(), 500, "cannot be written"),
        ("relative".to_owned(), 400, "absolute path"),
    ];
    for (folder, status, text) in cases {
        let refused = asked(&folder);
        assert_eq!(refused.status, status, "{folder}: {}", refused.text());
        assert!(refused.text().contains(text), "{}", refused.text());
    }
    assert_eq!(ask(&gateway, "{}").status, 400);
    let copy = elsewhere.path().join("copy");
    let body = format!("{{\"folder\":{:?}}}", copy.display().to_string());
    assert_eq!(gateway.admin("POST", "/api/v1/backup").json(&body).send().status, 401);
    assert!(!copy.exists());
    assert_eq!(fs::read_to_string(&victim).ok().as_deref(), Some("mine"));

    let memory = Gateway::in_front_of(&ledger).store("memory:").start();
    let token = memory.folder().join("selfsame-data/admin-token");
    let token = fs::read_to_string(token).expect("a token");
    let request = memory.admin("POST", "/api/v1/backup");
    let bearer = format!("Bearer {}", token.trim());
    let refused = request.header("Authorization", &bearer).json(&body).send();
    assert_eq!(refused.status, 400, "{}", refused.text());
    let ended = run_to_end({
        let mut command = binary();
        command.args(["store", "backup", "copy", "--store", "redis://127.0.0.1:1"]);
        command
    });
    assert_refused(&ended, &["only a file: store"]);
}

/// Waits until a backup has begun to copy.
fn begun(copy: &Path) {
    eventually("a file is being copied", || {
        let is_begun =
            copy.join("backup.incomplete").exists() && copy.join("records-00000002.log").exists();
        is_begun.then_some(())
    });
}

#[test]
fn a_second_backup_at_once_is_refused_and_one_that_is_killed_is_no_backup() {
    let (ledger, elsewhere) = (ledger(), TempDir::new().expect("a folder"));
    let gateway = Gateway::in_front_of(&ledger).start();
    fill(&gateway, 80);
    let (copy, other) = (elsewhere.path().join("copy"), elsewhere.path().join("other"));
    let asked = |folder: &PathBuf| format!("{{\"folder\":{:?}}}", folder.display().to_string());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(&gateway, &asked(&copy)));
        begun(&copy);
        let second = ask(&gateway, &asked(&other));
        assert_eq!(second.status, 409, "{}", second.text());
        assert!(second.text().contains("another backup"), "{}", second.text());
        assert!(!other.exists());
        assert!(matches!(first.join().expect("it ends").status, 200 | 202));
    });
    eventually("the first one is done", || copy.join("backup").exists().then_some(()));
    assert_eq!(store(&copy, &["verify"]).code, Some(0));

    let cut_off = elsewhere.path().join("cut-off");
    let setup: Setup = std::thread::scope(|scope| {
        let address = gateway.admin;
        let token = fs::read_to_string(gateway.data().join("admin-token")).expect("a token");
        let body = asked(&cut_off);
        scope.spawn(move || {
            let request = Request::new(address, "POST", "/api/v1/backup");
            let bearer = format!("Bearer {}", token.trim());
            // Its gateway is killed.
            let _cut_off = request.header("Authorization", &bearer).json(&body).begin();
        });
        begun(&cut_off);
        gateway.kill()
    });
    assert!(cut_off.join("backup.incomplete").exists() && !cut_off.join("backup").exists());
    assert_refused(&store(&cut_off, &["verify"]), &["not finished"]);
    assert_refused(&store(&cut_off, &["info"]), &["not finished"]);

    let gateway = setup.start();
    let ended = backed_up(&gateway, &other);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let replayed = charge(&serve(&ledger, &other), "large-79").send();
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"));
}

#[test]
fn a_backup_for_which_there_is_no_room_leaves_nothing_behind() {
    let (ledger, disk) = (ledger(), SmallDisk::mount());
    let gateway = Gateway::in_front_of(&ledger).start();
    fill(&gateway, 20);
    let copy = disk.seen_from_outside().join("copy");
    // Before it begins.
    let ended = backed_up(&gateway, &copy);
    assert_refused(&ended, &["is full"]);
    assert!(!copy.exists());
    assert_eq!(charge(&gateway, "new").send().status, 201);

    // In the middle.
    let (_, setup) = gateway.terminate();
    let store = EmbeddedStore::open(setup.data(), EmbeddedOptions::default()).expect("whole");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let made = runtime.expect("a runtime").block_on(store.backup(&copy));
    assert!(matches!(made, Err(BackupError::Full { .. })), "{made:?}");
    assert!(!copy.exists(), "what there was of it is removed");
}

#[test]
fn a_gateway_finds_damage_in_an_idle_store_and_verify_names_it() {
    let ledger = ledger();
    let setup = Gateway::in_front_of(&ledger).store_with("verify_every = \"1s\"\n");
    let gateway = setup.start();
    assert_eq!(charge(&gateway, "damaged").send().status, 201);
    assert_eq!(charge(&gateway, "sound").send().status, 201);
    let passes = || gateway.metric("selfsame_store_verifications_total");
    let two_more = passes() + 2.0;
    eventually("a pass that began by now", || (passes() >= two_more).then_some(()));
    gateway.expect_metric("selfsame_store_damaged_records", 0.0);
    assert_eq!(gateway.admin("GET", "/readyz").send().text(), "ok\n");

    let log = gateway.data().join("records-00000001.log");
    let mut bytes = fs::read(&log).expect("the log is there");
    let text = b"1: damaged";
    let at = bytes.windows(text.len()).position(|window| window == text).expect("it is there");
    bytes[at] ^= 1;
    fs::write(&log, bytes).expect("it can be written");
    gateway.expect_metric("selfsame_store_damaged_records", 1.0);
    gateway.expect_log("verification found damage in the store");
    let ready = gateway.admin("GET", "/readyz").send();
    assert_eq!(ready.status, 200, "only one key is closed");
    assert!(ready.text().contains("found 1 damaged"), "{}", ready.text());

    assert_refused(&store(&gateway.data(), &["verify"]), &["in use by process", "verify_every"]);
    let (_, setup) = gateway.terminate();
    let found = store(&setup.data(), &["verify"]);
    assert_refused(&found, &["damaged places: 1, in 1 records", "selfsame store repair"]);
    for part in ["records-00000001.log, byte ", "record ", "checksum does not fit", "2 records"] {
        assert!(found.stdout.contains(part), "{part:?} in {found:?}");
    }
}

#[test]
fn a_store_says_what_is_in_it_and_what_room_that_takes() {
    let ledger = ledger();
    let gateway = Gateway::in_front_of(&ledger).start();
    fill(&gateway, 3);
    let (_, setup) = gateway.terminate();
    let told = store(&setup.data(), &["info"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    for part in
        ["records   3: 0 claimed, 3 completed", "last day  3 new records", "on disk", "waste"]
    {
        assert!(told.stdout.contains(part), "{part:?} in {told:?}");
    }
}
