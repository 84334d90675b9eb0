//! [`Tls`]: connections from clients, encrypted; its files can be read anew while it serves.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::UnixTime;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate;
use super::files::{self, Unfit};
use crate::config::{self, ClientAuth};

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// The versions of HTTP that a listener offers (ALPN).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Alpn {
    Http1,
    Http1And2,
}

/// What connections are encrypted with.
pub(crate) struct Tls {
    current: RwLock<Arc<ServerConfig>>,
    alpn: Alpn,
}

/// An encrypted connection.
pub(crate) struct Secured {
    /// Boxed: it is some kilobytes, and is handed on.
    pub(crate) stream: Box<TlsStream<TcpStream>>,
    pub(crate) is_http2: bool,
    /// Whose certificate the client has shown.
    pub(crate) holder: Option<Arc<str>>,
}

impl Tls {
    /// Reads the files that `config` names.
    ///
    /// # Errors
    /// The first file that is of no use.
    pub(crate) fn open(config: &config::Tls, alpn: Alpn) -> Result<Self, Unfit> {
        let read = Arc::new(read(config, alpn)?);
        warn(config);
        Ok(Self { current: RwLock::new(read), alpn })
    }

    /// Reads the files of all these listeners anew, for the connections that come from now on.
    /// Those that are open stay as they are.
    ///
    /// # Errors
    /// The first file that is of no use; then all stays as it was, for every listener.
    pub(crate) fn reload<'a>(
        listeners: impl IntoIterator<Item = (&'a Self, &'a config::Tls)>,
    ) -> Result<(), Unfit> {
        let read_anew = |(tls, config): (&'a Self, &'a config::Tls)| {
            read(config, tls.alpn).map(|read| (tls, config, Arc::new(read)))
        };
        let all = listeners.into_iter().map(read_anew).collect::<Result<Vec<_>, _>>()?;
        for (tls, config, read) in all {
            warn(config);
            *tls.current.write() = read;
        }
        Ok(())
    }

    /// Waits for a client to say hello, and who it is, for as long as that may take.
    pub(crate) async fn accept(&self, stream: TcpStream, time: Duration) -> io::Result<Secured> {
        let acceptor = TlsAcceptor::from(self.current.read().clone());
        let stream = Box::new(timeout(time, acceptor.accept(stream)).await??);
        let (_, session) = stream.get_ref();
        let is_http2 = session.alpn_protocol() == Some(HTTP2);
        let shown = session.peer_certificates().and_then(|chain| chain.first());
        let holder = shown.and_then(certificate::holder).map(Arc::from);
        Ok(Secured { stream, is_http2, holder })
    }
}

/// The files that `config` names and that are of no use; or, if each is by itself, why they are
/// not together.
pub(crate) fn check(config: &config::Tls) -> Vec<Unfit> {
    let mut unfit = Vec::new();
    unfit.extend(files::certificates("cert", &config.cert).err());
    unfit.extend(files::key("key", &config.key).err());
    let authorities = config.clients.as_ref().map(|clients| &clients.ca);
    unfit.extend(authorities.and_then(|ca| files::authorities("client_ca", ca).err()));
    if unfit.is_empty() {
        unfit.extend(read(config, Alpn::Http1).err());
    }
    unfit
}

/// What is wrong with the certificate that clients are shown, though it can be shown.
pub(crate) fn warning(config: &config::Tls) -> Option<String> {
    let chain = files::certificates("cert", &config.cert).ok()?;
    let warning = certificate::out_of_date(&chain[0], UnixTime::now())?;
    Some(format!("{}: {warning}", config.cert.display()))
}

fn warn(config: &config::Tls) {
    if let Some(warning) = warning(config) {
        tracing::warn!("{warning}");
    }
}

