//! `[tls]` and its files: what loads, and what is said where.

use selfsame_test_certificates::{Authority, Signed};
use tempfile::TempDir;

use super::load;
use crate::config::{ClientAuth, Config, Mistakes};

/// A folder with a server's files, and an authority for clients.
fn folder() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let authority = Authority::new("ours");
    let Signed { certificate, key } = authority.server("a.example");
    let files = [
        ("cert.pem", certificate),
        ("key.pem", key),
        ("other.pem", authority.server("a.example").key),
        ("ca.pem", authority.pem()),
        ("nothing.pem", "not PEM".to_owned()),
        ("half.pem", "-----BEGIN CERTIFICATE-----\nAAAA".to_owned()),
    ];
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("ours");
    }
    folder
}

fn load_in(folder: &TempDir, tls: &str) -> Result<Config, Mistakes> {
    let path = folder.path().display().to_string();
    load(&format!("upstream = 'http://a'\n[tls]\n{}", tls.replace('$', &path)))
}

#[test]
fn certificates_are_asked_for_where_an_authority_is_named() {
    let folder = folder();
    let files = "cert = '$/cert.pem'\nkey = '$/key.pem'\n";
    let clients = |more: &str| {
        let config = load_in(&folder, &format!("{files}{more}")).expect("valid");
        config.tls.expect("said").clients.map(|clients| clients.auth)
    };
    assert_eq!(clients(""), None);
    assert_eq!(clients("client_ca = '$/ca.pem'"), Some(ClientAuth::Required));
    let optional = "client_ca = '$/ca.pem'\nclient_auth = 'optional'";
    assert_eq!(clients(optional), Some(ClientAuth::Optional));
    let tenant = "client_ca = '$/ca.pem'\n[idempotency]\ntenant = 'mtls'";
    assert_eq!(clients(tenant), Some(ClientAuth::Required));
}

#[test]
fn the_admin_listener_has_files_of_its_own() {
    let folder = folder();
    let load_with = |tls: &str| {
        let path = folder.path().display().to_string();
        load(&format!("upstream = 'http://a'\n[admin_tls]\n{}", tls.replace('$', &path)))
    };
    let config = load_with("cert = '$/cert.pem'\nkey = '$/key.pem'").expect("valid");
    assert!(config.admin_tls.is_some() && config.tls.is_none());
    let table = [
        ("cert = '$/cert.pem'", "2:1: admin_tls.key: is missing"),
        ("cert = '$/gone.pem'\nkey = '$/key.pem'", "3:8: admin_tls.cert: "),
        ("cert = '$/cert.pem'\nkey = '$/other.pem'", "4:7: admin_tls.key: "),
    ];
    for (tls, expected) in table {
        let mistakes = load_with(tls).expect_err("a mistake").to_string();
        assert!(mistakes.contains(expected), "{mistakes}\n{expected}");
    }
}

#[test]
fn only_what_others_can_reach_in_the_clear_is_warned_of() {
    let warned = |listen: &str| {
        let text =
            format!("upstream = 'http://a'\n[admin]\nlisten = '{listen}'\ntoken_file = 't'\n");
        load(&text).expect("valid").admin_warning().is_some()
    };
    assert_eq!(
        ["127.0.0.1:9", "[::1]:9", "0.0.0.0:9", "10.0.0.1:9"].map(warned),
        [false, false, true, true]
    );
}

#[test]
fn an_upstream_over_tls_may_have_its_own_authority_and_ask_who_we_are() {
    let folder = folder();
    let load_with = |upstream: &str, tls: &str| {
        let path = folder.path().display().to_string();
        load(&format!("upstream = '{upstream}'\n[upstream_tls]\n{}", tls.replace('$', &path)))
    };
    let whole = "ca = '$/ca.pem'\ncert = '$/cert.pem'\nkey = '$/key.pem'\nserver_name = 'a.b'";
    let tls = load_with("https://a", whole).expect("valid").upstream_tls;
    assert!(tls.ca.is_some() && tls.identity.is_some() && tls.server_name.is_some());
    let table = [
        ("https://a", "ca = '$/gone.pem'", "3:6: upstream_tls.ca: "),
        (
            "https://a",
            "ca = '$/ca.pem'\ncert = '$/cert.pem'",
            "4:8: upstream_tls.cert: a certificate and",
        ),
        ("h2://a", &whole.replace("key.pem", "other.pem"), "5:7: upstream_tls.key: "),
        (
            "https://a",
            "ca = '$/ca.pem'\nserver_name = 'a b'",
            "4:15: upstream_tls.server_name: exp",
        ),
        ("http://a", "ca = '$/ca.pem'", "3:6: upstream_tls.ca: no upstream is spoken to over TLS"),
    ];
    for (upstream, tls, expected) in table {
        let said = load_with(upstream, tls).expect_err("a mistake").to_string();
        assert!(said.starts_with(&format!("f.toml:{expected}")), "{said}");
        assert!(said.ends_with("\n1 mistake"), "{said}");
    }
}

