//! Tests of valid keyless signatures; the submodules test forged signatures and the operator's
//! settings.

mod attacks;
mod authority;
mod older;
mod settings;

use expect_test::{Expect, expect};
use rcgen::SanType;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};

use self::authority::{Authority, ISSUER, NOON, SUBJECT, Wanted, envelope};
use super::{
    super::{
        policy::{SignaturePolicy, Signer, Signers},
        statement::{self, Signed, Unusable},
    },
    Identity, TrustRoot, subject,
};
use crate::Digest;

/// The digest of the artifact of the recorded signatures.
fn artifact() -> Digest {
    Digest::of(include_bytes!("../../tests/cosign/artifact.json"))
}

fn recorded(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A bundle with a real log and a real timestamp authority.
fn with_log() -> Value {
    recorded(include_str!("../../tests/cosign/keyless/log-bundle.json"))
}

/// A bundle with a real timestamp authority alone.
fn with_timestamp() -> Value {
    recorded(include_str!("../../tests/cosign/keyless/tsa-bundle.json"))
}

/// The root that verifies `with_log`.
fn root() -> Value {
    recorded(include_str!("../../tests/cosign/keyless/root.json"))
}

/// The root that verifies `with_timestamp`.
fn root_without_log() -> Value {
    recorded(include_str!("../../tests/cosign/keyless/root-tsa.json"))
}

fn public_root() -> Value {
    recorded(include_str!("../../tests/cosign/keyless/public-root.json"))
}

fn identity(issuer: &str, subject: &str) -> Identity {
    Identity { issuer: issuer.to_owned(), subject: subject.to_owned() }
}

fn recorded_identity() -> Identity {
    identity("http://127.0.0.1:5081", "release@skysail.example")
}

fn policy(root: &Value, identity: Identity) -> SignaturePolicy {
    let trust_root = Some(TrustRoot::from_json(&root.to_string()).unwrap());
    SignaturePolicy::new(Signers { identities: vec![identity], trust_root, ..Signers::default() }, 1).unwrap()
}

fn judged(policy: &SignaturePolicy, signed: Result<Signed, Unusable>, artifact: Digest) -> Result<(), String> {
    let by = signed.and_then(|signed| policy.judge(&signed, artifact)).map_err(|why| why.to_string())?;
    assert_eq!(by, [Signer::Identity(0)]);
    Ok(())
}

fn judge(root: &Value, identity: Identity, bundle: &Value) -> Result<(), String> {
    judged(&policy(root, identity), statement::of_bundle(bundle.to_string().as_bytes()), artifact())
}

#[track_caller]
fn refused(root: &Value, bundle: &Value, expected: Expect) {
    expected.assert_eq(&judge(root, recorded_identity(), bundle).unwrap_err());
}

/// A bundle of the tests' own authority.
#[track_caller]
fn forged(root: &Value, bundle: &Value, expected: Expect) {
    expected.assert_eq(&judge(root, identity(ISSUER, SUBJECT), bundle).unwrap_err());
}

#[test]
fn what_cosign_signed_with_fulcio_a_timestamp_authority_and_rekor_counts() {
    judge(&root(), recorded_identity(), &with_log()).unwrap();
    judge(&root_without_log(), recorded_identity(), &with_timestamp()).unwrap();
}

/// With Rekor 1, the certificate transparency log and Fulcio of the public instance.
#[test]
fn a_bundle_of_the_public_instance_is_verified() {
    let text = include_bytes!("../../tests/cosign/keyless/public-attestation.json");
    let digest = "sha256:732112270d7e59418a8c080b134b24cabd67d250d0d0147a97ed95ba5c280aa4".parse().unwrap();
    let root = TrustRoot::from_json(&public_root().to_string()).unwrap();
    let signed = statement::of_bundle(text).unwrap();
    let signer = root.signer(signed.certified().unwrap(), signed.message(), digest);
    expect!["cody@soyland.com (issuer https://github.com/login/oauth)"].assert_eq(&signer.unwrap().to_string());
    // The bundle is valid, but an attestation and not a signature.
    let policy = policy(&public_root(), identity("https://github.com/login/oauth", "cody@soyland.com"));
    expect!["is not a signature but an attestation (https://cosign.sigstore.dev/attestation/v1)"]
        .assert_eq(&judged(&policy, Ok(signed), digest).unwrap_err());
    // Without the certificate transparency log.
    let mut without = public_root();
    without["ctlogs"].as_array_mut().unwrap().retain(|log| log["publicKey"]["validFor"]["end"].is_string());
    let root = TrustRoot::from_json(&without.to_string()).unwrap();
    let signed = statement::of_bundle(text).unwrap();
    let why = root.signer(signed.certified().unwrap(), signed.message(), digest).unwrap_err();
    expect!["was made with a certificate that the trustRoot does not verify (invalid signed certificate timestamp: SCT signature verification failed: Verification error: key not found or not valid at 2025-02-28T19:18:11.145Z: dd3d306ac6c7113263191e1c99673702a24a5eb8de3cadff878a72802f29ee8e)"].assert_eq(&why.to_string());
}

#[test]
fn a_signature_of_the_tests_own_authority_counts() {
    let authority = Authority::new();
    let leaf = authority.leaf_of_release();
    let bundle = authority.bundle(&leaf, &envelope(&leaf.key, artifact()), NOON);
    judge(&authority.root(), identity(ISSUER, SUBJECT), &bundle).unwrap();
    // The first version of a bundle had chains, and the log's promise alone.
    let mut first = bundle;
    first["mediaType"] = json!("application/vnd.dev.sigstore.bundle+json;version=0.1");
    let certificate = first["verificationMaterial"].as_object_mut().unwrap().remove("certificate").unwrap();
    first["verificationMaterial"]["x509CertificateChain"] = json!({ "certificates": [certificate] });
    first["verificationMaterial"]["tlogEntries"][0].as_object_mut().unwrap().remove("inclusionProof");
    judge(&authority.root(), identity(ISSUER, SUBJECT), &first).unwrap();
}

#[test]
fn each_kind_of_name_is_a_subject() {
    let authority = Authority::new();
    let of = |name: SanType| subject(&authority.leaf(Wanted { names: vec![name], ..Wanted::default() }).der);
    assert_eq!(of(SanType::Rfc822Name("a@b".try_into().unwrap())).unwrap(), "a@b");
    assert_eq!(
        of(SanType::URI("https://a/b@refs/heads/main".try_into().unwrap())).unwrap(),
        "https://a/b@refs/heads/main"
    );
    // A user name in a certificate of Fulcio.
    let pem = include_bytes!("../../tests/cosign/keyless/user-name.pem");
    assert_eq!(subject(&CertificateDer::from_pem_slice(pem).unwrap()).unwrap(), "foo!oidc.local");
    // A DNS name is not an identity.
    assert!(of(SanType::DnsName("a.example".try_into().unwrap())).is_err());
    assert!(subject(b"").is_err() && subject(&[0x30; 400]).is_err());
}
