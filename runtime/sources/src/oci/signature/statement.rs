//! Parses signed statements. Pure: parses texts from a registry and sends no requests.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use super::{
    key::PublicKey,
    keyless::{Certified, Identity},
};
use crate::{Digest, text::shown};

/// The payload of an envelope that is an in-toto statement.
const IN_TOTO: &str = "application/vnd.in-toto+json";

/// The predicate type of a plain signature, as opposed to an attestation.
pub(super) const SIGN_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

/// The layer annotation with the signature of the layer's content.
pub(super) const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";

/// Type of a "simple signing" payload of cosign.
const SIMPLE_SIGNING_TYPE: &str = "cosign container image signature";

/// Why a signature of an artifact does not count.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    #[error("is by a signer whose other signature counts, and each signer counts once")]
    Again,
    #[error("is by none of the trusted keys")]
    Signer,
    #[error("is by {0}, which is none of the trusted identities")]
    Identity(String),
    #[error("is for another artifact, {0}")]
    AnotherArtifact(String),
    #[error("is not a signature but an attestation ({0})")]
    AnotherStatement(String),
    #[error("was made with a certificate, and the policy has only keys")]
    Keyless,
    #[error("was made with a certificate that the trustRoot does not verify ({0})")]
    NotVerified(String),
    #[error("has {size} bytes, and the limit is {max}")]
    TooLarge { size: u64, max: u64 },
    #[error("cannot be read ({0})")]
    Malformed(String),
}

/// A message and its claimed signatures.
pub(super) struct Signed {
    /// The bytes under the signature.
    message: Vec<u8>,
    signatures: Vec<Vec<u8>>,
    /// The certificate data of a keyless signature.
    certified: Option<Certified>,
    content: Content,
}

enum Content {
    Statement(Vec<u8>),
    SimpleSigning(Vec<u8>),
}

/// The most signatures of one message that are checked.
const SIGNATURES_MAX: usize = 4;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    verification_material: Option<Material>,
    dsse_envelope: Option<Envelope>,
    message_signature: Option<serde::de::IgnoredAny>,
}

/// The verification material of a bundle.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    public_key: Option<serde::de::IgnoredAny>,
    certificate: Option<serde::de::IgnoredAny>,
    x509_certificate_chain: Option<serde::de::IgnoredAny>,
}

impl Material {
    /// Whether the signature was made with a certificate.
    fn is_certificate(&self) -> Result<bool, Unusable> {
        let kinds = [self.public_key.is_some(), self.certificate.is_some(), self.x509_certificate_chain.is_some()];
        match kinds {
            [_, false, false] => Ok(false),
            [false, true, false] | [false, false, true] => Ok(true),
            _ => Err(Unusable::Malformed("it has more than one key or certificate".to_owned())),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    #[serde(default)]
    subject: Vec<Subject>,
    predicate_type: String,
}

#[derive(Deserialize)]
struct Subject {
    #[serde(default)]
    digest: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct SimpleSigning {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(rename = "type")]
    kind: String,
    image: Image,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Parses a Sigstore bundle.
pub(super) fn of_bundle(bundle: &[u8]) -> Result<Signed, Unusable> {
    let Bundle { verification_material, dsse_envelope, message_signature } =
        serde_json::from_slice(bundle).map_err(malformed)?;
    let envelope = match (dsse_envelope, message_signature) {
        (Some(envelope), None) => Ok(envelope),
        (None, Some(_)) => Err("it signs a message instead of a statement"),
        (Some(_), Some(_)) => Err("it has two contents"),
        (None, None) => Err("it has no content"),
    };
    let Envelope { payload, payload_type, signatures } =
        envelope.map_err(|reason| Unusable::Malformed(reason.to_owned()))?;
    let payload = decoded(&payload)?;
    let signatures = signatures.iter().take(SIGNATURES_MAX).map(|signature| decoded(&signature.sig));
    let signatures = signatures.collect::<Result<_, _>>()?;
    // DSSE's pre-authentication encoding: the signature covers the payload type.
    let mut message = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    message.extend_from_slice(&payload);
    if payload_type != IN_TOTO {
        return Err(Unusable::AnotherStatement(shown(&payload_type)));
    }
    let is_certified = verification_material.as_ref().map_or(Ok(false), Material::is_certificate)?;
    let certified = is_certified.then(|| Certified::Bundle(bundle.to_vec()));
    Ok(Signed { message, signatures, certified, content: Content::Statement(payload) })
}

/// Parses a payload of cosign 1 or 2 with its layer's annotations.
pub(super) fn of_simple_signing(payload: Vec<u8>, annotations: &HashMap<String, String>) -> Result<Signed, Unusable> {
    let Some(signature) = annotations.get(SIGNATURE_ANNOTATION).filter(|signature| !signature.is_empty()) else {
        return Err(Unusable::Malformed("its layer has no signature".to_owned()));
    };
    let signatures = vec![decoded(signature)?];
    let certified = Certified::annotations(annotations);
    Ok(Signed { message: payload.clone(), signatures, certified, content: Content::SimpleSigning(payload) })
}

impl Unusable {
    pub(super) fn identity(identity: &Identity) -> Self {
        Self::Identity(shown(&identity.to_string()))
    }
}

impl Signed {
    /// The certificate data of a keyless signature.
    pub(super) const fn certified(&self) -> Option<&Certified> {
        self.certified.as_ref()
    }

    /// The bytes under the signature.
    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    /// Whether one of the signatures is by this key.
    pub(super) fn is_by(&self, key: &PublicKey) -> bool {
        self.signatures.iter().any(|signature| key.verifies(&self.message, signature))
    }

    /// Checks that the message is a signature of this artifact, and nothing else.
    pub(super) fn says_that_signed(&self, artifact: Digest) -> Result<(), Unusable> {
        match &self.content {
            Content::Statement(text) => {
                let Statement { kind, subject, predicate_type } = serde_json::from_slice(text).map_err(malformed)?;
                if !kind.starts_with("https://in-toto.io/Statement/") || predicate_type != SIGN_PREDICATE {
                    return Err(Unusable::AnotherStatement(shown(&predicate_type)));
                }
                let digests: Vec<&String> = subject.iter().filter_map(|subject| subject.digest.get("sha256")).collect();
                if digests.iter().any(|digest| **digest == artifact.hex()) {
                    return Ok(());
                }
                let other = digests
                    .first()
                    .map_or_else(|| "which has no digest".to_owned(), |digest| format!("sha256:{digest}"));
                Err(Unusable::AnotherArtifact(shown(&other)))
            }
            Content::SimpleSigning(text) => {
                let SimpleSigning { critical } = serde_json::from_slice(text).map_err(malformed)?;
                if critical.kind != SIMPLE_SIGNING_TYPE {
                    return Err(Unusable::AnotherStatement(shown(&critical.kind)));
                }
                if critical.image.digest == artifact.to_string() {
                    return Ok(());
                }
                Err(Unusable::AnotherArtifact(shown(&critical.image.digest)))
            }
        }
    }
}

pub(super) fn decoded(text: &str) -> Result<Vec<u8>, Unusable> {
    STANDARD.decode(text).map_err(malformed)
}

pub(super) fn malformed(error: impl std::fmt::Display) -> Unusable {
    Unusable::Malformed(shown(&error.to_string()))
}
