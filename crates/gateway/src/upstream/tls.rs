//! TLS with the upstream: who it must be, who we are, and proof that it did not let us in.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, ProtocolVersion, RootCertStore};
use selfsame::BoxError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::config::{self, Protocol};
use crate::tls::files::{self, Unfit};

/// Whom upstreams must show themselves to be, and what they are shown.
pub(crate) struct ClientTls {
    config: ClientConfig,
    server_name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Reads the files that `config` names.
    ///
    /// # Errors
    /// The first one that is of no use.
    pub(crate) fn open(config: &config::UpstreamTls) -> Result<Self, Unfit> {
        let roots = match &config.ca {
            Some(ca) => files::authorities("ca", ca)?,
            None => known_to_the_system()?,
        };
        let builder = ClientConfig::builder_with_provider(files::provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_root_certificates(roots);
        let client = match &config.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let (chain, private) =
                    (files::certificates("cert", cert)?, files::key("key", key)?);
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|error| files::unfit_key(key, cert, &error))?
            }
        };
        Ok(Self { config: client, server_name: config.server_name.clone() })
    }

    /// The files that `config` names and that are of no use; or, if each is by itself, why they are
    /// not together.
    pub(crate) fn check(config: &config::UpstreamTls) -> Vec<Unfit> {
        let mut unfit = Vec::new();
        unfit.extend(config.ca.as_ref().and_then(|ca| files::authorities("ca", ca).err()));
        if let Some((cert, key)) = &config.identity {
            unfit.extend(files::certificates("cert", cert).err());
            unfit.extend(files::key("key", key).err());
        }
        if unfit.is_empty() {
            unfit.extend(Self::open(config).err());
        }
        unfit
    }

    /// The same, where each host must show a certificate for its own name.
    pub(super) fn by_own_names(&self) -> Self {
        Self { config: self.config.clone(), server_name: None }
    }

    fn connector(&self, protocol: Protocol) -> TlsConnector {
        let mut config = self.config.clone();
        config.alpn_protocols = match protocol {
            Protocol::Http1 => vec![b"http/1.1".to_vec()],
            Protocol::Http2 => vec![b"h2".to_vec()],
        };
        TlsConnector::from(Arc::new(config))
    }
}

fn known_to_the_system() -> Result<RootCertStore, Unfit> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        false => Ok(roots),
        true => {
            let text = "this system knows no certificate authorities; name one with upstream_tls.ca, or \
                        --admin-ca for the admin listener, or install Debian's ca-certificates";
            Err(Unfit { setting: "ca", text: text.to_owned() })
        }
    }
}

/// Makes connections to one upstream.
#[derive(Clone)]
pub(crate) struct Connector {
    tcp: HttpConnector,
    tls: Option<Encryption>,
    connect_timeout: Duration,
    limit: ConnectionLimit,
}

#[derive(Clone)]
struct Encryption {
    connector: TlsConnector,
    server_name: ServerName<'static>,
    protocol: Protocol,
}

impl Connector {
    /// To `address`, over `tls` where that asks for it.
    pub(crate) fn new(
        mut tcp: HttpConnector,
        address: &config::Upstream,
        tls: Option<&ClientTls>,
        connect_timeout: Duration,
        limit: ConnectionLimit,
    ) -> Self {
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(connect_timeout));
        tcp.enforce_http(false);
        let tls = address.server_name().map(|own| {
            let tls = tls.expect("it was opened, for there is an address that asks for it");
            Encryption {
                connector: tls.connector(address.protocol),
                server_name: tls.server_name.clone().unwrap_or(own),
                protocol: address.protocol,
            }
        });
        Self { tcp, tls, connect_timeout, limit }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let permit = match self.limit.acquire() {
            Ok(permit) => permit,
            Err(refused) => return Box::pin(async move { Err(refused.into()) }),
        };
        let (connecting, tls) = (self.tcp.call(address), self.tls.clone());
        // For both together: a server that accepts and says nothing holds nobody up for longer.
        let connect_timeout = self.connect_timeout;
        Box::pin(async move {
            let Some(tls) = tls else {
                return Ok(TokioIo::new(Wire::Clear(connecting.await?.into_inner(), permit)));
            };
            let encrypted = async { tls.encrypt(connecting.await?.into_inner(), permit).await };
            let encrypted = timeout(connect_timeout, encrypted).await;
            encrypted.map_err(|_| "the TLS handshake took too long")?
        })
    }
}

impl Encryption {
    async fn encrypt(
        &self,
        stream: TcpStream,
        permit: ConnectionPermit,
    ) -> Result<TokioIo<Wire>, BoxError> {
        let stream = self.connector.connect(self.server_name.clone(), stream).await?;
        let agreed = stream.get_ref().1.alpn_protocol();
        if self.protocol == Protocol::Http2 && agreed != Some(b"h2") {
            return Err("the server does not speak HTTP/2 over TLS".into());
        }
        let turned_away = Arc::default();
        let guarded = Guarded { stream, has_heard: false, turned_away, _permit: permit };
        Ok(TokioIo::new(Wire::Encrypted(Box::new(guarded))))
    }
}

