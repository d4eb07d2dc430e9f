//! Keyless signatures: verifies a short-lived certificate with the operator's trusted root, and
//! returns the identity of the signer.
//!
//! The `sigstore-verify` crate, which Sigstore maintains, verifies offline:
//!
//! - a time from an authority of the root: an RFC 3161 timestamp of this signature, or a log's
//!   signed entry timestamp;
//! - that a CA of the root issued the certificate, with the usage "code signing", and that both
//!   were valid at each such time;
//! - if the root has transparency logs: that one of them has the entry (inclusion proof with a
//!   signed checkpoint, or the log's promise), and that each entry is for this certificate, this
//!   signature and this content;
//! - if the root has certificate transparency logs: that one of them has the certificate;
//! - that the certificate's key signed the content.
//!
//! So the content of the root decides which proofs are required, and a bundle cannot reduce them.

use std::{collections::HashMap, fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde::Deserialize;
use serde_json::{Value, json};
use sigstore_verify::{
    VerificationPolicy, VerificationResult, Verifier,
    trust_root::TrustedRoot,
    types::{Artifact, Bundle, Sha256Hash, SignatureContent, bundle::VerificationMaterialContent},
};
use x509_parser::{
    der_parser::asn1_rs::Utf8String,
    extensions::GeneralName,
    oid_registry::{Oid, asn1_rs::oid},
    prelude::{FromDer as _, X509Certificate},
};

use super::{
    crypto,
    statement::{SIGNATURE_ANNOTATION, Unusable, decoded, malformed},
};
use crate::{Digest, text::shown};

/// Beginnings of the media types of a trusted root in all versions.
const TRUSTED_ROOT: [&str; 2] =
    ["application/vnd.dev.sigstore.trustedroot+json", "application/vnd.dev.sigstore.trustedroot.v"];

/// The most log entries, timestamps and certificates of a signature, each. Signatures of cosign
/// have one, one and three.
const EVIDENCE_MAX: usize = 8;

/// Fulcio's certificate extension for a name that is neither an email address nor a URI.
const USER_NAME: Oid<'static> = oid!(1.3.6.1.4.1.57264.1.7);

// Layer annotations that cosign 1 and 2 write.
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const CHAIN: &str = "dev.sigstore.cosign/chain";
const LOG_ENTRY: &str = "dev.sigstore.cosign/bundle";
const TIMESTAMP: &str = "dev.sigstore.cosign/rfc3161timestamp";

/// The identity of a keyless signer: an `OpenID` Connect issuer and a name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The issuer: `https://token.actions.githubusercontent.com`.
    pub issuer: String,
    /// The name there: an email address, or the URI of a workflow. Compared for equality, not as a
    /// pattern.
    pub subject: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (issuer {})", self.subject, self.issuer)
    }
}

/// The only trusted authorities for certificates and times: a `trusted_root.json` of Sigstore,
/// which is never fetched.
#[derive(Clone)]
pub struct TrustRoot {
    verifier: Arc<Verifier>,
    policy: VerificationPolicy,
    fingerprint: Digest,
}

/// A text is not a usable trusted root.
#[derive(Debug, thiserror::Error)]
pub enum TrustRootError {
    /// The text is not a trusted root.
    #[error(
        "not a trusted root ({0}); give the trusted_root.json of the Sigstore instance, as cosign trusted-root create writes it"
    )]
    Text(String),
    /// The text exceeds the limit.
    #[error("not a trusted root: it has {0} bytes, and the limit is {max}", max = TrustRoot::BYTES_MAX)]
    TooLarge(usize),
    /// The root has no certificate authority.
    #[error("a trusted root without certificate authorities; add that of Fulcio (cosign trusted-root create --fulcio)")]
    NoAuthority,
    /// The root has no authority for the time of a signature.
    #[error(
        "a trusted root with neither a transparency log nor a timestamp authority, so that the time of a signature cannot be verified; add one (cosign trusted-root create --rekor, --tsa)"
    )]
    NoTime,
    /// A part of the root is invalid.
    #[error("an invalid trusted root ({0}); create it again (cosign trusted-root create)")]
    Unusable(String),
}

/// The data of a keyless signature.
pub(super) enum Certified {
    /// The text of a bundle.
    Bundle(Vec<u8>),
    /// Annotations of a layer.
    Annotations(HashMap<String, String>),
}

