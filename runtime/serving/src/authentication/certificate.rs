//! Client certificates: the common name is the user, the organisations are the groups, as in
//! Kubernetes.

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

use super::{Peer, Refused, User};

/// An authority of client certificates.
#[derive(Clone)]
pub(crate) struct Ca(Arc<dyn ClientCertVerifier>);

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ca")
    }
}

impl Ca {
    /// From a bundle in PEM.
    ///
    /// # Errors
    /// A sentence: no certificates, or one that is none.
    pub(crate) fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| format!("no certificates in PEM: {error}"))?;
            roots.add(certificate).map_err(|error| format!("a certificate in it cannot be an authority: {error}"))?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        builder.build().map(Self).map_err(|error| format!("it is no bundle of authorities: {error}"))
    }

    /// The subject of the peer's certificate, where this authority signed it; none where no
    /// certificate was shown.
    pub(super) fn verify(&self, peer: &Peer) -> Result<Option<Subject>, String> {
        let Some((first, others)) = peer.certificates.split_first() else { return Ok(None) };
        self.0.verify_client_cert(first, others, UnixTime::now()).map_err(|error| error.to_string())?;
        Subject::of(first).map(Some).ok_or_else(|| "its subject cannot be read".to_owned())
    }
}

/// Whom a certificate that this authority signed is for.
pub(super) fn authenticate(ca: &Ca, peer: &Peer) -> Result<Option<User>, Refused> {
    let subject = ca.verify(peer).map_err(Refused::Certificate)?;
    let named = subject.filter(|subject| !subject.common_name.is_empty());
    Ok(named.map(|subject| User { name: subject.common_name, groups: subject.organizations, ..User::default() }))
}

/// What Kubernetes reads of a certificate's subject.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
}

impl Subject {
    /// Reads it from a certificate that was verified. A name in an older encoding (`BMPString`)
    /// makes the whole subject unreadable: half a name is another name.
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let text = |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
        let name = certificate.subject();
        // Of several common names Kubernetes takes the last.
        let common_name = name.iter_common_name().last().map_or(Some(String::new()), text)?;
        let organizations = name.iter_organization().map(text).collect::<Option<_>>()?;
        Some(Self { common_name, organizations })
    }
}

#[cfg(test)]
mod tests {
    use super::{Ca, Subject};
    use crate::testing::Authority;

    #[test]
    fn the_subject_is_read_as_kubernetes_reads_it() {
        let certificate = Authority::new("ca").client("jane", &["system:masters", "développeurs"]);
        let subject = Subject::of(&certificate.certificate).unwrap();
        assert_eq!(subject.common_name, "jane");
        assert_eq!(subject.organizations, ["system:masters", "développeurs"]);
    }

    /// Whatever it is cut to or has flipped in it: an answer or none, and no panic.
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
