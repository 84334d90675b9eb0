//! Certificates of a test's own.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};

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

    /// A server's certificate for `host` that was of use in 2020.
    pub fn expired_server(&self, host: &str) -> Signed {
        let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2020, 12, 31);
        self.sign(params, host, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client's certificate for somebody of an organisation.
    pub fn client_of(&self, organisation: &str, user: &str) -> Signed {
        let mut params = CertificateParams::new([]).expect("no names are fine");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, organisation);
        self.sign(params, user, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A client's certificate that does not say whose it is.
    pub fn nameless_client(&self) -> Signed {
        let mut params = CertificateParams::new([]).expect("no names are fine");
        params.distinguished_name = DistinguishedName::new();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.signed(params)
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
        self.signed(params)
    }

    fn signed(&self, params: CertificateParams) -> Signed {
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