impl TrustRoot {
    /// Largest text. The root of the public instance has 7 KiB.
    pub const BYTES_MAX: u64 = 256 << 10;

    /// Parses a trusted root.
    ///
    /// # Errors
    /// The text is not a trusted root, or the root cannot verify any signature.
    pub fn from_json(text: &str) -> Result<Self, TrustRootError> {
        if text.len() as u64 > Self::BYTES_MAX {
            return Err(TrustRootError::TooLarge(text.len()));
        }
        crypto::install();
        let root = TrustedRoot::from_json(text).map_err(|error| TrustRootError::Text(shown(&error.to_string())))?;
        if !TRUSTED_ROOT.iter().any(|kind| root.media_type.starts_with(kind)) {
            return Err(TrustRootError::Text(format!("its media type is {:?}", shown(&root.media_type))));
        }
        if root.certificate_authorities.is_empty() {
            return Err(TrustRootError::NoAuthority);
        }
        if root.tlogs.is_empty() && root.timestamp_authorities.is_empty() {
            return Err(TrustRootError::NoTime);
        }
        // The caller compares the identity with each trusted identity.
        let mut policy = VerificationPolicy::any_identity();
        if root.tlogs.is_empty() {
            policy = policy.skip_tlog_unsafe();
        }
        if root.ctlogs.is_empty() {
            policy = policy.skip_sct();
        }
        let verifier = Verifier::new(&root).map_err(|error| TrustRootError::Unusable(shown(&error.to_string())))?;
        Ok(Self { verifier: Arc::new(verifier), policy, fingerprint: Digest::of(text.as_bytes()) })
    }

    /// SHA-256 of the JSON text that [`Self::from_json`] parsed.
    #[must_use]
    pub const fn fingerprint(&self) -> Digest {
        self.fingerprint
    }

    /// Verifies a signature of this message about this artifact; returns the signer.
    pub(super) fn signer(&self, certified: &Certified, message: &[u8], artifact: Digest) -> Result<Identity, Unusable> {
        match certified {
            Certified::Bundle(text) => {
                let bundle = read(text)?;
                // The verifier and `statement` have to have parsed the same message.
                if !matches!(&bundle.content, SignatureContent::DsseEnvelope(envelope) if envelope.pae() == message) {
                    return Err(Unusable::Malformed("it is ambiguous".to_owned()));
                }
                self.verify(&bundle, Sha256Hash::new(*artifact.as_bytes()).into())
            }
            Certified::Annotations(annotations) => {
                let bundle = read(of_annotations(annotations)?.to_string().as_bytes())?;
                crypto::with_message(message, || self.verify(&bundle, Artifact::Blob(message)))
            }
        }
    }

    fn verify(&self, bundle: &Bundle, artifact: Artifact<'_>) -> Result<Identity, Unusable> {
        let result: VerificationResult = self
            .verifier
            .verify(artifact, bundle, &self.policy)
            .map_err(|error| Unusable::NotVerified(shown(&error.to_string())))?;
        let certificate = bundle.signing_certificate().ok_or_else(|| Unusable::NotVerified("no certificate".into()))?;
        let issuer = result.issuer().filter(|issuer| !issuer.is_empty());
        let issuer = issuer.ok_or_else(|| Unusable::NotVerified("its certificate names no issuer".to_owned()))?;
        Ok(Identity { issuer: issuer.to_owned(), subject: subject(certificate.as_bytes())? })
    }
}

impl fmt::Debug for TrustRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrustRoot({})", self.fingerprint)
    }
}

impl PartialEq for TrustRoot {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for TrustRoot {}

fn read(text: &[u8]) -> Result<Bundle, Unusable> {
    let bundle: Bundle = serde_json::from_slice(text).map_err(malformed)?;
    let material = &bundle.verification_material;
    let certificates = match &material.content {
        VerificationMaterialContent::X509CertificateChain { certificates } => certificates.len(),
        _ => 1,
    };
    let times = material.timestamp_verification_data.rfc3161_timestamps.len();
    if [certificates, times, material.tlog_entries.len()].iter().any(|count| *count > EVIDENCE_MAX) {
        let reason = format!("the limit of certificates, timestamps and log entries is {EVIDENCE_MAX} each");
        return Err(Unusable::Malformed(reason));
    }
    Ok(bundle)
}

/// The name in a certificate. Fulcio writes exactly one; a certificate with several is refused.
fn subject(certificate: &[u8]) -> Result<String, Unusable> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(malformed)?;
    let names = certificate.subject_alternative_name().map_err(malformed)?;
    match names.map(|names| names.value.general_names.as_slice()) {
        Some([GeneralName::RFC822Name(name) | GeneralName::URI(name)]) => Ok((*name).to_owned()),
        Some([GeneralName::OtherName(kind, value)]) if *kind == USER_NAME => user_name(value),
        _ => Err(Unusable::NotVerified("its certificate does not have exactly one supported name".to_owned())),
    }
}

