//! An upstream that is spoken to over TLS: who it must be, who we are to it, and what a connection that
//! does not come about means for a key.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use selfsame_test_certificates::{Authority, Signed};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::harness::{Gateway, Ledger, Setup, reply};
use crate::tls::Files;

/// Encrypts what comes for an upstream, as a server of its own would.
struct Front {
    address: SocketAddr,
    _runtime: Runtime,
}

struct Shown<'a> {
    own: &'a Signed,
    /// Whose certificates clients must show.
    clients: Option<&'a Authority>,
    version: &'static SupportedProtocolVersion,
    protocol: &'static [u8],
}

impl<'a> Shown<'a> {
    fn new(own: &'a Signed) -> Self {
        Self { own, clients: None, version: &TLS13, protocol: b"http/1.1" }
    }

    fn config(&self) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[self.version])
            .expect("a version");
        let builder = match self.clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                let root = CertificateDer::from_pem_slice(authority.pem().as_bytes());
                roots.add(root.expect("a certificate")).expect("an authority");
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().expect("an authority"))
            }
        };
        let chain = CertificateDer::from_pem_slice(self.own.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(self.own.key.as_bytes()).expect("a key");
        let mut config = builder.with_single_cert(vec![chain.expect("one")], key).expect("a pair");
        config.alpn_protocols = vec![self.protocol.to_vec()];
        config
    }

    fn before(&self, upstream: SocketAddr) -> Front {
        let acceptor = TlsAcceptor::from(Arc::new(self.config()));
        let runtime = Runtime::new().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let handle = runtime.handle().clone();
        runtime.handle().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                handle.spawn(async move {
                    let Ok(mut client) = acceptor.accept(stream).await else { return };
                    let mut server = TcpStream::connect(upstream).await.expect("it listens");
                    let _gone = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Front { address, _runtime: runtime }
    }
}

impl Front {
    fn behind(&self, scheme: &str, settings: &str) -> Setup {
        let host = format!("localhost:{}", self.address.port());
        // The strictest settings: what was never sent is not held.
        let strict = "[idempotency]\nrecover = \"hold\"\nserver_errors = \"hold\"\n";
        Gateway::before_host(&host).over(scheme).with(&format!("{settings}{strict}"))
    }
}

/// `[upstream_tls]` with the authority of `files`, and more.
fn trusting(files: &Files, more: &str) -> String {
    format!("[upstream_tls]\nca = {:?}\n{more}\n", files.path("ca.pem"))
}

fn as_client(files: &Files, name: &str) -> String {
    let path = |end: &str| files.path(&format!("{name}.{end}"));
    trusting(files, &format!("cert = {:?}\nkey = {:?}", path("pem"), path("key")))
}

#[test]
fn a_request_reaches_the_upstream_that_is_meant() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let own = files.authority.server("localhost");
    for version in [&TLS12, &TLS13] {
        let front = Shown { version, ..Shown::new(&own) }.before(ledger.address());
        let gateway = front.behind("https", &trusting(&files, "")).start();
        let request = gateway.post("/charges").key("paid").json("{}");
        let first = request.send();
        assert_eq!(first.status, 201);
        request.send().replays(&first);
    }
    assert_eq!(ledger.effects("paid"), 2, "once for each gateway");
}

#[test]
fn an_upstream_that_is_not_the_one_leaves_the_key_free() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let elsewhere = files.authority.server("elsewhere.example");
    let strange = Authority::new("another").server("localhost");
    let expired = files.authority.expired_server("localhost");
    for own in [&elsewhere, &strange, &expired] {
        let front = Shown::new(own).before(ledger.address());
        let gateway = front.behind("https", &trusting(&files, "")).start();
        for _ in 0..2 {
            gateway.post("/charges").key("k").json("{}").send().refused("upstream-unreachable");
        }
    }
    // One that does not encrypt at all, and one that is silent.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    for address in [ledger.address(), silent.local_addr().expect("bound")] {
        let settings = format!("connect_timeout = \"500ms\"\n{}", trusting(&files, ""));
        let gateway = Gateway::before(address).over("https").with(&settings).start();
        gateway.post("/charges").key("k").json("{}").send().refused("upstream-unreachable");
    }
    assert_eq!(ledger.effects("k"), 0);

    let front = Shown::new(&elsewhere).before(ledger.address());
    let named = trusting(&files, "server_name = \"elsewhere.example\"");
    let gateway = front.behind("https", &named).start();
    assert_eq!(gateway.post("/charges").key("k").json("{}").send().status, 201);
}

