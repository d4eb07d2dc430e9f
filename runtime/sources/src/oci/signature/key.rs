//! Public keys in PEM, and the verification of signatures with them.

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
/// Releases of cosign use different hashes with keys on this curve.
static P384: Algorithms = &[&ECDSA_P384_SHA384_ASN1, &ECDSA_P384_SHA256_ASN1];
static RSA: Algorithms = &[&RSA_PKCS1_2048_8192_SHA256];

/// A key that a signature is checked with.
#[derive(Clone)]
pub struct PublicKey {
    /// A signature is valid if one of the algorithms verifies it.
    algorithms: Algorithms,
    /// The key in the encoding of its algorithm.
    key: Vec<u8>,
    fingerprint: Digest,
}

/// A text is not a usable public key.
#[derive(Debug, thiserror::Error)]
pub enum PublicKeyError {
    /// The text is not PEM, or the PEM is not a public key.
    #[error(
        "no public key: it has to be a PEM text with the line BEGIN PUBLIC KEY, as cosign generate-key-pair writes to cosign.pub"
    )]
    Pem,
    /// A private key.
    #[error("a private key, which must stay with its owner; give the public key (cosign public-key --key cosign.key)")]
    Private,
    /// Several keys.
    #[error("{0} keys in one text; write each key as a list entry of its own")]
    Several(usize),
    /// The content of the PEM cannot be parsed.
    #[error("a public key that cannot be read; write it again with cosign public-key")]
    Der,
    /// An unsupported algorithm.
    #[error("a public key of the kind {0}; use ECDSA on the curve P-256 or P-384, or RSA with at least 2048 bits")]
    Algorithm(String),
}

impl PublicKey {
    /// Parses one key.
    ///
    /// # Errors
    /// The text is not a public key, or the key's algorithm is not supported.
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

    /// SHA-256 of the key in DER, equal to
    /// `openssl pkey -pubin -in cosign.pub -outform DER | sha256sum`.
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