/// The string inside the explicit tag `[0]`.
fn user_name(value: &[u8]) -> Result<String, Unusable> {
    let (rest, outer) = x509_parser::der_parser::asn1_rs::Any::from_der(value).map_err(malformed)?;
    let (inner_rest, name) = Utf8String::from_der(outer.data).map_err(malformed)?;
    if rest.is_empty() && inner_rest.is_empty() {
        return Ok(name.string());
    }
    Err(Unusable::Malformed("the name in its certificate has trailing bytes".to_owned()))
}

/// The log entry in the annotations of a signature of cosign 1 or 2.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LogEntry {
    signed_entry_timestamp: String,
    payload: LogPayload,
}

#[derive(Deserialize)]
struct LogPayload {
    body: String,
    #[serde(rename = "integratedTime")]
    integrated_time: i64,
    #[serde(rename = "logIndex")]
    log_index: u64,
    #[serde(rename = "logID")]
    log_id: String,
}

#[derive(Deserialize)]
struct Timestamp {
    #[serde(rename = "SignedRFC3161Timestamp")]
    signed: String,
}

/// Converts a signature of cosign 1 or 2 to a bundle.
fn of_annotations(annotations: &HashMap<String, String>) -> Result<Value, Unusable> {
    let text = |name: &str| annotations.get(name).map(String::as_str).filter(|text| !text.is_empty());
    let pem = [CERTIFICATE, CHAIN].iter().filter_map(|name| text(name)).collect::<Vec<_>>().join("\n");
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        certificates.push(json!({ "rawBytes": STANDARD.encode(certificate.map_err(malformed)?) }));
    }
    let mut entries = Vec::new();
    if let Some(entry) = text(LOG_ENTRY) {
        let LogEntry { signed_entry_timestamp, payload } = serde_json::from_str(entry).map_err(malformed)?;
        let LogPayload { body, integrated_time, log_index, log_id } = payload;
        let id: Digest = format!("sha256:{log_id}").parse().map_err(malformed)?;
        entries.push(json!({
            "logIndex": log_index.to_string(), "logId": { "keyId": STANDARD.encode(id.as_bytes()) },
            "kindVersion": { "kind": "hashedrekord", "version": "0.0.1" }, "integratedTime": integrated_time.to_string(),
            "inclusionPromise": { "signedEntryTimestamp": signed_entry_timestamp }, "canonicalizedBody": body,
        }));
    }
    let mut timestamps = Vec::new();
    if let Some(timestamp) = text(TIMESTAMP) {
        let Timestamp { signed } = serde_json::from_str(timestamp).map_err(malformed)?;
        timestamps.push(json!({ "signedTimestamp": signed }));
    }
    let signature = decoded(text(SIGNATURE_ANNOTATION).unwrap_or_default())?;
    // Version 0.1 of a bundle requires a log's promise and no inclusion proof.
    let version = if entries.is_empty() { "0.2" } else { "0.1" };
    Ok(json!({
        "mediaType": format!("application/vnd.dev.sigstore.bundle+json;version={version}"),
        "verificationMaterial": {
            "x509CertificateChain": { "certificates": certificates }, "tlogEntries": entries,
            "timestampVerificationData": { "rfc3161Timestamps": timestamps },
        },
        "messageSignature": { "signature": STANDARD.encode(signature) },
    }))
}

impl Certified {
    /// The annotations, if they contain a certificate.
    pub(super) fn annotations(annotations: &HashMap<String, String>) -> Option<Self> {
        annotations.contains_key(CERTIFICATE).then(|| Self::Annotations(annotations.clone()))
    }
}

#[cfg(test)]
mod tests;
