//! What was signed and what it says. Pure: it judges texts that a registry sent.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use super::key::PublicKey;
use crate::Digest;

/// The payload of an envelope that is an in-toto statement.
const IN_TOTO: &str = "application/vnd.in-toto+json";

/// Its predicate where it says nothing but "signed".
pub(super) const SIGN_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

/// Type of a "simple signing" payload of cosign.
const SIMPLE_SIGNING_TYPE: &str = "cosign container image signature";

/// Why something beside an artifact is no signature of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    #[error("is by a key that had signed already")]
    Again,
    #[error("is by none of the keys")]
    Key,
    #[error("is of another artifact, {0}")]
    AnotherArtifact(String),
    #[error("is no signature but says something about the artifact ({0})")]
    AnotherStatement(String),
    #[error("was made with a certificate, and only keys are known here")]
    Keyless,
    #[error("has {size} bytes, and {max} are read")]
    TooLarge { size: u64, max: u64 },
    #[error("cannot be read ({0})")]
    Malformed(String),
}

/// A text, and signatures that are said to be of it.
pub(super) struct Signed {
    /// The bytes under the signature.
    message: Vec<u8>,
    signatures: Vec<Vec<u8>>,
    /// Made with a certificate.
    keyless: bool,
    content: Content,
}

enum Content {
    Statement(Vec<u8>),
    SimpleSigning(Vec<u8>),
}

/// Signatures of one text that are looked at.
const SIGNATURES_MAX: usize = 4;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    verification_material: Option<Material>,
    dsse_envelope: Option<Envelope>,
    message_signature: Option<serde::de::IgnoredAny>,
}

/// Who signed, as the bundle has it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    certificate: Option<serde::de::IgnoredAny>,
    x509_certificate_chain: Option<serde::de::IgnoredAny>,
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

/// What a bundle of Sigstore has under its signature.
pub(super) fn of_bundle(bundle: &[u8]) -> Result<Signed, Unusable> {
    let Bundle { verification_material, dsse_envelope, message_signature } =
        serde_json::from_slice(bundle).map_err(malformed)?;
    let Some(Envelope { payload, payload_type, signatures }) = dsse_envelope else {
        let reason =
            if message_signature.is_some() { "it signs a text and not a statement" } else { "nothing is signed" };
        return Err(Unusable::Malformed(reason.to_owned()));
    };
    let payload = decoded(&payload)?;
    let signatures = signatures.iter().take(SIGNATURES_MAX).map(|signature| decoded(&signature.sig));
    let signatures = signatures.collect::<Result<_, _>>()?;
    // DSSE's pre-authentication encoding: the type is under the signature, so it means what it says.
    let mut message = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    message.extend_from_slice(&payload);
    if payload_type != IN_TOTO {
        return Err(Unusable::AnotherStatement(shown(&payload_type)));
    }
    let keyless = verification_material
        .is_some_and(|material| material.certificate.is_some() || material.x509_certificate_chain.is_some());
    Ok(Signed { message, signatures, keyless, content: Content::Statement(payload) })
}

/// A payload of older releases of cosign, with its signature.
pub(super) fn of_simple_signing(payload: Vec<u8>, signature: &str) -> Result<Signed, Unusable> {
    if signature.is_empty() {
        return Err(Unusable::Malformed("its layer has no signature".to_owned()));
    }
    let signatures = vec![decoded(signature)?];
    Ok(Signed { message: payload.clone(), signatures, keyless: false, content: Content::SimpleSigning(payload) })
}

impl Signed {
    /// Why it does not count where no key bears it out.
    pub(super) const fn unknown(&self) -> Unusable {
        if self.keyless { Unusable::Keyless } else { Unusable::Key }
    }

    /// Whether one of the signatures is by this key.
    pub(super) fn is_by(&self, key: &PublicKey) -> bool {
        self.signatures.iter().any(|signature| key.verifies(&self.message, signature))
    }

    /// Whether the text says that this artifact is signed, and nothing else.
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
                    .map_or_else(|| "which it does not name".to_owned(), |digest| format!("sha256:{digest}"));
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

fn decoded(text: &str) -> Result<Vec<u8>, Unusable> {
    STANDARD.decode(text).map_err(malformed)
}

fn malformed(error: impl std::fmt::Display) -> Unusable {
    Unusable::Malformed(shown(&error.to_string()))
}

/// What somebody else wrote, on one short line.
fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 120;
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(CHARS_MAX).collect()
}
