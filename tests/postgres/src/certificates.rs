//! Certificates of a test's own, and a server that shows one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};

use crate::Server;

/// Signs certificates.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
pub struct Signed {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Authority {
    /// An authority of this name.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).expect("no names are fine");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signed");
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// Its own certificate, as PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A server's certificate for `host`.
    pub fn server(&self, host: &str) -> Signed {
        let names = [host.to_owned()];
        self.sign(
            CertificateParams::new(names).expect("a name"),
            host,
            ExtendedKeyUsagePurpose::ServerAuth,
        )
    }

    /// A client's certificate for the role `user`.
    pub fn client(&self, user: &str) -> Signed {
        let params = CertificateParams::new([]).expect("no names are fine");
        self.sign(params, user, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        name: &str,
        usage: ExtendedKeyUsagePurpose,
    ) -> Signed {
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Signed { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Signed {
    /// A server's certificate that signs itself, as PostgreSQL's documentation makes one.
    pub fn by_itself(host: &str) -> Self {
        let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, host);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signed");
        Self { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Server {
    /// Shows `own` from now on to whoever asks for encryption, and lets `certified` in, over TCP,
    /// by a certificate of `clients` only.
    pub fn encrypt(&self, own: &Signed, clients: &Authority, certified: &str) {
        let data = self.folder.join("data");
        self.write(&data.join("server.crt"), &own.certificate);
        self.write(&data.join("server.key"), &own.key);
        self.write(&data.join("clients.crt"), &clients.pem());
        let access = data.join("pg_hba.conf");
        let rules = fs::read_to_string(&access).expect("initdb wrote it");
        self.write(&access, &format!("hostssl all {certified} all cert\n{rules}"));
        self.sql("postgres", "alter system set ssl_ca_file = 'clients.crt'");
        self.sql("postgres", "alter system set ssl = on");
        self.sql("postgres", "select pg_reload_conf()");
        while self.sql("postgres", "show ssl") != "on" {
            sleep(Duration::from_millis(20));
        }
    }

    /// A file beside the server's, for a client.
    pub fn keep(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).expect("the folder is ours");
        path
    }

    fn write(&self, path: &Path, text: &str) {
        fs::write(path, text).expect("the folder is ours");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("ours");
        if let Some(owner) = self.owner {
            chown(path, Some(owner.user), Some(owner.group)).expect("root may give it away");
        }
    }
}