#[test]
fn all_files_that_are_of_no_use_are_told_at_once() {
    let folder = folder();
    let gone = "cert = '$/a.pem'\nkey = '$/b.pem'\nclient_ca = '$/c.pem'";
    let said = load_in(&folder, gone).expect_err("three mistakes").to_string();
    for place in ["3:8: tls.cert: ", "4:7: tls.key: ", "5:13: tls.client_ca: "] {
        assert!(said.contains(&format!("f.toml:{place}")), "{said}");
    }
    assert!(said.ends_with("\n3 mistakes"), "{said}");
    let path = folder.path().display().to_string();
    let upstream = "upstream = 'https://a'\n[upstream_tls]\nca = '$/a.pem'\ncert = '$/b.pem'\n\
        key = '$/c.pem'";
    let said = load(&upstream.replace('$', &path)).expect_err("three mistakes").to_string();
    assert!(said.ends_with("\n3 mistakes"), "{said}");
}

#[test]
fn a_wrong_key_file_for_tokens_is_blamed_and_not_the_algorithms() {
    let folder = folder();
    let load = |file: &str, algorithms: &str| {
        let path = folder.path().join(file).display().to_string();
        load(&format!(
            "upstream = 'http://a'\n[jwt]\nkey_file = '{path}'\nissuer = 'a'\naudience = 'b'\n\
             algorithms = {algorithms}"
        ))
        .expect_err("a mistake")
        .to_string()
    };
    for file in ["gone.pem", "nothing.pem", "cert.pem"] {
        let said = load(file, "['RS256']");
        assert!(said.starts_with("f.toml:3:12: jwt.key_file: ") && said.contains(file), "{said}");
    }
    let said = load("cert.pem", "['RS256', 'ES256']");
    assert!(said.starts_with("f.toml:6:14: jwt.algorithms: "), "{said}");
}

#[test]
fn a_file_that_is_of_no_use_is_told_with_its_line() {
    let folder = folder();
    let whole = "cert = '$/cert.pem'\nkey = '$/key.pem'";
    let table = [
        ("cert = '$/gone.pem'\nkey = '$/key.pem'".to_owned(), "3:8: tls.cert: ", "No such file"),
        ("cert = '$'\nkey = '$/key.pem'".to_owned(), "3:8: tls.cert: ", "Is a directory"),
        (whole.replace("cert.pem", "nothing.pem"), "3:8: tls.cert: ", "there is no certificate"),
        (whole.replace("cert.pem", "half.pem"), "3:8: tls.cert: ", "half.pem: "),
        (whole.replace("key.pem", "gone.pem"), "4:7: tls.key: ", "No such file"),
        (whole.replace("key.pem", "cert.pem"), "4:7: tls.key: ", "there is no private key"),
        (whole.replace("key.pem", "other.pem"), "4:7: tls.key: ", "is not the key of the cert"),
        (format!("{whole}\nclient_ca = '$/nothing.pem'"), "5:13: tls.client_ca: ", "there is no"),
        (
            format!("{whole}\nclient_auth = 'optional'"),
            "5:15: tls.client_auth: ",
            "needs client_ca",
        ),
        (format!("{whole}\nclient_auth = 'no'"), "5:15: tls.client_auth: ", "\"optional\", found"),
    ];
    for (tls, place, reason) in table {
        let said = load_in(&folder, &tls).expect_err("a mistake").to_string();
        assert!(said.starts_with(&format!("f.toml:{place}")), "{said}");
        assert!(said.contains(reason) && said.ends_with("\n1 mistake"), "{said}");
    }
}
