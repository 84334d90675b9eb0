//! Encrypted connections from clients: what curl makes of them, and whom a certificate stands for.

use std::fs::Permissions;
use std::io::{BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use selfsame_test_certificates::{Authority, Signed};
use tempfile::TempDir;

use crate::harness::{Ended, Gateway, Ledger, PATIENCE, Request, Setup, binary, run_to_end};

/// Files of an authority, of a server that it vouches for, and of clients.
pub(crate) struct Files {
    pub(crate) authority: Authority,
    folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        let files = Self {
            authority: Authority::new("ours"),
            folder: TempDir::new().expect("a temporary folder"),
        };
        files.keep("ca.pem", &files.authority.pem());
        files.keep_signed("server", &files.authority.server("localhost"));
        files
    }

    pub(crate) fn keep(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("the folder is ours");
        path
    }

    /// As `NAME.pem` and `NAME.key`.
    pub(crate) fn keep_signed(&self, name: &str, signed: &Signed) {
        self.keep(&format!("{name}.pem"), &signed.certificate);
        let key = self.keep(&format!("{name}.key"), &signed.key);
        std::fs::set_permissions(key, Permissions::from_mode(0o600)).expect("the file is ours");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The table of a gateway that shows the server's certificate.
    fn tls(&self) -> String {
        let (cert, key) = (self.path("server.pem"), self.path("server.key"));
        format!("[tls]\ncert = {cert:?}\nkey = {key:?}\n")
    }

    fn asking_for_certificates(&self, auth: &str) -> String {
        let ca = self.path("ca.pem");
        format!("{}client_ca = {ca:?}\nclient_auth = \"{auth}\"\n", self.tls())
    }

    /// A payment by curl, with these flags.
    fn pay(&self, gateway: &Gateway, key: &str, flags: &[&str]) -> Ended {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-i", "--max-time", "20", "--cacert"])
            .arg(self.path("ca.pem"))
            .args(flags)
            .args(["-H", &format!("Idempotency-Key: {key}"), "--json", r#"{"amount":10}"#])
            .arg(format!("https://localhost:{}/charges", gateway.address.port()));
        run_to_end(curl)
    }

    fn pay_as(&self, gateway: &Gateway, key: &str, name: &str) -> Ended {
        let path = |path: PathBuf| path.display().to_string();
        let (cert, key_file) =
            (path(self.path(&format!("{name}.pem"))), path(self.path(&format!("{name}.key"))));
        self.pay(gateway, key, &["--cert", &cert, "--key", &key_file])
    }
}

fn before(ledger: &Ledger, settings: &str) -> Setup {
    Gateway::in_front_of(ledger).with(settings)
}

#[test]
fn curl_pays_once_over_either_http() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let gateway = before(&ledger, &files.tls()).start();
    for (flags, version) in [(["--http1.1"], "HTTP/1.1"), (["--http2"], "HTTP/2")] {
        for tls in ["--tls-max 1.2", "--tlsv1.3"] {
            let flags: Vec<&str> = flags.into_iter().chain(tls.split(' ')).collect();
            let key = format!("{version}{tls}").replace(' ', "");
            let first = files.pay(&gateway, &key, &flags);
            assert!(first.stdout.starts_with(&format!("{version} 201")), "{first:?}");
            let retry = files.pay(&gateway, &key, &flags);
            assert!(retry.stdout.contains("idempotent-replayed: true"), "{retry:?}");
            assert_eq!(ledger.effects(&key), 1);
        }
    }
    gateway.expect_metric("selfsame_tls_failures_total", 0.0);
}

#[test]
fn a_client_that_says_nothing_or_nonsense_holds_nobody_up() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let gateway = before(&ledger, &files.tls()).start();
    let silent: Vec<_> =
        (0..20).map(|_| TcpStream::connect(gateway.address).expect("a connection")).collect();
    let mut clear = gateway.post("/charges").key("clear").json("{}").begin();
    clear.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut said = Vec::new();
    let _reset = clear.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP"), "{}", said.escape_ascii());
    let paid = files.pay(&gateway, "paid", &[]);
    assert!(paid.stdout.starts_with("HTTP/2 201"), "{paid:?}");
    gateway.expect_metric("selfsame_tls_failures_total", 1.0);
    assert_eq!(ledger.all().len(), 1);
    drop(silent);
    gateway.expect_log("a TLS handshake failed");
}

#[test]
fn a_stop_does_not_wait_for_handshakes() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let gateway = before(&ledger, &files.tls()).start();
    let _silent = TcpStream::connect(gateway.address).expect("a connection");
    let (status, _) = gateway.terminate();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn certificates_are_asked_for_and_must_be_good() {
    let (ledger, files) = (Ledger::start(), Files::new());
    files.keep_signed("ann", &files.authority.client("ann"));
    files.keep_signed("stranger", &Authority::new("another").client("ann"));
    for (auth, without_one) in [("required", false), ("optional", true)] {
        let gateway = before(&ledger, &files.asking_for_certificates(auth)).start();
        assert_eq!(files.pay_as(&gateway, auth, "ann").code, Some(0), "{auth}");
        assert_ne!(files.pay_as(&gateway, auth, "stranger").code, Some(0), "{auth}");
        assert_eq!(files.pay(&gateway, auth, &[]).code == Some(0), without_one, "{auth}");
    }
}

#[test]
fn a_certificate_without_authorization_says_not_enough() {
    let (ledger, files) = (Ledger::start(), Files::new());
    for name in ["ann", "bob"] {
        files.keep_signed(name, &files.authority.client(name));
    }
    let settings = files.asking_for_certificates("optional");
    let gateway = before(&ledger, &settings).start();
    for name in ["ann", "bob"] {
        let refused = files.pay_as(&gateway, "shared", name);
        assert!(refused.stdout.starts_with("HTTP/2 401"), "{refused:?}");
        assert!(refused.stdout.contains(r#"tenant = \"mtls\""#), "{refused:?}");
    }
    assert_eq!(ledger.effects("shared"), 0);
    let anonymous = files.pay(&gateway, "shared", &[]);
    assert!(anonymous.stdout.starts_with("HTTP/2 201"), "{anonymous:?}");

    // A proxy's certificate is none of its callers'.
    let behind = format!("trusted_proxies = [\"127.0.0.0/8\"]\n{settings}");
    let gateway = before(&ledger, &behind).start();
    let passed = files.pay_as(&gateway, "through", "ann");
    assert!(passed.stdout.starts_with("HTTP/2 201"), "{passed:?}");
}

#[test]
fn a_certificate_tells_whose_key_it_is() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let settings = files.asking_for_certificates("optional");
    let settings = format!("{settings}[idempotency]\ntenant = \"mtls\"\n");
    let gateway = before(&ledger, &settings).start();
    let known = [("ann", "Shop"), ("renewed", "Shop"), ("bob", "Shop"), ("ann-elsewhere", "Bank")];
    for (name, organisation) in known {
        let user = match name {
            "bob" => "bob",
            _ => "ann",
        };
        files.keep_signed(name, &files.authority.client_of(organisation, user));
    }
    files.keep_signed("nobody", &files.authority.nameless_client());

    let replayed = "idempotent-replayed: true";
    let first = files.pay_as(&gateway, "shared", "ann");
    assert!(first.stdout.starts_with("HTTP/2 201"), "{first:?}");
    assert!(files.pay_as(&gateway, "shared", "ann").stdout.contains(replayed));
    assert!(files.pay_as(&gateway, "shared", "renewed").stdout.contains(replayed));
    for stranger in ["bob", "ann-elsewhere"] {
        let other = files.pay_as(&gateway, "shared", stranger);
        assert!(other.stdout.starts_with("HTTP/2 201"), "{other:?}");
        assert!(!other.stdout.contains(replayed), "{other:?}");
    }
    assert_eq!(ledger.effects("shared"), 3);
    let refused = [files.pay(&gateway, "shared", &[]), files.pay_as(&gateway, "shared", "nobody")];
    for refused in refused {
        assert!(refused.stdout.starts_with("HTTP/2 401"), "{refused:?}");
        assert!(refused.stdout.contains("#missing-tenant"), "{refused:?}");
        assert!(refused.stdout.contains("www-authenticate: ClientCertificate"), "{refused:?}");
    }
    let shown = gateway.keys(&["show", "shared"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("CN=ann,O=Shop; issuer CN=ours"), "{shown}");
}

#[test]
fn files_are_read_again_with_the_configuration() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let gateway = before(&ledger, &files.tls()).start();
    files.keep_signed("server", &files.authority.server("elsewhere.example"));
    assert_eq!(files.pay(&gateway, "before", &[]).code, Some(0));
    assert_eq!(gateway.reload().status, 200);
    assert_ne!(files.pay(&gateway, "other-name", &[]).code, Some(0));
    files.keep("server.key", "not a key");
    assert_eq!(gateway.reload().status, 422);
    files.keep_signed("server", &files.authority.server("localhost"));
    assert_eq!(gateway.reload().status, 200);
    assert_eq!(files.pay(&gateway, "after", &[]).code, Some(0));
}

/// A client that trusts the authority, and makes a whole handshake each time.
fn client(files: &Files) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let pem = files.authority.pem();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

#[test]
fn a_hundred_certificates_under_load_fail_no_request() {
    const CONNECTIONS: usize = 64;
    const CERTIFICATES: usize = 100;
    let (ledger, files) = (Ledger::start(), Files::new());
    // All clients have one address.
    let unlimited = "[limits]\nmax_new_keys_per_address = \"off\"\n";
    let gateway = before(&ledger, &files.tls()).with(unlimited).start();
    let (is_over, handshakes) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (address, config) = (gateway.address, client(&files));
    let last = std::thread::scope(|threads| {
        for client in 0..CONNECTIONS {
            let (is_over, handshakes, config) = (&is_over, &handshakes, config.clone());
            threads.spawn(move || {
                for number in 0.. {
                    let key = format!("{client}-{number}");
                    let request = Request::new(address, "POST", "/charges").key(&key).json("{}");
                    let name = ServerName::try_from("localhost").expect("a name");
                    let tls = ClientConnection::new(config.clone(), name).expect("a client");
                    let stream = request.open().into_inner();
                    let mut connection = BufReader::new(StreamOwned::new(tls, stream));
                    let first = request.send_on(&mut connection).expect("an answer");
                    assert_eq!(first.status, 201, "{key}: {first:?}");
                    handshakes.fetch_add(1, Ordering::SeqCst);
                    // The connection outlives the certificate it began with.
                    request.send_on(&mut connection).expect("an answer").replays(&first);
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                }
            });
        }
        let mut last = None;
        for _ in 0..CERTIFICATES {
            let signed = files.authority.server("localhost");
            files.keep_signed("server", &signed);
            assert_eq!(gateway.reload().status, 200);
            last = Some(signed);
        }
        is_over.store(true, Ordering::SeqCst);
        last.expect("there were some")
    });
    assert!(handshakes.into_inner() >= CONNECTIONS);
    gateway.expect_metric("selfsame_tls_failures_total", 0.0);
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(config, name).expect("a client");
    let mut stream = TcpStream::connect(address).expect("a connection");
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).expect("a handshake");
    }
    let shown = tls.peer_certificates().and_then(<[_]>::first).expect("it was shown one");
    let expected = CertificateDer::from_pem_slice(last.certificate.as_bytes()).expect("PEM");
    assert_eq!(shown, &expected, "the certificate is the last one");
}

