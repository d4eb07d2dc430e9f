//! Connects Sigstore's verifier to ring, so that the manager has only one cryptography library.

use std::{cell::RefCell, sync::Once};

use ring::{
    digest,
    signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
        RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
        RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
    },
};
use sigstore_verify::{
    crypto::{self, CryptoProvider, HashContext, SigningScheme, error::Error},
    types::HashAlgorithm,
};

thread_local! {
    /// See [`with_message`].
    static MESSAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Installs ring as the verifier's provider. Call it before any other function of the verifier.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Fails only if a provider is installed already, and no other code installs one.
        crypto::install_default_provider(&Ring).ok();
    });
}

/// Runs a verification with access to the message. For a signed plain message the verifier passes
/// only the digest, and ring needs the message because it hashes by itself.
pub(super) fn with_message<T>(message: &[u8], verify: impl FnOnce() -> T) -> T {
    MESSAGE.set(message.to_vec());
    let result = verify();
    MESSAGE.take();
    result
}

#[derive(Debug)]
struct Ring;

struct Context(digest::Context);

impl HashContext for Context {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finish().as_ref().to_vec()
    }
}

impl CryptoProvider for Ring {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>, Error> {
        Ok(Box::new(Context(digest::Context::new(hash(algorithm)?))))
    }

    fn verify_raw(&self, scheme: SigningScheme, key: &[u8], data: &[u8], signature: &[u8]) -> Result<(), Error> {
        let key = UnparsedPublicKey::new(algorithm(scheme)?, key);
        key.verify(data, signature).map_err(|_| Error::Verification(format!("{} does not verify", scheme.name())))
    }

    fn verify_prehashed(
        &self,
        scheme: SigningScheme,
        key: &[u8],
        digest: &[u8],
        signature: &[u8],
    ) -> Result<(), Error> {
        let of = scheme.hash_algorithm().ok_or_else(|| unsupported(scheme.name()))?;
        MESSAGE.with_borrow(|message| {
            // The stored message replaces the digest only if it has this digest.
            if digest::digest(hash(of)?, message).as_ref() != digest {
                return Err(Error::Verification("the message does not have this digest".to_owned()));
            }
            self.verify_raw(scheme, key, message, signature)
        })
    }
}

fn hash(algorithm: HashAlgorithm) -> Result<&'static digest::Algorithm, Error> {
    match algorithm {
        HashAlgorithm::Sha2256 => Ok(&digest::SHA256),
        HashAlgorithm::Sha2384 => Ok(&digest::SHA384),
        HashAlgorithm::Sha2512 => Ok(&digest::SHA512),
        other => Err(unsupported(&other.to_string())),
    }
}

fn algorithm(scheme: SigningScheme) -> Result<&'static dyn VerificationAlgorithm, Error> {
    Ok(match scheme {
        SigningScheme::EcdsaP256Sha256 => &ECDSA_P256_SHA256_ASN1,
        SigningScheme::EcdsaP256Sha384 => &ECDSA_P256_SHA384_ASN1,
        SigningScheme::EcdsaP384Sha256 => &ECDSA_P384_SHA256_ASN1,
        SigningScheme::EcdsaP384Sha384 => &ECDSA_P384_SHA384_ASN1,
        SigningScheme::Ed25519 => &ED25519,
        SigningScheme::RsaPkcs1Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        SigningScheme::RsaPkcs1Sha384 => &RSA_PKCS1_2048_8192_SHA384,
        SigningScheme::RsaPkcs1Sha512 => &RSA_PKCS1_2048_8192_SHA512,
        SigningScheme::RsaPssSha256 => &RSA_PSS_2048_8192_SHA256,
        SigningScheme::RsaPssSha384 => &RSA_PSS_2048_8192_SHA384,
        SigningScheme::RsaPssSha512 => &RSA_PSS_2048_8192_SHA512,
        // ring does not support ML-DSA.
        other => return Err(unsupported(other.name())),
    })
}

fn unsupported(what: &str) -> Error {
    Error::UnsupportedAlgorithm(format!("{what} is not supported"))
}