fn read(config: &config::Tls, alpn: Alpn) -> Result<ServerConfig, Unfit> {
    let provider = files::provider();
    let chain = files::certificates("cert", &config.cert)?;
    let key = files::key("key", &config.key)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has the usual versions");
    let builder = match &config.clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let authorities = Arc::new(files::authorities("client_ca", &clients.ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider);
            let verifier = match clients.auth {
                ClientAuth::Required => verifier,
                ClientAuth::Optional => verifier.allow_unauthenticated(),
            };
            let verifier = verifier.build();
            builder.with_client_cert_verifier(
                verifier.map_err(|error| Unfit::new("client_ca", &clients.ca, &error))?,
            )
        }
    };
    let mut server = builder
        .with_single_cert(chain, key)
        .map_err(|error| files::unfit_key(&config.key, &config.cert, &error))?;
    server.alpn_protocols = match alpn {
        Alpn::Http1And2 => vec![HTTP2.to_vec(), HTTP1.to_vec()],
        Alpn::Http1 => vec![HTTP1.to_vec()],
    };
    match config.clients {
        None => server.ticketer = Ticketer::new().expect("the system has random numbers"),
        // A session that is taken up again is not verified again: it would outlive its certificate.
        Some(_) => {
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
        }
    }
    Ok(server)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
    use rustls::{ClientConfig, RootCertStore};
    use selfsame_test_certificates::{Authority, Signed};
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;
    use tokio_rustls::TlsConnector;

    use super::*;

    struct Files(TempDir);

    impl Files {
        fn with(signed: &Signed) -> Self {
            let files = Self(TempDir::new().expect("a temporary folder"));
            files.show(signed);
            files
        }

        fn show(&self, signed: &Signed) {
            let config = self.config();
            std::fs::write(config.cert, &signed.certificate).expect("ours");
            std::fs::write(config.key, &signed.key).expect("ours");
        }

        fn config(&self) -> config::Tls {
            let path = |name| self.0.path().join(name);
            config::Tls { cert: path("cert.pem"), key: path("key.pem"), clients: None }
        }
    }

    fn trusting(authority: &Authority) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(authority.pem().as_bytes());
        roots.add(root.expect("a certificate")).expect("an authority");
        let config = ClientConfig::builder_with_provider(files::provider())
            .with_safe_default_protocol_versions()
            .expect("the usual versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }

    /// Says something, and returns the certificate that the server showed.
    async fn ask(connector: &TlsConnector, listener: &str) -> io::Result<CertificateDer<'static>> {
        let stream = TcpStream::connect(listener).await?;
        let name = ServerName::try_from("a.example").expect("a name");
        let mut stream = connector.connect(name, stream).await?;
        stream.write_all(b"ping").await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        let shown = stream.get_ref().1.peer_certificates().expect("shown");
        Ok(shown[0].clone().into_owned())
    }

    async fn echo(tls: Arc<Tls>, listener: TcpListener) {
        let mut serving = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let tls = tls.clone();
            serving.spawn(async move {
                let secured = tls.accept(stream, Duration::from_secs(10));
                let mut secured = secured.await.expect("a handshake");
                let mut said = [0; 4];
                secured.stream.read_exact(&mut said).await.expect("said");
                secured.stream.write_all(&said).await.expect("answered");
                let _gone = secured.stream.shutdown().await;
            });
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn certificates_are_replaced_under_load_and_no_request_fails() {
        let authority = Authority::new("ours");
        let (first, second) = (authority.server("a.example"), authority.server("a.example"));
        let der = |signed: &Signed| {
            CertificateDer::from_pem_slice(signed.certificate.as_bytes()).expect("a certificate")
        };
        let files = Files::with(&first);
        let tls = Arc::new(Tls::open(&files.config(), Alpn::Http1And2).expect("whole"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let mut running = JoinSet::from_iter([echo(tls.clone(), listener)]);

        let (asked, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut clients = JoinSet::new();
        for _ in 0..4 {
            let (connector, address) = (trusting(&authority), address.clone());
            let (asked, over) = (asked.clone(), over.clone());
            clients.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    ask(&connector, &address).await.expect("no request fails");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for signed in [&second, &first].into_iter().cycle().take(20) {
            let before = asked.load(Ordering::Relaxed);
            files.show(signed);
            Tls::reload([(&*tls, &files.config())]).expect("whole");
            while asked.load(Ordering::Relaxed) < before + 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Another client, which takes up no earlier session.
            let shown = ask(&trusting(&authority), &address).await.expect("no request fails");
            assert_eq!(shown, der(signed));
        }
        over.store(true, Ordering::Relaxed);
        while let Some(client) = clients.join_next().await {
            client.expect("no request failed");
        }
        running.shutdown().await;
    }

    #[tokio::test]
    async fn files_that_are_of_no_use_change_nothing() {
        let authority = Authority::new("ours");
        let (first, other) = (authority.server("a.example"), authority.server("a.example"));
        let files = Files::with(&first);
        let config = files.config();
        let tls = Tls::open(&config, Alpn::Http1And2).expect("whole");
        let before = tls.current.read().clone();
        let mixed = Signed { certificate: other.certificate, key: first.key };
        files.show(&mixed);
        let said = Tls::reload([(&tls, &config)]).expect_err("they do not fit").to_string();
        assert!(said.contains("is not the key of the certificate in"), "{said}");
        assert!(Arc::ptr_eq(&before, &tls.current.read()));
    }

    #[tokio::test]
    async fn files_of_one_listener_that_are_of_no_use_change_no_other() {
        let authority = Authority::new("ours");
        let listeners = [(); 2].map(|()| {
            let files = Files::with(&authority.server("a.example"));
            let tls = Tls::open(&files.config(), Alpn::Http1).expect("whole");
            (files, tls)
        });
        let current = || listeners.each_ref().map(|(_, tls)| tls.current.read().clone());
        let before = current();
        for broken in [0, 1] {
            std::fs::write(listeners[broken].0.config().key, "no key").expect("ours");
            let configs = listeners.each_ref().map(|(files, _)| files.config());
            let reload = || Tls::reload(listeners.iter().map(|(_, tls)| tls).zip(&configs));
            reload().expect_err("one is of no use");
            for (before, now) in before.iter().zip(current()) {
                assert!(Arc::ptr_eq(before, &now), "{broken}");
            }
            listeners[broken].0.show(&authority.server("a.example"));
        }
    }
}
