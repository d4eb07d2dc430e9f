//! Client certificates: as in Kubernetes, the common name is the user and the organisations are the
//! groups.

use std::{fmt, sync::Arc};

use rustls::{
    RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use x509_parser::{
    certificate::X509Certificate,
    prelude::{AttributeTypeAndValue, FromDer as _},
};

use super::{InvalidCredential, Peer, User};

/// A certificate authority of clients.
#[derive(Clone)]
pub(crate) struct Ca(Arc<dyn ClientCertVerifier>);

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ca")
    }
}

impl Ca {
    /// Parses a PEM bundle.
    ///
    /// # Errors
    /// The reason: the bundle has no certificates, or an invalid one.
    pub(crate) fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| {
                format!("the PEM cannot be parsed ({error}); write at least one block BEGIN CERTIFICATE")
            })?;
            roots
                .add(certificate)
                .map_err(|error| format!("a certificate in it cannot be a certificate authority: {error}"))?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        builder.build().map(Self).map_err(|error| format!("it is not a CA bundle: {error}"))
    }

    /// The subject of the peer's certificate, which this CA has to have signed; `None` if the peer
    /// has no certificate.
    pub(super) fn verify(&self, peer: &Peer) -> Result<Option<Subject>, String> {
        let Some((first, others)) = peer.certificates.split_first() else { return Ok(None) };
        self.0.verify_client_cert(first, others, UnixTime::now()).map_err(|error| error.to_string())?;
        Subject::of(first).map(Some).ok_or_else(|| "its subject cannot be read".to_owned())
    }
}

/// The user of a certificate that this CA signed.
pub(super) fn authenticate(ca: &Ca, peer: &Peer) -> Result<Option<User>, InvalidCredential> {
    let subject = ca.verify(peer).map_err(InvalidCredential::Certificate)?;
    let named = subject.filter(|subject| !subject.common_name.is_empty());
    Ok(named.map(|subject| User { name: subject.common_name, groups: subject.organizations, ..User::default() }))
}

/// The parts of a certificate's subject that Kubernetes uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
}

impl Subject {
    /// Reads the subject of a verified certificate. `None` if a name has an older encoding
    /// (`BMPString`), because a partial name could be another user's.
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let text = |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
        let name = certificate.subject();
        // Kubernetes uses the last of several common names.
        let common_name = name.iter_common_name().last().map_or(Some(String::new()), text)?;
        let organizations = name.iter_organization().map(text).collect::<Option<_>>()?;
        Some(Self { common_name, organizations })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{DistinguishedName, DnType, DnValue, string::BmpString};

    use super::{Ca, Subject};
    use crate::testing::Authority;

    fn subject<const N: usize>(parts: [(DnType, DnValue); N]) -> Option<Subject> {
        let mut name = DistinguishedName::new();
        for (r#type, value) in parts {
            name.push(r#type, value);
        }
        Subject::of(&Authority::new("ca").client_of(name).certificate)
    }

    fn text(value: &str) -> DnValue {
        DnValue::Utf8String(value.to_owned())
    }

    #[test]
    fn the_last_of_several_common_names_is_the_user() {
        // rcgen keeps one value for each type; this is the same type under another name.
        let again = DnType::CustomDnType(vec![2, 5, 4, 3]);
        let subject = subject([(DnType::CommonName, text("jane")), (again, text("joe"))]).unwrap();
        assert_eq!(subject.common_name, "joe");
    }

    /// A reader that leaves such a name out would take the certificate for another user's.
    #[test]
    fn a_name_in_an_older_encoding_makes_the_whole_subject_unreadable() {
        let older = || DnValue::BmpString(BmpString::try_from("system:masters").unwrap());
        assert_eq!(subject([(DnType::CommonName, older())]), None);
        assert_eq!(subject([(DnType::CommonName, text("jane")), (DnType::OrganizationName, older())]), None);
        assert!(subject([(DnType::CommonName, text("jane")), (DnType::OrganizationName, text("a"))]).is_some());
    }

    #[test]
    fn the_subject_is_read_as_kubernetes_reads_it() {
        let certificate = Authority::new("ca").client("jane", &["system:masters", "développeurs"]);
        let subject = Subject::of(&certificate.certificate).unwrap();
        assert_eq!(subject.common_name, "jane");
        assert_eq!(subject.organizations, ["system:masters", "développeurs"]);
    }

    /// Truncated and with flipped bits.
    #[test]
    fn a_certificate_that_is_broken_anywhere_is_read_without_panic() {
        let whole = Authority::new("ca").client("jane", &["a"]).certificate.to_vec();
        for at in 0..whole.len() {
            assert!(at > 300 || Subject::of(&whole[..at].to_vec().into()).is_none());
            for bit in 0..8 {
                let mut broken = whole.clone();
                broken[at] ^= 1 << bit;
                drop(Subject::of(&broken.into()));
            }
        }
    }

    #[test]
    fn a_bundle_without_a_certificate_is_no_authority() {
        for text in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(Ca::from_pem(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
