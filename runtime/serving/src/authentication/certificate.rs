//! Client certificates: the common name is the user, the organisations are the groups, as in Kubernetes.

use std::{fmt, sync::Arc};

use rustls::{
    RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
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

    /// The subject of the peer's certificate, where this authority signed it; none where no certificate was shown.
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

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// `[0]`: the version, which is left out in certificates of version 1.
const VERSION: u8 = 0xa0;
/// `UTF8String`, `PrintableString`, `IA5String`: what names are written in.
const STRINGS: [u8; 3] = [0x0c, 0x13, 0x16];
/// 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
/// 2.5.4.10.
const ORGANIZATION: [u8; 3] = [0x55, 4, 10];

impl Subject {
    /// Reads it from a certificate. rustls verifies certificates and does not tell their subjects; this reads as far as the subject, and
    /// only what was verified.
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let mut outer = Der(certificate.as_ref());
        let mut to_be_signed = Der(Der(outer.value(SEQUENCE)?).value(SEQUENCE)?);
        if to_be_signed.0.first() == Some(&VERSION) {
            to_be_signed.next()?;
        }
        // Serial number, signature algorithm, issuer, validity.
        for _ in 0..4 {
            to_be_signed.next()?;
        }
        let mut names = Der(to_be_signed.value(SEQUENCE)?);
        let mut subject = Self::default();
        while !names.0.is_empty() {
            let mut set = Der(names.value(SET)?);
            while !set.0.is_empty() {
                subject.take(Der(set.value(SEQUENCE)?))?;
            }
        }
        Some(subject)
    }

    /// One attribute. A name in letters of another age (`BMPString`) makes the whole subject unreadable: half a name is another name.
    fn take(&mut self, mut attribute: Der<'_>) -> Option<()> {
        let kind = attribute.value(OBJECT_IDENTIFIER)?;
        let (tag, value) = attribute.next()?;
        let text = || STRINGS.contains(&tag).then(|| String::from_utf8(value.to_vec()).ok()).flatten();
        if kind == COMMON_NAME {
            self.common_name = text()?;
        } else if kind == ORGANIZATION {
            self.organizations.push(text()?);
        }
        Some(())
    }
}

/// What is left of some DER.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value with its tag.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let digits = usize::from(first & 0x7f);
            if digits == 0 || digits > 4 {
                return None;
            }
            let (length, rest) = rest.split_at_checked(digits)?;
            (length.iter().fold(0, |sum, digit| (sum << 8) | usize::from(*digit)), rest)
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }

    /// The next value, which has to have this tag.
    fn value(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, value)| value)
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
