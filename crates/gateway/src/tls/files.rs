//! PEM files that settings name, read; or why they are of no use.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A setting whose file is of no use, and why.
#[derive(Debug)]
pub(crate) struct Unfit {
    pub(crate) setting: &'static str,
    pub(crate) text: String,
}

impl Unfit {
    pub(crate) fn new(setting: &'static str, path: &Path, cause: &dyn fmt::Display) -> Self {
        Self { setting, text: format!("{}: {cause}", path.display()) }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.text)
    }
}

impl std::error::Error for Unfit {}

/// The one provider of this process: two in one tree would each expect to be the only one.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// A chain of certificates: at least one.
pub(crate) fn certificates(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, Unfit> {
    let bytes = read(setting, path)?;
    let certificates = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(Unfit::new(setting, path, &"there is no certificate in it"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(Unfit::new(setting, path, &error)),
    }
}

/// A private key, which no password protects.
pub(crate) fn key(setting: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, Unfit> {
    let bytes = read(setting, path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        Error::NoItemsFound => {
            let cause = "there is no private key in it that can be read without a password";
            Unfit::new(setting, path, &cause)
        }
        error => Unfit::new(setting, path, &error),
    })
}

/// Authorities to trust.
pub(crate) fn authorities(setting: &'static str, path: &Path) -> Result<RootCertStore, Unfit> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(setting, path)? {
        roots.add(certificate).map_err(|error| Unfit::new(setting, path, &error))?;
    }
    Ok(roots)
}

/// What is said of a key that rustls does not take beside its certificate.
pub(crate) fn unfit_key(path: &Path, certificate: &Path, error: &rustls::Error) -> Unfit {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            let cause = format!("is not the key of the certificate in {}", certificate.display());
            Unfit::new("key", path, &cause)
        }
        // It is the certificate that must be parsed to compare the two.
        rustls::Error::InvalidCertificate(_) => Unfit::new("cert", certificate, error),
        error => Unfit::new("key", path, error),
    }
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, Unfit> {
    std::fs::read(path).map_err(|error| Unfit::new(setting, path, &error))
}