#[test]
fn a_client_certificate_that_is_refused_leaves_the_key_free() {
    let (ledger, files) = (Ledger::start(), Files::new());
    files.keep_signed("gateway", &files.authority.client("gateway"));
    files.keep_signed("stranger", &Authority::new("another").client("gateway"));
    let own = files.authority.server("localhost");
    for version in [&TLS12, &TLS13] {
        for (scheme, protocol) in [("https", &b"http/1.1"[..]), ("h2", b"h2")] {
            let shown =
                Shown { version, protocol, clients: Some(&files.authority), ..Shown::new(&own) };
            let front = shown.before(ledger.address());
            for settings in [trusting(&files, ""), as_client(&files, "stranger")] {
                let gateway = front.behind(scheme, &settings).start();
                let request = gateway.post("/charges").key("k").json("{}");
                for _ in 0..5 {
                    request.send().refused("upstream-unreachable");
                }
            }
        }
        let shown = Shown { version, clients: Some(&files.authority), ..Shown::new(&own) };
        let front = shown.before(ledger.address());
        let gateway = front.behind("https", &as_client(&files, "gateway")).start();
        assert_eq!(gateway.post("/charges").key("k").json("{}").send().status, 201);
    }
}

#[test]
fn over_tls_http2_is_agreed_on() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let own = files.authority.server("localhost");
    let front = Shown::new(&own).before(ledger.address());
    let gateway = front.behind("h2", &trusting(&files, "")).start();
    gateway.post("/charges").key("k").json("{}").send().refused("upstream-unreachable");
    assert_eq!(ledger.all().len(), 0);

    // A gateway takes HTTP/2 in the clear.
    let second = Gateway::in_front_of(&ledger).start();
    let front = Shown { protocol: b"h2", ..Shown::new(&own) }.before(second.address);
    let gateway = front.behind("h2", &trusting(&files, "")).start();
    let request = gateway.post("/charges").key("k").json("{}");
    let first = request.send();
    assert_eq!(first.status, 201);
    request.send().replays(&first);
    assert_eq!(ledger.effects("k"), 1);
}

#[test]
fn another_authority_counts_once_the_configuration_is_read_again() {
    let (ledger, files) = (Ledger::start(), Files::new());
    let other = Authority::new("another");
    let own = other.server("localhost");
    let front = Shown::new(&own).before(ledger.address());
    let gateway = front.behind("https", &trusting(&files, "")).start();
    let request = gateway.post("/charges").key("k").json("{}");
    request.send().refused("upstream-unreachable");
    files.keep("ca.pem", &other.pem());
    assert_eq!(gateway.reload().status, 200);
    assert_eq!(request.send().status, 201);
}

#[test]
fn who_tells_callers_apart_may_be_asked_over_tls_and_goes_by_its_own_name() {
    let (ledger, auth, files) = (Ledger::start(), Ledger::start(), Files::new());
    auth.behave(|_, client| reply(client, 204, &["X-Tenant: ann"], ""));
    for (name, slug) in [("localhost", None), ("other.example", Some("auth-unavailable"))] {
        let own = files.authority.server(name);
        let front = Shown::new(&own).before(auth.address());
        let settings = format!(
            "{}[forward_auth]\nurl = \"https://localhost:{}/\"\n[idempotency]\ntenant = \"forward-auth\"\n",
            trusting(&files, "server_name = \"upstream.example\""),
            front.address.port()
        );
        let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
        let answer = gateway.post("/charges").key("paid").json("{}").send();
        match slug {
            None => assert_eq!(answer.status, 201, "{}", answer.text()),
            Some(slug) => drop(answer.refused(slug)),
        }
    }
    assert_eq!(ledger.effects("paid"), 1);
}