#[test]
fn a_certificate_that_is_out_of_date_is_warned_about() {
    let (ledger, files) = (Ledger::start(), Files::new());
    files.keep_signed("server", &files.authority.expired_server("localhost"));
    let setup = before(&ledger, &files.tls());
    let checked = check(&setup.write_config());
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stderr.contains("expired at 2020-12-31T00:00:00Z"), "{checked:?}");
    let gateway = setup.start();
    gateway.expect_log("expired at 2020-12-31T00:00:00Z");
    assert_ne!(files.pay(&gateway, "late", &[]).code, Some(0));
}

#[test]
fn files_that_are_of_no_use_are_told_before_anything_starts() {
    let (ledger, files) = (Ledger::start(), Files::new());
    files.keep("server.key", &files.authority.server("localhost").key);
    let setup = before(&ledger, &files.tls());
    let config = setup.write_config();
    let mut serve = binary();
    serve.arg("serve").arg("--config").arg(&config);
    for ended in [check(&config), run_to_end(serve)] {
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(":5:7: tls.key: "), "{ended:?}");
        assert!(ended.stderr.contains("is not the key of the certificate in"), "{ended:?}");
    }
}

fn check(config: &Path) -> Ended {
    let mut command = binary();
    command.args(["config", "check"]).arg(config);
    run_to_end(command)
}
