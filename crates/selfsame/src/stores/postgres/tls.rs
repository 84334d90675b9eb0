//! [`Tls`]: encryption of a connection, and whom it leads to.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature,
    verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_postgres::Socket;
use tokio_postgres::config::SslNegotiation;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::{Address, Authorities, Check};
use super::trouble::PostgresOpenError;

/// An encrypted connection.
pub(super) type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// What encrypts connections to one database.
#[derive(Clone)]
pub(super) struct Tls {
    rustls: MakeRustlsConnect,
    /// Whether it is known who answers.
    pub(super) checks: bool,
}

impl Tls {
    /// Reads the files that `address` names.
    pub(super) fn new(address: &Address) -> Result<Self, PostgresOpenError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Verifier::new(&address.check, &provider)?;
        let checks = verifier.trusted.is_some();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &address.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("sslcert", certificate)?;
                let private = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| file("sslkey", key, &error))?;
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|error| file("sslkey", key, &error))?
            }
        };
        if address.config.get_ssl_negotiation() == SslNegotiation::Direct {
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(Self { rustls: MakeRustlsConnect::new(config), checks })
    }

    /// For one connection, and whether it is encrypted once it is there.
    pub(super) fn for_one(&self) -> (Noted<MakeRustlsConnect>, Arc<AtomicBool>) {
        let is_used = Arc::new(AtomicBool::new(false));
        (Noted { inner: self.rustls.clone(), is_used: is_used.clone() }, is_used)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("checks", &self.checks).finish_non_exhaustive()
    }
}

/// Notes whether the server let it come to encryption. Nothing else tells.
pub(super) struct Noted<T> {
    inner: T,
    is_used: Arc<AtomicBool>,
}

impl<T: MakeTlsConnect<Socket>> MakeTlsConnect<Socket> for Noted<T> {
    type Stream = T::Stream;
    type TlsConnect = Noted<T::TlsConnect>;
    type Error = T::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Self::TlsConnect, Self::Error> {
        let inner = self.inner.make_tls_connect(host)?;
        Ok(Noted { inner, is_used: self.is_used.clone() })
    }
}

impl<T: TlsConnect<Socket>> TlsConnect<Socket> for Noted<T> {
    type Stream = T::Stream;
    type Error = T::Error;
    type Future = T::Future;

    fn connect(self, socket: Socket) -> Self::Future {
        self.is_used.store(true, Ordering::Relaxed);
        self.inner.connect(socket)
    }
}

/// Checks what an address asks to be checked, and no less.
#[derive(Debug)]
struct Verifier {
    /// None where anybody may answer.
    trusted: Option<Trusted>,
    checks_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Trusted {
    roots: RootCertStore,
    /// A server's own certificate may be named instead of its authority's.
    named: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn new(check: &Check, provider: &CryptoProvider) -> Result<Self, PostgresOpenError> {
        let trusted = match check {
            Check::Nothing => None,
            Check::Authority(path) | Check::Host(Authorities::In(path)) => {
                Some(Trusted::named(certificates("sslrootcert", path)?, path)?)
            }
            Check::Host(Authorities::OfTheSystem) => Some(Trusted::by_the_system()?),
        };
        let checks_name = matches!(check, Check::Host(_));
        let algorithms = provider.signature_verification_algorithms;
        Ok(Self { trusted, checks_name, algorithms })
    }
}

impl Trusted {
    fn named(named: Vec<CertificateDer<'static>>, path: &Path) -> Result<Self, PostgresOpenError> {
        let mut roots = RootCertStore::empty();
        for certificate in &named {
            roots.add(certificate.clone()).map_err(|error| file("sslrootcert", path, &error))?;
        }
        Ok(Self { roots, named })
    }

    fn by_the_system() -> Result<Self, PostgresOpenError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let text = "this system knows no certificate authorities; name one with \
                        sslrootcert=FILE, or install Debian's ca-certificates";
            return Err(PostgresOpenError::Parameter { text });
        }
        Ok(Self { roots, named: Vec::new() })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let parsed = ParsedCertificate::try_from(certificate)?;
        if !trusted.named.contains(certificate) {
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                &trusted.roots,
                intermediates,
                now,
                self.algorithms.all,
            )?;
        }
        if self.checks_name {
            verify_server_name(&parsed, host)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn certificates(
    name: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, PostgresOpenError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match read {
        Ok(certificates) if Vec::is_empty(&certificates) => {
            Err(file(name, path, &"there is no certificate in it"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(file(name, path, &error)),
    }
}

fn file(name: &'static str, path: &Path, cause: &dyn fmt::Display) -> PostgresOpenError {
    PostgresOpenError::File { name, path: path.to_owned(), cause: cause.to_string() }
}

/// What is wrong with a certificate, if that is why there is no connection.
pub(super) fn complaint(error: &tokio_postgres::Error) -> Option<String> {
    let failed = error.source()?.downcast_ref::<io::Error>()?;
    let failed = failed.get_ref()?.downcast_ref::<rustls::Error>()?;
    let rustls::Error::InvalidCertificate(reason) = failed else {
        return Some(format!("TLS with the database failed: {failed}"));
    };
    Some(match reason {
        CertificateError::UnknownIssuer => {
            "the database's certificate was signed by no authority that is trusted here; name \
             its own with sslrootcert=FILE"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the database's certificate is for another host name; connect by that name, or use \
             sslmode=verify-ca if it may differ"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the database's certificate has expired".to_owned()
        }
        other => format!("the database's certificate cannot be trusted: {other}"),
    })
}
