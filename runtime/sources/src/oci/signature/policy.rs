//! The signature policy: the trusted signers, and how many of them are required.

use std::{collections::BTreeSet, fmt};

use super::{
    key::PublicKey,
    keyless::{Identity, TrustRoot},
    statement::{Signed, Unusable},
};
use crate::Digest;

/// The trusted signers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signers {
    /// Trusted public keys.
    pub keys: Vec<PublicKey>,
    /// Trusted identities, which `trust_root` verifies.
    pub identities: Vec<Identity>,
    /// The trusted root for identities.
    pub trust_root: Option<TrustRoot>,
}

/// The signatures that an artifact has to have before its component is fetched.
#[derive(Clone, PartialEq, Eq)]
pub struct SignaturePolicy {
    signers: Signers,
    require: usize,
}

/// The policy could never be fulfilled, or would require nothing.
#[derive(Debug, thiserror::Error)]
pub enum SignaturePolicyError {
    /// Too many keys or identities.
    #[error("{count} {what} are given, and the limit is {max}", max = SignaturePolicy::SIGNERS_MAX)]
    TooMany {
        /// As given.
        count: usize,
        /// `keys` or `identities`.
        what: &'static str,
    },
    /// Neither a key nor an identity.
    #[error(
        "no signer is named; give the keys of the signers, as cosign public-key prints them, or their identities with a trustRoot"
    )]
    Nobody,
    /// The same key twice.
    #[error("the key {0} is given twice; remove one of them")]
    Twice(Digest),
    /// The same identity twice.
    #[error("the identity {0} is given twice; remove one of them")]
    IdentityTwice(Identity),
    /// An identity that no certificate has.
    #[error("the {what} of an identity is empty, too long or has invalid characters; write it as in the certificate, in 1 to {max} bytes and without spaces around it", max = SignaturePolicy::NAME_BYTES_MAX)]
    Name {
        /// `issuer` or `subject`.
        what: &'static str,
    },
    /// Identities without a trusted root.
    #[error(
        "identities are given without a trustRoot; give the trusted_root.json of the Sigstore instance that they sign with"
    )]
    NoTrustRoot,
    /// A trusted root without identities.
    #[error(
        "a trustRoot is given without identities; name the identities that may sign, because anyone can get a certificate of its CA"
    )]
    NoIdentity,
    /// `require` is out of range.
    #[error("{require} signatures are required from {signers} keys and identities; write 1 to {signers}")]
    Require {
        /// As asked.
        require: usize,
        /// Keys and identities given.
        signers: usize,
    },
}

/// A trusted signer, by its index in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Signer {
    Key(usize),
    Identity(usize),
}

impl SignaturePolicy {
    /// The most keys, and the most identities: each key is tried with each signature.
    pub const SIGNERS_MAX: usize = 16;

    /// Longest issuer or subject, in bytes. The URI of a workflow has some hundred.
    pub const NAME_BYTES_MAX: usize = 1024;

    /// A policy that requires signatures of `require` of these signers.
    ///
    /// # Errors
    /// No signer or a duplicate; identities without a root or the reverse; or `require` is not
    /// between 1 and the number of signers.
    pub fn new(signers: Signers, require: usize) -> Result<Self, SignaturePolicyError> {
        let Signers { keys, identities, trust_root } = &signers;
        for (count, what) in [(keys.len(), "keys"), (identities.len(), "identities")] {
            if count > Self::SIGNERS_MAX {
                return Err(SignaturePolicyError::TooMany { count, what });
            }
        }
        match trust_root {
            None if !identities.is_empty() => return Err(SignaturePolicyError::NoTrustRoot),
            Some(_) if identities.is_empty() => return Err(SignaturePolicyError::NoIdentity),
            None | Some(_) => {}
        }
        let mut known = BTreeSet::new();
        if let Some(twice) = keys.iter().find(|key| !known.insert(key.fingerprint())) {
            return Err(SignaturePolicyError::Twice(twice.fingerprint()));
        }
        let mut known = BTreeSet::new();
        for identity in identities {
            check_name("issuer", &identity.issuer)?;
            check_name("subject", &identity.subject)?;
            if !known.insert(identity) {
                return Err(SignaturePolicyError::IdentityTwice(identity.clone()));
            }
        }
        let count = keys.len() + identities.len();
        if count == 0 {
            return Err(SignaturePolicyError::Nobody);
        }
        if require == 0 || require > count {
            return Err(SignaturePolicyError::Require { require, signers: count });
        }
        Ok(Self { signers, require })
    }

    pub(super) const fn required(&self) -> usize {
        self.require
    }

    /// The trusted signers of this message, if the message is a signature of the artifact.
    pub(super) fn judge(&self, signed: &Signed, artifact: Digest) -> Result<Vec<Signer>, Unusable> {
        let Signers { keys, identities, trust_root } = &self.signers;
        // The signature is verified first, so that an untrusted message is never parsed.
        let by = keys.iter().enumerate().filter(|(_, key)| signed.is_by(key));
        let by: Vec<Signer> = by.map(|(index, _)| Signer::Key(index)).collect();
        if !by.is_empty() {
            return signed.says_that_signed(artifact).map(|()| by);
        }
        let Some(certified) = signed.certified() else { return Err(Unusable::Signer) };
        let Some(root) = trust_root else { return Err(Unusable::Keyless) };
        // Reverse order for certificates: the message has been parsed already to find the
        // certificate, and this error is more specific.
        signed.says_that_signed(artifact)?;
        let identity = root.signer(certified, signed.message(), artifact)?;
        let found = identities.iter().position(|known| *known == identity);
        found.map(|index| vec![Signer::Identity(index)]).ok_or_else(|| Unusable::identity(&identity))
    }
}

fn check_name(what: &'static str, name: &str) -> Result<(), SignaturePolicyError> {
    let fits = (1..=SignaturePolicy::NAME_BYTES_MAX).contains(&name.len());
    let odd = name.contains(char::is_control) || name.trim() != name;
    if fits && !odd { Ok(()) } else { Err(SignaturePolicyError::Name { what }) }
}

impl fmt::Display for SignaturePolicy {
    /// Two policies print the same text only if they are equal:
    /// `1 of sha256:…, "release@example.com" of "https://…" by sha256:…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Signers { keys, identities, trust_root } = &self.signers;
        let mut signers: Vec<String> = keys.iter().map(|key| key.fingerprint().to_string()).collect();
        signers.sort_unstable();
        let mut names: Vec<String> =
            identities.iter().map(|Identity { issuer, subject }| format!("{subject:?} of {issuer:?}")).collect();
        names.sort_unstable();
        signers.append(&mut names);
        write!(f, "{} of {}", self.require, signers.join(", "))?;
        trust_root.as_ref().map_or(Ok(()), |root| write!(f, " by {}", root.fingerprint()))
    }
}

impl fmt::Debug for SignaturePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignaturePolicy({self})")
    }
}
