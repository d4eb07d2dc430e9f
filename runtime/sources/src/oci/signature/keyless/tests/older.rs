//! Tests of keyless signatures of cosign 1 and 2.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use expect_test::{Expect, expect};
use rcgen::{PublicKeyData as _, SigningKey as _};
use serde_json::json;

use super::{
    super::{super::statement, CERTIFICATE, LOG_ENTRY},
    artifact,
    authority::{Authority, ISSUER, Leaf, NOON, SUBJECT, plain_body},
    identity, judged, policy,
};
use crate::Digest;

/// A plain signature with its annotations.
fn older(authority: &Authority, leaf: &Leaf, payload: &str, time: i64) -> HashMap<String, String> {
    let signature = STANDARD.encode(leaf.key.sign(payload.as_bytes()).unwrap());
    let entry = authority.entry(plain_body(&leaf.der, payload.as_bytes(), &signature), time);
    let id = Digest::of(&authority.log.subject_public_key_info());
    let entry = json!({
        "SignedEntryTimestamp": entry["inclusionPromise"]["signedEntryTimestamp"],
        "Payload": { "body": entry["canonicalizedBody"], "integratedTime": time, "logIndex": 0, "logID": id.hex() },
    });
    [(statement::SIGNATURE_ANNOTATION, signature), (CERTIFICATE, leaf.pem()), (LOG_ENTRY, entry.to_string())]
        .map(|(name, text)| (name.to_owned(), text))
        .into()
}

fn payload(artifact: Digest) -> String {
    let image = json!({ "docker-manifest-digest": artifact.to_string() });
    json!({ "critical": { "identity": {}, "image": image, "type": "cosign container image signature" } }).to_string()
}

/// A log, a valid signature, and another one of the same text by the same signer.
struct World {
    authority: Authority,
    leaf: Leaf,
    text: String,
    good: HashMap<String, String>,
    another: HashMap<String, String>,
}

impl World {
    fn new() -> Self {
        let authority = Authority::new();
        let (leaf, text) = (authority.leaf_of_release(), payload(artifact()));
        let good = older(&authority, &leaf, &text, NOON);
        let another = older(&authority, &authority.leaf_of_release(), &text, NOON);
        Self { authority, leaf, text, good, another }
    }

    fn judge(&self, payload: &str, annotations: &HashMap<String, String>) -> Result<(), String> {
        let policy = policy(&self.authority.root(), identity(ISSUER, SUBJECT));
        let signed = statement::of_simple_signing(payload.as_bytes().to_vec(), annotations);
        judged(&policy, signed, artifact())
    }

    #[track_caller]
    fn refused(&self, annotations: &HashMap<String, String>, expected: Expect) {
        expected.assert_eq(&self.judge(&self.text, annotations).unwrap_err());
    }

    /// Replaces one annotation.
    #[track_caller]
    fn changed(&self, name: &str, text: &str, expected: Expect) {
        let mut changed = self.good.clone();
        changed.insert(name.to_owned(), text.to_owned());
        self.refused(&changed, expected);
    }
}

#[test]
fn a_signature_of_cosign_2_counts_with_the_logs_promise() {
    let world = World::new();
    world.judge(&world.text, &world.good).unwrap();
    world.judge(&world.text, &world.another).unwrap();
    // Without the promise, with that of another signature, and with an incomplete one.
    world.changed(LOG_ENTRY, "", expect![
            "was made with a certificate that the trustRoot does not verify (Bundle error: application/vnd.dev.sigstore.bundle+json;version=0.2 bundle must have an inclusion proof)"
        ]);
    world.changed(LOG_ENTRY, &world.another[LOG_ENTRY], expect![
            "was made with a certificate that the trustRoot does not verify (log entry does not match the bundle: certificate in bundle does not match certificate in Rekor entry)"
        ]);
    world.changed(LOG_ENTRY, "{}", expect!["cannot be read (missing field `SignedEntryTimestamp` at line 1 column 2)"]);
    // At a time outside of the certificate's validity, and by an unknown log.
    let later = older(&world.authority, &world.leaf, &world.text, NOON + 86_400);
    world.refused(&later, expect![
            "was made with a certificate that the trustRoot does not verify (certificate chain is invalid: certificate chain validation failed: CertExpired { time: UnixTime(1767355200), not_after: UnixTime(1767312000) })"
        ]);
    let unknown = older(&Authority::new(), &world.leaf, &world.text, NOON);
    let why = world.judge(&world.text, &unknown).unwrap_err();
    assert!(why.contains("No log key valid at integrated time"), "{why}");
}

#[test]
fn a_signature_of_cosign_2_has_to_match_its_certificate_and_its_text() {
    let world = World::new();
    world.changed(CERTIFICATE, &world.another[CERTIFICATE], expect![
            "was made with a certificate that the trustRoot does not verify (invalid signature: signature verification failed: Verification error: ECDSA_P256_SHA256 does not verify)"
        ]);
    world.changed(CERTIFICATE, "", expect![
            "was made with a certificate that the trustRoot does not verify (invalid bundle: bundle has no signing certificate)"
        ]);
    world.changed(
        CERTIFICATE,
        &world.leaf.pem().repeat(9),
        expect!["cannot be read (the limit of certificates, timestamps and log entries is 8 each)"],
    );
    let name = statement::SIGNATURE_ANNOTATION;
    world.changed(name, &world.another[name], expect![
            "was made with a certificate that the trustRoot does not verify (invalid signature: signature verification failed: Verification error: ECDSA_P256_SHA256 does not verify)"
        ]);
    let why = world.judge(&format!("{} ", world.text), &world.good).unwrap_err();
    expect![
            "was made with a certificate that the trustRoot does not verify (invalid signature: signature verification failed: Verification error: ECDSA_P256_SHA256 does not verify)"
        ].assert_eq(&why);
    let stranger = older(&world.authority, &Authority::new().leaf_of_release(), &world.text, NOON);
    world.refused(&stranger, expect![
            "was made with a certificate that the trustRoot does not verify (certificate chain is invalid: certificate chain validation failed: InvalidSignatureForPublicKey)"
        ]);
}
