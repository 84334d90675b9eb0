//! The admin listener over TLS: for operators on other machines, by the command line and by curl.

use std::process::{Command, Output};

use crate::harness::{Ended, Gateway, Ledger, binary, eventually, run_to_end};
use crate::tls::Files;

fn admin_tls(files: &Files) -> String {
    let (cert, key) = (files.path("server.pem"), files.path("server.key"));
    format!("[admin_tls]\ncert = {cert:?}\nkey = {key:?}\n")
}

/// `selfsame keys show`, with these flags besides.
fn show(gateway: &Gateway, files: &Files, flags: &[&str]) -> Output {
    let mut command = binary();
    command.args(["keys", "show", "k"]);
    command.arg("--admin").arg(format!("https://localhost:{}", gateway.admin.port()));
    command.arg("--token-file").arg(gateway.data().join("admin-token"));
    command.arg("--admin-ca").arg(files.path("ca.pem")).args(flags);
    command.output().expect("the command runs")
}

fn curl(gateway: &Gateway, flags: &[&str]) -> Ended {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "--max-time", "20"]).args(flags);
    curl.arg(format!("https://localhost:{}/healthz", gateway.admin.port()));
    run_to_end(curl)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn operators_connect_over_tls_and_not_otherwise() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let gateway = Gateway::in_front_of(&ledger).with(&admin_tls(&files)).start();
    assert_eq!(gateway.post("/charges").key("k").json("{}").send().status, 201);
    let shown = show(&gateway, &files, &[]);
    assert!(text(&shown.stdout).contains("completed"), "{shown:?}");
    let ca = files.path("ca.pem").display().to_string();
    let health = curl(&gateway, &["--cacert", &ca]);
    // Nothing else is offered.
    assert!(health.stdout.starts_with("HTTP/1.1 200"), "{health:?}");

    // In the clear, or to who does not know the authority, nothing is said.
    assert!(gateway.admin("GET", "/healthz").try_send().is_err());
    let other = Files::new();
    let refused = show(&gateway, &other, &[]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(text(&refused.stderr).contains("does not answer"), "{refused:?}");
}

#[test]
fn the_admin_listener_may_ask_for_certificates() {
    let (ledger, files) = (Ledger::start(), Files::new());
    files.keep_signed("ann", &files.authority.client("ann"));
    let settings = format!("{}client_ca = {:?}\n", admin_tls(&files), files.path("ca.pem"));
    let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
    assert_eq!(gateway.post("/charges").key("k").json("{}").send().status, 201);
    assert!(!show(&gateway, &files, &[]).status.success());
    let path = |name: &str| files.path(name).display().to_string();
    let flags = ["--admin-cert", &path("ann.pem"), "--admin-key", &path("ann.key")];
    let shown = show(&gateway, &files, &flags);
    assert!(text(&shown.stdout).contains("completed"), "{shown:?}");
}

#[test]
fn a_new_certificate_of_the_admin_listener_is_shown_once_it_is_read_again() {
    let (ledger, files, next) = (Ledger::start(), Files::new(), Files::new());
    let gateway = Gateway::in_front_of(&ledger).with(&admin_tls(&files)).start();
    let ca = next.path("ca.pem").display().to_string();
    assert!(!curl(&gateway, &["--cacert", &ca]).stdout.contains("200"));
    for name in ["server.pem", "server.key"] {
        std::fs::copy(next.path(name), files.path(name)).expect("copied");
    }
    gateway.signal("HUP");
    let health = eventually("the new one is shown", || {
        Some(curl(&gateway, &["--cacert", &ca])).filter(|ended| ended.stdout.contains("200"))
    });
    assert!(health.stdout.starts_with("HTTP/1.1 200"), "{health:?}");
}

#[test]
fn an_admin_listener_in_the_clear_beyond_loopback_is_warned_of() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let files = Files::new();
    let check = |more: &str| {
        let path = folder.path().join("selfsame.toml");
        let written = format!(
            "upstream = 'http://a'\n[admin]\nlisten = '0.0.0.0:9090'\ntoken_file = 'token'\n{more}"
        );
        std::fs::write(&path, written).expect("written");
        let checked = binary().args(["config", "check"]).arg(path).output().expect("it runs");
        assert!(checked.status.success(), "{checked:?}");
        text(&checked.stderr)
    };
    let warned = check("");
    assert!(warned.contains("0.0.0.0:9090 can be reached from other machines without TLS"));
    assert_eq!(check(&admin_tls(&files)), "");
}
