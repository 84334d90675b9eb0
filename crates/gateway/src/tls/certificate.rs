//! What a certificate says: whose it is, and until when.

use std::time::{Duration, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, UnixTime};
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// Whose certificate it is, and who says so. It forms the identity of keys: were it to be written
/// otherwise, known keys would run again.
///
/// Nothing where it names nobody: all such clients would be one.
pub(super) fn holder(certificate: &CertificateDer<'_>) -> Option<String> {
    let certified = Certificate::from_der(certificate).ok()?.tbs_certificate;
    let (subject, issuer) = (certified.subject, certified.issuer);
    // In both a semicolon is escaped, so that neither can be taken for a part of the other.
    (!subject.is_empty()).then(|| format!("{subject}; issuer {issuer}"))
}

/// Why a certificate is of no use at the moment, if it is not.
pub(super) fn out_of_date(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<String> {
    let validity = Certificate::from_der(certificate).ok()?.tbs_certificate.validity;
    let (from, until) =
        (validity.not_before.to_unix_duration(), validity.not_after.to_unix_duration());
    let now = Duration::from_secs(now.as_secs());
    let written = |time| humantime::format_rfc3339_seconds(UNIX_EPOCH + time);
    match () {
        () if now > until => Some(format!("the certificate expired at {}", written(until))),
        () if now < from => Some(format!("the certificate is not valid before {}", written(from))),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;
    use selfsame_test_certificates::{Authority, Signed};

    use super::*;

    fn der(signed: &Signed) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(signed.certificate.as_bytes()).expect("a certificate")
    }

    #[test]
    fn a_holder_is_a_subject_and_its_issuer() {
        let authority = Authority::new("Our CA");
        let ann = der(&authority.client_of("Shop, Inc.; issuer CN=Our CA", "ann"));
        let expected = r"CN=ann,O=Shop\, Inc.\; issuer CN=Our CA; issuer CN=Our CA";
        assert_eq!(holder(&ann).as_deref(), Some(expected));
        assert_eq!(holder(&der(&authority.nameless_client())), None);
        assert_eq!(holder(&CertificateDer::from(b"nonsense".to_vec())), None);
    }

    #[test]
    fn a_certificate_is_of_use_from_one_day_to_another() {
        let authority = Authority::new("Our CA");
        let expired = der(&authority.expired_server("a.example"));
        let said = |certificate: &CertificateDer<'_>, now: u64| {
            out_of_date(certificate, UnixTime::since_unix_epoch(Duration::from_secs(now)))
        };
        let (in_2019, in_2020, in_2021) = (1_570_000_000, 1_590_000_000, 1_610_000_000);
        let expected = "the certificate is not valid before 2020-01-01T00:00:00Z";
        assert_eq!(said(&expired, in_2019).as_deref(), Some(expected));
        assert_eq!(said(&expired, in_2020), None);
        let expected = "the certificate expired at 2020-12-31T00:00:00Z";
        assert_eq!(said(&expired, in_2021).as_deref(), Some(expected));
    }
}
