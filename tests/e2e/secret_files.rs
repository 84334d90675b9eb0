//! Files with secrets that every user of the machine has access to: a start and `config check` warn
//! of each.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Gateway, Ledger, Setup, binary, run_to_end};
use crate::tls::Files;
use crate::tokens;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const WARNING: &str = "every user of this machine has access to this secret";

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("the file is ours");
}

/// A gateway with a secret, a token, a shared key of JSON Web Tokens, and keys for clients,
/// operators and upstreams; and these files, with their settings.
fn with_secrets(ledger: &Ledger, files: &Files) -> (Setup, [(&'static str, PathBuf); 6]) {
    let setup = Gateway::in_front_of(ledger).over("https");
    std::fs::create_dir_all(setup.data()).expect("made");
    let [secret, token, shared] =
        ["secret", "admin-token", "jwt-key"].map(|name| setup.data().join(name));
    for file in [&secret, &token, &shared] {
        std::fs::write(file, SECRET).expect("written");
    }
    let [public, admin, upstream] = ["public", "admin", "upstream"].map(|name| {
        files.keep_signed(name, &files.authority.server("localhost"));
        files.path(&format!("{name}.key"))
    });
    let cert = |key: &Path| key.with_extension("pem");
    let settings = format!(
        "secret_file = {secret:?}\n\
         [tls]\ncert = {:?}\nkey = {public:?}\n\
         [admin_tls]\ncert = {:?}\nkey = {admin:?}\n\
         [upstream_tls]\nca = {:?}\ncert = {:?}\nkey = {upstream:?}\n\
         [jwt]\nkey_file = {shared:?}\nalgorithms = [\"HS256\"]\nissuer = \"a\"\naudience = \"b\"\n\
         [idempotency]\ntenant = \"jwt:sub\"\n",
        cert(&public),
        cert(&admin),
        files.path("ca.pem"),
        cert(&upstream),
    );
    let secrets = [
        ("secret_file", secret),
        ("admin.token_file", token),
        ("tls.key", public),
        ("admin_tls.key", admin),
        ("upstream_tls.key", upstream),
        ("jwt.key_file", shared),
    ];
    (setup.with(&settings), secrets)
}

/// The warnings that `config check` prints.
fn warnings_of_check(setup: &Setup) -> Vec<String> {
    let mut command = binary();
    command.args(["config", "check"]).arg(setup.write_config());
    let ended = run_to_end(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.stderr.contains(SECRET), "a secret is not shown");
    ended.stderr.lines().map(str::to_owned).collect()
}

/// The setting and path of each file that the log warns of.
fn warned_of(log: &str) -> Vec<(String, PathBuf)> {
    let lines = log.lines().filter(|line| line.contains(WARNING));
    let text = |line: &Value, name: &str| line[name].as_str().expect("it is named").to_owned();
    lines
        .map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(line["level"], "WARN", "{line}");
            (text(&line, "setting"), text(&line, "path").into())
        })
        .collect()
}

#[test]
fn secrets_that_everybody_has_access_to_are_warned_about() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let (mut setup, secrets) = with_secrets(&ledger, &files);
    // To read a secret is enough, and so is to replace it.
    for mode in [0o644, 0o604, 0o602] {
        for (_, path) in &secrets {
            set_mode(path, mode);
        }
        let checked = warnings_of_check(&setup);
        let (log, stopped) = setup.start().stopped();
        setup = stopped;
        let warned = warned_of(&log);
        for (setting, path) in &secrets {
            let is_warned_of = warned.contains(&((*setting).to_owned(), path.clone()));
            assert!(is_warned_of, "{mode:o} {setting} {path:?}: {warned:?}");
            let expected =
                format!("selfsame: warning: {setting}: {}: {WARNING}: chmod 600", path.display());
            assert!(checked.contains(&expected), "{mode:o} {expected}: {checked:?}");
        }
        assert_eq!((warned.len(), checked.len()), (secrets.len(), secrets.len()), "{warned:?}");
        assert!(!log.contains(SECRET), "a secret is not shown");
    }
}

#[test]
fn secrets_of_their_owner_and_group_are_not_warned_about() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let (mut setup, secrets) = with_secrets(&ledger, &files);
    for mode in [0o600, 0o660] {
        for (_, path) in &secrets {
            set_mode(path, mode);
        }
        assert!(warnings_of_check(&setup).is_empty(), "{mode:o}");
        let (log, stopped) = setup.start().stopped();
        setup = stopped;
        assert!(warned_of(&log).is_empty(), "{mode:o}: {log}");
    }
}

#[test]
fn a_configuration_with_a_password_is_warned_about() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("selfsame.toml");
    let url = format!("postgres://me:{SECRET}@database/keys");
    let text = format!("upstream = \"http://api\"\n[store]\nurl = {url:?}\n");
    std::fs::write(&path, text).expect("written");
    let check = |mode| {
        set_mode(&path, mode);
        let mut command = binary();
        command.args(["config", "check"]).arg(&path);
        let ended = run_to_end(command);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.stderr.contains(SECRET), "a secret is not shown");
        ended.stderr
    };
    let warning = format!("store.url: {}: {WARNING}: chmod 600", path.display());
    assert!(check(0o644).contains(&warning));
    assert!(!check(0o640).contains(WARNING));
}

#[test]
fn keys_that_only_verify_are_no_secrets() {
    let ledger = Ledger::start();
    let (setup, folder) = tokens::setup(&ledger, &tokens::Issuer::new());
    set_mode(&folder.path().join("issuer.pem"), 0o644);
    assert!(warnings_of_check(&setup).is_empty());
    let (log, _setup) = setup.start().stopped();
    assert!(warned_of(&log).is_empty(), "{log}");
}

#[test]
fn a_reload_warns_of_secrets_as_a_start_does() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let (setup, secrets) = with_secrets(&ledger, &files);
    for (_, path) in &secrets {
        set_mode(path, 0o600);
    }
    let gateway = setup.start();
    let (setting, path) = &secrets[2];
    set_mode(path, 0o644);
    gateway.signal("HUP");
    gateway.expect_log("the configuration was read again");
    let warned = warned_of(&gateway.whole_log());
    assert_eq!(warned, [((*setting).to_owned(), path.clone())]);
}
