//! Public keys, as PEM files have them, and what they verify.

use std::fmt;

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey, VerificationAlgorithm,
};
use rustls_pki_types::{SubjectPublicKeyInfoDer, pem::PemObject as _};
use x509_parser::{
    oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_PKCS1_RSAENCRYPTION},
    prelude::FromDer as _,
    x509::SubjectPublicKeyInfo,
};

use crate::Digest;

type Algorithms = &'static [&'static dyn VerificationAlgorithm];

static P256: Algorithms = &[&ECDSA_P256_SHA256_ASN1];
/// With keys on this curve releases of cosign differ in the hash.
static P384: Algorithms = &[&ECDSA_P384_SHA384_ASN1, &ECDSA_P384_SHA256_ASN1];
static RSA: Algorithms = &[&RSA_PKCS1_2048_8192_SHA256];

/// A key that a signature is checked with.
#[derive(Clone)]
pub struct PublicKey {
    /// Any of them.
    algorithms: Algorithms,
    /// As its algorithm has it.
    key: Vec<u8>,
    fingerprint: Digest,
}

/// A text is no key that can be used.
#[derive(Debug, thiserror::Error)]
pub enum PublicKeyError {
    /// No PEM, or of something else.
    #[error(
        "no public key: it has to be a PEM text with the line BEGIN PUBLIC KEY, as cosign generate-key-pair writes to cosign.pub"
    )]
    Pem,
    /// A private one.
    #[error(
        "a private key: nobody but its owner may have it; give the public one (cosign public-key --key cosign.key)"
    )]
    Private,
    /// Several.
    #[error("{0} keys in one text: give each on its own")]
    Several(usize),
    /// The PEM holds something else.
    #[error("a public key that cannot be read: write it again with cosign public-key")]
    Der,
    /// An algorithm that is not known here.
    #[error("a public key of the kind {0}: those on the curves P-256 and P-384 and of RSA from 2048 bits are known")]
    Algorithm(String),
}

impl PublicKey {
    /// Reads one key.
    ///
    /// # Errors
    /// The text is another one, or the key's algorithm is not known.
    pub fn from_pem(pem: &str) -> Result<Self, PublicKeyError> {
        if pem.contains("PRIVATE KEY-----") {
            return Err(PublicKeyError::Private);
        }
        let keys: Result<Vec<_>, _> = SubjectPublicKeyInfoDer::pem_slice_iter(pem.as_bytes()).collect();
        let keys = keys.map_err(|_| PublicKeyError::Pem)?;
        match keys.as_slice() {
            [] => Err(PublicKeyError::Pem),
            [one] => Self::from_der(one),
            several => Err(PublicKeyError::Several(several.len())),
        }
    }

    fn from_der(der: &[u8]) -> Result<Self, PublicKeyError> {
        let (rest, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| PublicKeyError::Der)?;
        if !rest.is_empty() {
            return Err(PublicKeyError::Der);
        }
        let kind = &info.algorithm.algorithm;
        let curve = info.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        let algorithms: Algorithms = match curve {
            Some(curve) if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == OID_EC_P256 => P256,
            Some(curve) if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == OID_NIST_EC_P384 => P384,
            None if *kind == OID_PKCS1_RSAENCRYPTION => RSA,
            _ => return Err(PublicKeyError::Algorithm(kind.to_id_string())),
        };
        let key = info.subject_public_key.data.to_vec();
        Ok(Self { algorithms, key, fingerprint: Digest::of(der) })
    }

    /// SHA-256 of the key as DER, which
    /// `openssl pkey -pubin -in cosign.pub -outform DER | sha256sum` gives too.
    #[must_use]
    pub const fn fingerprint(&self) -> Digest {
        self.fingerprint
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.algorithms
            .iter()
            .any(|algorithm| UnparsedPublicKey::new(*algorithm, &self.key).verify(message, signature).is_ok())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.fingerprint)
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for PublicKey {}
