//! Signatures with a certificate that lived for ten minutes: whether a root that the operator gave
//! bears one out, and whose it is.
//!
//! What is verified, all of it offline and by the `sigstore-verify` crate, which Sigstore itself
//! maintains:
//!
//! - a time that an authority of the root vouches for: an RFC 3161 timestamp of this very
//!   signature, or a log's signed entry timestamp;
//! - that the certificate comes from an authority of the root, with the use "code signing", at each
//!   such time, and within that authority's own window;
//! - where the root has transparency logs: that one of them has the entry (inclusion proof under a
//!   signed checkpoint, or the log's promise), and that each entry is about this certificate, this
//!   signature and this content;
//! - where the root has certificate logs: that one of them has seen the certificate;
//! - that the certificate's key signed the content.
//!
//! So a root says by what it has what is asked for, and nothing in a bundle can lower that.

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

/// Beginnings of the media types of a trusted root, of all versions.
const TRUSTED_ROOT: [&str; 2] =
    ["application/vnd.dev.sigstore.trustedroot+json", "application/vnd.dev.sigstore.trustedroot.v"];

/// Log entries, timestamps and certificates of a chain, of each, that a signature may have. Those
/// of cosign have one, one and three.
const EVIDENCE_MAX: usize = 8;

/// The name of a user in a certificate, as Fulcio has it where it is neither an address nor a URI.
const USER_NAME: Oid<'static> = oid!(1.3.6.1.4.1.57264.1.7);

// What older releases of cosign write beside a signature.
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const CHAIN: &str = "dev.sigstore.cosign/chain";
const LOG_ENTRY: &str = "dev.sigstore.cosign/bundle";
const TIMESTAMP: &str = "dev.sigstore.cosign/rfc3161timestamp";

/// Who signs without a key of their own: whom an issuer of `OpenID` Connect knows by a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Who knows them: `https://token.actions.githubusercontent.com`.
    pub issuer: String,
    /// The name there: an address, or the URI of a workflow. Equal, and not like a pattern.
    pub subject: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (issuer {})", self.subject, self.issuer)
    }
}

/// Whom to believe about certificates and times: a `trusted_root.json` of Sigstore. Nothing of it
/// is fetched, and nothing else is believed.
#[derive(Clone)]
pub struct TrustRoot {
    verifier: Arc<Verifier>,
    policy: VerificationPolicy,
    fingerprint: Digest,
}

/// A text is no trusted root that can be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustRootError {
    /// Another text.
    #[error(
        "no trusted root ({0}): give the trusted_root.json of the Sigstore instance, as cosign trusted-root create writes it"
    )]
    Text(String),
    /// Longer than any.
    #[error("no trusted root: it has {0} bytes, and {max} are the most", max = TrustRoot::BYTES_MAX)]
    TooLarge(usize),
    /// Nobody in it gives certificates.
    #[error("a trusted root without certificate authorities: add that of Fulcio (cosign trusted-root create --fulcio)")]
    NoAuthority,
    /// Nobody in it says when something was signed.
    #[error(
        "a trusted root that has neither a log nor a timestamp authority, so that nobody says when something was signed: add one (cosign trusted-root create --rekor, --tsa)"
    )]
    NoTime,
    /// Something in it.
    #[error("a trusted root that cannot be used ({0}): write it again")]
    Unusable(String),
}

/// A signature with a certificate, as it was found.
pub(super) enum Certified {
    /// The text of a bundle.
    Bundle(Vec<u8>),
    /// Annotations of a layer.
    Annotations(HashMap<String, String>),
}

impl TrustRoot {
    /// Largest text. That of the public instance has 7 KiB.
    pub const BYTES_MAX: u64 = 256 << 10;

    /// Reads one.
    ///
    /// # Errors
    /// The text is another one, or nothing could be verified with it.
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
        // Who it was is judged afterwards, by each identity that is named.
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

    /// SHA-256 of the text.
    #[must_use]
    pub const fn fingerprint(&self) -> Digest {
        self.fingerprint
    }

    /// Who signed this message, which is about this artifact.
    pub(super) fn signer(&self, certified: &Certified, message: &[u8], artifact: Digest) -> Result<Identity, Unusable> {
        match certified {
            Certified::Bundle(text) => {
                let bundle = read(text)?;
                // What is judged here and there has to be one text, however odd the bundle is.
                if !matches!(&bundle.content, SignatureContent::DsseEnvelope(envelope) if envelope.pae() == message) {
                    return Err(Unusable::Malformed("it can be read in two ways".to_owned()));
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
            .map_err(|error| Unusable::NotBorneOut(shown(&error.to_string())))?;
        let certificate = bundle.signing_certificate().ok_or_else(|| Unusable::NotBorneOut("no certificate".into()))?;
        let issuer = result.issuer().filter(|issuer| !issuer.is_empty());
        let issuer = issuer.ok_or_else(|| Unusable::NotBorneOut("its certificate names no issuer".to_owned()))?;
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
        let reason = format!("of certificates, timestamps and log entries it may have {EVIDENCE_MAX} each");
        return Err(Unusable::Malformed(reason));
    }
    Ok(bundle)
}

/// The one name in a certificate. Fulcio gives each exactly one; of several it would not be said
/// whose word counts.
fn subject(certificate: &[u8]) -> Result<String, Unusable> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(malformed)?;
    let names = certificate.subject_alternative_name().map_err(malformed)?;
    match names.map(|names| names.value.general_names.as_slice()) {
        Some([GeneralName::RFC822Name(name) | GeneralName::URI(name)]) => Ok((*name).to_owned()),
        Some([GeneralName::OtherName(kind, value)]) if *kind == USER_NAME => user_name(value),
        _ => Err(Unusable::NotBorneOut("its certificate does not have exactly one name that is known".to_owned())),
    }
}

/// Out of its explicit tag `[0]`.
fn user_name(value: &[u8]) -> Result<String, Unusable> {
    let (rest, outer) = x509_parser::der_parser::asn1_rs::Any::from_der(value).map_err(malformed)?;
    let (inner_rest, name) = Utf8String::from_der(outer.data).map_err(malformed)?;
    if rest.is_empty() && inner_rest.is_empty() {
        return Ok(name.string());
    }
    Err(Unusable::Malformed("the name in its certificate goes on after its end".to_owned()))
}

/// The log's entry beside an older signature.
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

/// An older signature as a bundle, which says the same.
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
    // The first version of a bundle is content with a log's promise, and asks for one.
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
    /// Annotations with a certificate.
    pub(super) fn annotations(annotations: &HashMap<String, String>) -> Option<Self> {
        annotations.contains_key(CERTIFICATE).then(|| Self::Annotations(annotations.clone()))
    }
}

#[cfg(test)]
mod tests;
