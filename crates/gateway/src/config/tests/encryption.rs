//! `[encryption]` and its file: what loads, and what is said where.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use selfsame::seal::Keyring;
use tempfile::TempDir;

use selfsame::Completing;

use super::load;
use crate::config::{Config, Mistakes};

fn load_with(keys: &str, mode: u32, setting: &str) -> Result<Config, Mistakes> {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("keys");
    fs::write(&path, keys).expect("ours");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
    let setting = setting.replace('$', &folder.path().display().to_string());
    load(&format!("upstream = 'http://a'\n[encryption]\n{setting}"))
}

#[test]
fn the_keys_are_read_with_the_configuration() {
    let line = Keyring::new_line("2026-11").expect("a fitting id");
    let config = load_with(&line, 0o600, "key_file = '$/keys'").expect("valid");
    assert_eq!(config.encryption, Some(Keyring::parse(&line).expect("valid")));
    assert!(!format!("{config:?}").contains(&line["2026-11 ".len()..]));
    assert_eq!(load("upstream = 'http://a'").expect("valid").encryption, None);
}

#[test]
fn a_key_file_that_is_of_no_use_is_told_with_its_line() {
    let line = Keyring::new_line("a").expect("a fitting id");
    let table = [
        (&line[..], 0o600, "", "2:1: encryption.key_file: is missing; name a file"),
        (&line, 0o600, "key_file = 5", "3:12: encryption.key_file: expected a path"),
        (&line, 0o600, "key_file = '$/gone'", "No such file"),
        (&line, 0o644, "key_file = '$/keys'", "can be read or written by everybody; run chmod"),
        ("# none", 0o600, "key_file = '$/keys'", "holds no key; add the line that"),
        ("a\n", 0o600, "key_file = '$/keys'", "line 1: expected an id, a space and a key"),
        ("a AAAA\n", 0o600, "key_file = '$/keys'", "line 1: the key is not 32 bytes in base64"),
    ];
    for (keys, mode, setting, reason) in table {
        let said = load_with(keys, mode, setting).expect_err("a mistake").to_string();
        assert!(said.contains(": encryption.key_file: "), "{said}");
        assert!(said.contains(reason) && said.ends_with("\n1 mistake"), "{said}");
    }
}

#[test]
fn requests_are_kept_where_they_may_run_again_and_are_encrypted() {
    let line = Keyring::new_line("a").expect("a fitting id");
    let settings = "key_file = '$/keys'\n[idempotency]\ncomplete_abandoned = true\n\
                    completer_after = '10m'\n\
                    [[route]]\nmatch = '/a'\ncompleter_attempts = 3\n\
                    completer_headers = ['X-Account']\n\
                    [[route]]\nmatch = '/b'\nrecover = 'hold'\n\
                    [[route]]\nmatch = '/c'\nrecover = 'probe'\nprobe = 'GET /keys/{key}'\n\
                    [[route]]\nmatch = '/d'\ncomplete_abandoned = false\ncompleter_after = '1s'";
    let config = load_with(&line, 0o600, settings).expect("valid");
    let after = Duration::from_secs(600);
    let default = Some(Completing { after, ..Completing::default() });
    assert_eq!(config.defaults.completing, default);
    assert_eq!(config.completes_after(), Some(after));
    let completing: Vec<_> = config.routes.into_iter().map(|r| r.settings.completing).collect();
    let headers = vec!["x-account".parse().expect("a name")];
    assert_eq!(completing, [Some(Completing { after, attempts: 3, headers }), None, default, None]);

    let plain = load("upstream = 'http://a'\n[[route]]\nmatch = '/'\ncomplete_abandoned = true");
    let said = plain.expect_err("nothing encrypts them").to_string();
    assert!(said.contains("4:22: route.complete_abandoned: requests are only kept"), "{said}");
}