/// A connection to the upstream.
pub(crate) enum Wire {
    Clear(TcpStream, #[expect(dead_code, reason = "it is held")] ConnectionPermit),
    /// Boxed, because it is some kilobytes.
    Encrypted(Box<Guarded>),
}

impl Wire {
    /// Whether it turns out that the upstream did not let us in.
    pub(super) fn turned_away(&self) -> Arc<AtomicBool> {
        match self {
            Self::Clear(..) => Arc::default(),
            Self::Encrypted(guarded) => guarded.turned_away.clone(),
        }
    }
}

/// An encrypted connection on which a refusal of our certificate is told from a lost answer.
///
/// In TLS 1.3 a client may send before the server has looked at its certificate. What it sent then
/// is not even decrypted if the certificate is refused: the request was not taken.
pub(crate) struct Guarded {
    stream: TlsStream<TcpStream>,
    /// Whether anything came that was meant for us: then we were let in.
    has_heard: bool,
    turned_away: Arc<AtomicBool>,
    _permit: ConnectionPermit,
}

impl Guarded {
    /// Before TLS 1.3 a handshake ends only when the server has seen all certificates.
    fn may_be_refused(&self) -> bool {
        let version = self.stream.get_ref().1.protocol_version();
        !self.has_heard && version == Some(ProtocolVersion::TLSv1_3)
    }

    fn judged(&self, error: io::Error) -> io::Error {
        let alert = error.get_ref().and_then(|error| error.downcast_ref());
        match alert {
            Some(rustls::Error::AlertReceived(alert))
                if self.may_be_refused() && is_refusal(*alert) =>
            {
                self.turned_away.store(true, Ordering::Relaxed);
                io::Error::new(error.kind(), TurnedAway(*alert))
            }
            _ => error,
        }
    }

    /// A server that refuses closes its end at once, so that writing may fail before the refusal is
    /// read. It has come by then, though perhaps nobody has told us yet that there is something to read.
    fn written<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let Poll::Ready(Err(error)) = written else { return written };
        if !self.may_be_refused() || !is_closed(&error) {
            return Poll::Ready(Err(error));
        }
        let mut byte = [0];
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut byte)));
        let judged = read.err().map(|error| self.judged(error));
        let refused = judged.filter(|_| self.turned_away.load(Ordering::Relaxed));
        Poll::Ready(Err(refused.unwrap_or(error)))
    }
}

/// Whether the other end has closed the connection, which can be read, too.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

/// Whether an alert says that a certificate was refused, or one was missing.
fn is_refusal(alert: AlertDescription) -> bool {
    use AlertDescription as A;
    matches!(
        alert,
        A::NoCertificate
            | A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA
            | A::AccessDenied
            | A::DecryptError
            | A::HandshakeFailure
            | A::CertificateRequired
    )
}

/// The upstream has refused our certificate, or wants one.
#[derive(Debug)]
struct TurnedAway(AlertDescription);

impl fmt::Display for TurnedAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the upstream refused the TLS connection: {:?}", self.0)
    }
}

impl Error for TurnedAway {}

/// Whether a request failed because the upstream did not let us in.
pub(super) fn was_turned_away(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if inner.is_some_and(|inner| inner.is::<TurnedAway>()) {
            return true;
        }
        cause = error.source();
    }
    false
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream, _) => Pin::new(stream).poll_read(cx, buf),
            Self::Encrypted(guarded) => {
                let before = buf.filled().len();
                let read = Pin::new(&mut guarded.stream).poll_read(cx, buf);
                guarded.has_heard |= buf.filled().len() > before;
                read.map_err(|error| guarded.judged(error))
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream, _) => Pin::new(stream).poll_write(cx, bytes),
            Self::Encrypted(guarded) => {
                let written = Pin::new(&mut guarded.stream).poll_write(cx, bytes);
                guarded.written(written, cx)
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream, _) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Encrypted(guarded) => {
                let written = Pin::new(&mut guarded.stream).poll_write_vectored(cx, slices);
                guarded.written(written, cx)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Clear(stream, _) => stream.is_write_vectored(),
            Self::Encrypted(guarded) => guarded.stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream, _) => Pin::new(stream).poll_flush(cx),
            Self::Encrypted(guarded) => {
                let flushed = Pin::new(&mut guarded.stream).poll_flush(cx);
                guarded.written(flushed, cx)
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream, _) => Pin::new(stream).poll_shutdown(cx),
            Self::Encrypted(guarded) => Pin::new(&mut guarded.stream).poll_shutdown(cx),
        }
    }
}
