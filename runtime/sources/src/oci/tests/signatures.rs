//! Tests of valid and forged signatures.

use axum::{http::StatusCode, response::IntoResponse as _};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use expect_test::{Expect, expect};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};

use super::{
    OPTIONS, reference,
    server::{Server, manifest},
    told,
};
use crate::{
    Digest, Identity, PublicKey, PullOptions, Pulled, Registry, RegistryFailure, SignaturePolicy, SignaturePolicyError,
    Signers, TrustRoot,
};

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";
/// The DER prefix before the point of a key on P-256.
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A signer with a key.
struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap())
    }

    fn key(&self) -> PublicKey {
        let der = [P256_PREFIX.as_slice(), self.0.public_key().as_ref()].concat();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der));
        PublicKey::from_pem(&pem).unwrap()
    }

    fn sign(&self, message: &[u8]) -> String {
        STANDARD.encode(self.0.sign(&SystemRandom::new(), message).unwrap())
    }

    /// A bundle as cosign 3 writes it.
    fn bundle(&self, artifact: Digest, predicate: &str) -> Value {
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1", "predicateType": predicate, "predicate": {},
            "subject": [{ "digest": { "sha256": artifact.hex() } }],
        });
        let (kind, payload) = ("application/vnd.in-toto+json", statement.to_string());
        let message = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
        let signature = self.sign(message.as_bytes());
        json!({
            "mediaType": BUNDLE,
            "verificationMaterial": { "publicKey": { "hint": "key" } },
            "dsseEnvelope": { "payload": STANDARD.encode(payload), "payloadType": kind, "signatures": [{ "sig": signature }] },
        })
    }
}

/// The text that older releases of cosign sign.
fn simple_signing(artifact: Digest) -> String {
    let image = json!({ "docker-manifest-digest": artifact.to_string() });
    let identity = json!({ "docker-reference": "registry.example/org/provider" });
    let kind = "cosign container image signature";
    json!({ "critical": { "identity": identity, "image": image, "type": kind }, "optional": null }).to_string()
}

/// Attaches bundles to an artifact, in the index of the fallback tag.
fn attach(server: &Server, artifact: Digest, bundles: &[Value]) {
    attach_as(server, artifact, BUNDLE, bundles);
}

/// As [`attach`], with layers of this type.
fn attach_as(server: &Server, artifact: Digest, kind: &str, bundles: &[Value]) {
    let entry = |bundle: &Value| {
        let text = bundle.to_string();
        let layer = (kind, server.blob(text.clone()), text.len());
        let text = manifest(&[layer]);
        let digest = server.manifest("unused", text.clone());
        // As cosign leaves it where the registry has no referrers API: the type of the
        // configuration, and not that of the bundle.
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest.to_string(), "size": text.len(),
            "artifactType": "application/vnd.oci.empty.v1+json",
        })
    };
    let entries: Vec<Value> = bundles.iter().map(entry).collect();
    server.manifest(&format!("sha256-{}", artifact.hex()), index(&entries));
}

fn index(entries: &[Value]) -> String {
    let kind = "application/vnd.oci.image.index.v1+json";
    json!({ "schemaVersion": 2, "mediaType": kind, "manifests": entries }).to_string()
}

/// Attaches a signature as cosign 2 does.
fn attach_simple(server: &Server, artifact: Digest, payload: &str, signature: &str) {
    let (config, digest) = (Digest::of(b"{}"), server.blob(payload.to_owned()));
    let text = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config.to_string(), "size": 2 },
        "layers": [{
            "mediaType": SIMPLE_SIGNING, "digest": digest.to_string(), "size": payload.len(),
            "annotations": { "dev.cosignproject.cosign/signature": signature },
        }],
    });
    server.manifest(&format!("sha256-{}.sig", artifact.hex()), text.to_string());
}

fn by_keys(keys: Vec<PublicKey>, require: usize) -> Result<SignaturePolicy, SignaturePolicyError> {
    SignaturePolicy::new(Signers { keys, ..Signers::default() }, require)
}

async fn pull(server: &Server, policy: SignaturePolicy) -> Result<Pulled, RegistryFailure> {
    let options = PullOptions { signatures: Some(policy), ..OPTIONS };
    let registry = Registry::new(super::options(server)).unwrap();
    registry.pull(&reference(server, ":v1"), None, &options).await.map(Option::unwrap)
}

async fn pull_signed(server: &Server, signer: &Signer) -> Result<Pulled, RegistryFailure> {
    pull(server, by_keys(vec![signer.key()], 1).unwrap()).await
}

/// Compares the message, with the artifact's digest replaced.
fn check(server: &Server, artifact: Digest, pulled: Result<Pulled, RegistryFailure>, expected: Expect) {
    let text = told(server, &pulled.map(|pulled| pulled.digest).unwrap_err());
    expected.assert_eq(&text.replace(&artifact.to_string(), "DIGEST"));
}

async fn refused(server: &Server, signer: &Signer, artifact: Digest, expected: Expect) {
    check(server, artifact, pull_signed(server, signer).await, expected);
}

async fn signed_component() -> (Server, Signer, Digest) {
    let server = Server::start().await;
    let artifact = server.component("v1", "component one");
    (server, Signer::new(), artifact)
}

#[tokio::test]
async fn an_unsigned_artifact_is_not_read() {
    let (server, signer, artifact) = signed_component().await;
    refused(&server, &signer, artifact, expect![
            "ArtifactUnsigned: DIGEST is not signed, and signatures are required; sign it with cosign sign REFERENCE@DIGEST, with --key KEY where keys are given, as source.oci.signatures requires; the manager then uses it"
        ]).await;
    let hex = artifact.hex();
    assert_eq!(
        server.asked(),
        [
            "HEAD /v2/org/provider/manifests/v1".to_owned(),
            format!("GET /v2/org/provider/referrers/{artifact}"),
            format!("GET /v2/org/provider/manifests/sha256-{hex}"),
            format!("GET /v2/org/provider/manifests/sha256-{hex}.sig"),
        ]
    );
}

#[tokio::test]
async fn each_form_of_a_signature_counts() {
    let (server, signer, artifact) = signed_component().await;
    attach(&server, artifact, &[signer.bundle(artifact, SIGN)]);
    assert_eq!(pull_signed(&server, &signer).await.unwrap().manifest, artifact);

    // The media type of the first versions of a bundle.
    let (server, signer, artifact) = signed_component().await;
    let kind = "application/vnd.dev.sigstore.bundle+json;version=0.1";
    attach_as(&server, artifact, kind, &[signer.bundle(artifact, SIGN)]);
    assert_eq!(pull_signed(&server, &signer).await.unwrap().manifest, artifact);

    let (server, signer, artifact) = signed_component().await;
    let text = simple_signing(artifact);
    attach_simple(&server, artifact, &text, &signer.sign(text.as_bytes()));
    assert_eq!(pull_signed(&server, &signer).await.unwrap().manifest, artifact);

    // A registry with the referrers API, which also lists other referrers.
    let (server, signer, artifact) = signed_component().await;
    attach(&server, artifact, &[signer.bundle(artifact, SIGN)]);
    let referrers = format!("/v2/org/provider/referrers/{artifact}");
    let fallback = format!("/v2/org/provider/manifests/sha256-{}", artifact.hex());
    server.move_to(&fallback, &referrers);
    assert_eq!(pull_signed(&server, &signer).await.unwrap().manifest, artifact);
}

/// Recorded signatures of cosign.
#[tokio::test]
async fn each_form_that_cosign_writes_counts() {
    let artifact = Digest::of(include_bytes!("cosign/artifact.json"));
    let hex = artifact.hex();
    let key = || PublicKey::from_pem(include_str!("cosign/cosign.pub")).unwrap();
    let policy = |key| by_keys(vec![key], 1).unwrap();
    let old = |server: &Server| {
        server.blob(include_str!("cosign/v2-payload.json"));
        server.manifest(&format!("sha256-{hex}.sig"), include_str!("cosign/v2-manifest.json"));
    };
    let new = |server: &Server| {
        server.blob(include_str!("cosign/v3-bundle.json"));
        server.manifest("listed", include_str!("cosign/v3-manifest.json"));
        server.manifest(&format!("sha256-{hex}"), include_str!("cosign/v3-index.json"));
    };
    let forms: [&dyn Fn(&Server); 2] = [&old, &new];
    for form in forms {
        let server = Server::start().await;
        server.blob("component one");
        server.manifest("v1", include_str!("cosign/artifact.json"));
        form(&server);
        let pulled = pull(&server, policy(key())).await.unwrap();
        assert_eq!((&pulled.bytes[..], pulled.manifest), (&b"component one"[..], artifact));
        let refused = pull(&server, policy(Signer::new().key())).await.unwrap_err();
        assert!(matches!(refused, RegistryFailure::WronglySigned { seen: 1, .. }), "{refused}");
    }
}

/// Recorded keyless signatures: with an entry of Rekor, with a timestamp alone, and in the form of
/// cosign 2.
#[tokio::test]
async fn each_form_that_cosign_writes_with_a_certificate_counts() {
    let artifact = Digest::of(include_bytes!("cosign/artifact.json"));
    let hex = artifact.hex();
    let older = |server: &Server| {
        server.blob(include_str!("cosign/keyless/old-payload.json"));
        server.manifest(&format!("sha256-{hex}.sig"), include_str!("cosign/keyless/old-manifest.json"));
    };
    let bundle = |server: &Server, [index, manifest, bundle]: [&'static str; 3]| {
        server.blob(bundle);
        server.manifest("listed", manifest);
        server.manifest(&format!("sha256-{hex}"), index);
    };
    let log = |server: &Server| {
        let index = include_str!("cosign/keyless/log-index.json");
        let manifest = include_str!("cosign/keyless/log-manifest.json");
        bundle(server, [index, manifest, include_str!("cosign/keyless/log-bundle.json")]);
    };
    let timestamp = |server: &Server| {
        let index = include_str!("cosign/keyless/tsa-index.json");
        let manifest = include_str!("cosign/keyless/tsa-manifest.json");
        bundle(server, [index, manifest, include_str!("cosign/keyless/tsa-bundle.json")]);
    };
    let root = include_str!("cosign/keyless/root.json");
    let without_log = include_str!("cosign/keyless/root-tsa.json");
    let forms: [&dyn Fn(&Server); 3] = [&log, &timestamp, &older];
    for (form, root) in forms.into_iter().zip([root, without_log, without_log]) {
        let server = Server::start().await;
        server.blob("component one");
        server.manifest("v1", include_str!("cosign/artifact.json"));
        form(&server);
        let pulled = pull(&server, by_identity(root, "release@skysail.example")).await.unwrap();
        assert_eq!((&pulled.bytes[..], pulled.manifest), (&b"component one"[..], artifact));
        let refused = pull(&server, by_identity(root, "somebody@skysail.example")).await.unwrap_err().to_string();
        assert!(refused.contains("is by release@skysail.example (issuer http://127.0.0.1:5081), which"), "{refused}");
    }
}

fn by_identity(root: &str, subject: &str) -> SignaturePolicy {
    let identity = Identity { issuer: "http://127.0.0.1:5081".to_owned(), subject: subject.to_owned() };
    let trust_root = Some(TrustRoot::from_json(root).unwrap());
    SignaturePolicy::new(Signers { keys: Vec::new(), identities: vec![identity], trust_root }, 1).unwrap()
}

/// One signer has a key, the other a certificate.
#[tokio::test]
async fn a_key_and_an_identity_count_as_two_signers() {
    let server = Server::start().await;
    server.blob("component one");
    let artifact = server.manifest("v1", include_str!("cosign/artifact.json"));
    let signer = Signer::new();
    let identity =
        Identity { issuer: "http://127.0.0.1:5081".to_owned(), subject: "release@skysail.example".to_owned() };
    let both = || {
        let trust_root = Some(TrustRoot::from_json(include_str!("cosign/keyless/root.json")).unwrap());
        let signers = Signers { keys: vec![signer.key()], identities: vec![identity.clone()], trust_root };
        SignaturePolicy::new(signers, 2).unwrap()
    };
    let keyless: Value = serde_json::from_str(include_str!("cosign/keyless/log-bundle.json")).unwrap();
    attach(&server, artifact, &[keyless.clone(), keyless.clone()]);
    check(
        &server,
        artifact,
        pull(&server, both()).await,
        expect![
            "ArtifactWronglySigned: DIGEST has 1 of 2 required signatures (signatures found: 2; the last invalid one is by a signer whose other signature counts, and each signer counts once); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
        ],
    );
    attach(&server, artifact, &[keyless, signer.bundle(artifact, SIGN)]);
    assert_eq!(pull(&server, both()).await.unwrap().manifest, artifact);
}

#[tokio::test]
async fn a_signature_by_an_unknown_key_for_another_artifact_or_of_another_statement_does_not_count() {
    let (server, signer, artifact) = signed_component().await;
    attach(&server, artifact, &[Signer::new().bundle(artifact, SIGN)]);
    refused(&server, &signer, artifact, expect![
            "ArtifactWronglySigned: DIGEST has 0 of 1 required signatures (signatures found: 1; the last invalid one is by none of the trusted keys); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
        ]).await;

    // A valid signature of another artifact.
    attach(&server, artifact, &[signer.bundle(Digest::of(b"another"), SIGN)]);
    refused(&server, &signer, artifact, expect![
            "ArtifactWronglySigned: DIGEST has 0 of 1 required signatures (signatures found: 1; the last invalid one is for another artifact, sha256:ae448ac86c4e8e4dec645729708ef41873ae79c6dff84eff73360989487f08e5); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
        ]).await;

    // A scan report, signed with the same key.
    attach(&server, artifact, &[signer.bundle(artifact, "https://cosign.sigstore.dev/attestation/vuln/v1")]);
    refused(&server, &signer, artifact, expect![
            "ArtifactWronglySigned: DIGEST has 0 of 1 required signatures (signatures found: 1; the last invalid one is not a signature but an attestation (https://cosign.sigstore.dev/attestation/vuln/v1)); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
        ]).await;

    // The payload under a signature was changed.
    let mut changed = signer.bundle(Digest::of(b"another"), SIGN);
    let good = signer.bundle(artifact, SIGN);
    changed["dsseEnvelope"]["payload"] = good["dsseEnvelope"]["payload"].clone();
    attach(&server, artifact, &[changed]);
    refused(&server, &signer, artifact, expect![
            "ArtifactWronglySigned: DIGEST has 0 of 1 required signatures (signatures found: 1; the last invalid one is by none of the trusted keys); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
        ]).await;

    let text = simple_signing(Digest::of(b"another"));
    attach(&server, artifact, &[]);
    attach_simple(&server, artifact, &text, &signer.sign(text.as_bytes()));
    refused(&server, &signer, artifact, expect![
            "ArtifactWronglySigned: DIGEST has 0 of 1 required signatures (signatures found: 1; the last invalid one is for another artifact, sha256:ae448ac86c4e8e4dec645729708ef41873ae79c6dff84eff73360989487f08e5); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
        ]).await;
}

#[tokio::test]
async fn as_many_keys_as_required_have_to_sign() {
    let (server, first, artifact) = signed_component().await;
    let second = Signer::new();
    let both = || by_keys(vec![first.key(), second.key()], 2).unwrap();
    attach(&server, artifact, &[first.bundle(artifact, SIGN), first.bundle(artifact, SIGN)]);
    let pulled = pull(&server, both()).await;
    check(
        &server,
        artifact,
        pulled,
        expect![
            "ArtifactWronglySigned: DIGEST has 1 of 2 required signatures (signatures found: 2; the last invalid one is by a signer whose other signature counts, and each signer counts once); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
        ],
    );
    // One in each form.
    let text = simple_signing(artifact);
    attach_simple(&server, artifact, &text, &second.sign(text.as_bytes()));
    assert_eq!(pull(&server, both()).await.unwrap().manifest, artifact);
}

#[tokio::test]
async fn the_error_of_an_invalid_signature_names_the_reason() {
    let (server, signer, artifact) = signed_component().await;
    let keyless = {
        let mut bundle = Signer::new().bundle(artifact, SIGN);
        bundle["verificationMaterial"] = json!({ "certificate": { "rawBytes": "MIIC" } });
        bundle
    };
    let text_signed = json!({ "mediaType": BUNDLE, "messageSignature": { "signature": "MEUC" } });
    let huge = json!({ "mediaType": BUNDLE, "padding": "x".repeat(300 << 10) });
    let no_base64 = json!({
        "mediaType": BUNDLE, "dsseEnvelope": { "payload": "\u{1b}", "payloadType": "", "signatures": [] },
    });
    let expected = [
        (
            keyless,
            expect![
                "ArtifactWronglySigned: DIGEST has 0 of 1 required signatures (signatures found: 1; the last invalid one was made with a certificate, and the policy has only keys); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
            ],
        ),
        (
            text_signed,
            expect![
                "ArtifactWronglySigned: DIGEST has 0 of 1 required signatures (signatures found: 1; the last invalid one cannot be read (it signs a message instead of a statement)); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
            ],
        ),
        (
            huge,
            expect![
                "ArtifactWronglySigned: DIGEST has 0 of 1 required signatures (signatures found: 1; the last invalid one has 307274 bytes, and the limit is 262144); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
            ],
        ),
        (
            no_base64,
            expect![
                "ArtifactWronglySigned: DIGEST has 0 of 1 required signatures (signatures found: 1; the last invalid one cannot be read (Invalid symbol 27, offset 0.)); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
            ],
        ),
        (
            json!([]),
            expect![
                "ArtifactWronglySigned: DIGEST has 0 of 1 required signatures (signatures found: 1; the last invalid one cannot be read (invalid length 0, expected struct Bundle with 3 elements at line 1 column 2)); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
            ],
        ),
    ];
    for (bundle, expected) in expected {
        attach(&server, artifact, &[bundle]);
        refused(&server, &signer, artifact, expected).await;
    }
}

/// The referrers of an artifact, one a page: at `?last=N` the entry N, and where the next one is.
fn in_pages(
    server: &Server,
    artifact: Digest,
    entries: Vec<Value>,
    next: impl Fn(usize) -> String + Send + Sync + 'static,
) {
    let path = format!("/v2/org/provider/referrers/{artifact}");
    server.say(move |asked| {
        let query = asked.path.strip_prefix(&path)?;
        let page: usize = query.strip_prefix("?last=").unwrap_or("0").parse().unwrap();
        let text = index(&entries.get(page).cloned().into_iter().collect::<Vec<_>>());
        Some(([("link", next(page + 1))], text).into_response())
    });
}

/// Stores bundles; returns their index entries.
fn entries(server: &Server, artifact: Digest, bundles: &[Value]) -> Vec<Value> {
    attach(server, artifact, bundles);
    let listed = server.content(&format!("/v2/org/provider/manifests/sha256-{}", artifact.hex()));
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    listed["manifests"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_signature_on_a_later_page_counts() {
    let (server, signer, artifact) = signed_component().await;
    let stranger = Signer::new();
    let bundles = [stranger.bundle(artifact, SIGN), stranger.bundle(artifact, SIGN), signer.bundle(artifact, SIGN)];
    let listed = entries(&server, artifact, &bundles);
    let path = format!("/v2/org/provider/referrers/{artifact}");
    in_pages(&server, artifact, listed.clone(), move |page| {
        if page > 2 {
            return String::new();
        }
        format!("<https://docs.example/>; rel=\"help\", <{path}?last={page}>; rel=\"next\"")
    });
    assert_eq!(pull_signed(&server, &signer).await.unwrap().manifest, artifact);
    // A relative link.
    in_pages(&server, artifact, listed, |page| format!("<?last={page}>; Rel=next"));
    assert_eq!(pull_signed(&server, &signer).await.unwrap().manifest, artifact);
}

#[tokio::test]
async fn pages_have_a_limit_and_stay_on_their_host_and_path() {
    let (server, signer, artifact) = signed_component().await;
    let listed = entries(&server, artifact, &[Signer::new().bundle(artifact, SIGN)]);
    // Endless pages.
    in_pages(&server, artifact, listed.clone(), |page| format!("<?last={page}>; rel=\"next\""));
    pull_signed(&server, &signer).await.unwrap_err();
    let asked = server.asked().iter().filter(|asked| asked.contains("/referrers/")).count();
    assert_eq!(asked, 16);
    // A link to another host: the first page was checked all the same.
    let other = Server::start().await;
    let elsewhere = [
        format!("http://{}/v2/org/provider/referrers/{artifact}", other.host),
        "/v2/org/other/manifests/latest".to_owned(),
        "//169.254.169.254/latest".to_owned(),
        "http://[".to_owned(),
    ];
    for place in elsewhere {
        in_pages(&server, artifact, listed.clone(), move |_| format!("<{place}>; rel=\"next\""));
        let refused = pull_signed(&server, &signer).await.unwrap_err();
        assert!(matches!(refused, RegistryFailure::WronglySigned { seen: 1, .. }), "{refused}");
        let asked = server.asked().iter().filter(|asked| asked.contains("/referrers/")).count();
        assert_eq!((asked, other.asked().len()), (1, 0));
    }
}

/// A registry with many signatures must not make the pull endless.
#[tokio::test]
async fn of_a_thousand_signatures_only_the_first_are_checked() {
    let (server, signer, artifact) = signed_component().await;
    let stranger = Signer::new();
    let mut bundles: Vec<Value> = (0..100).map(|_| stranger.bundle(artifact, SIGN)).collect();
    bundles.push(signer.bundle(artifact, SIGN));
    attach(&server, artifact, &bundles);
    refused(&server, &signer, artifact, expect![
            "ArtifactWronglySigned: DIGEST has 0 of 1 required signatures (signatures found: 64; the last invalid one is by none of the trusted keys); sign the artifact with the required number of trusted keys or identities, or correct source.oci.signatures"
        ]).await;
    assert!(server.asked().len() < 140, "64 signatures with two requests each");
}

#[tokio::test]
async fn signatures_that_cannot_be_fetched_cost_no_more_requests_than_others_and_few_logins() {
    let (server, signer, artifact) = signed_component().await;
    let stranger = Signer::new();
    attach(&server, artifact, &(0..100).map(|_| stranger.bundle(artifact, SIGN)).collect::<Vec<_>>());
    server.say(|asked| asked.path.contains("/blobs/").then(|| StatusCode::NOT_FOUND.into_response()));
    drop(pull_signed(&server, &signer).await.unwrap_err());
    assert!(server.asked().len() < 140, "64 signatures with two requests each");
    // A token service that gives a token for each 401.
    server.say(|asked| {
        let realm = format!("Bearer realm=\"http://{}/token\"", asked.header("host").unwrap());
        match asked.path.as_str() {
            path if path.starts_with("/token") => Some(r#"{"token":"t0ken"}"#.into_response()),
            path if path.contains("/blobs/") => {
                Some((StatusCode::UNAUTHORIZED, [("www-authenticate", realm)]).into_response())
            }
            _ => None,
        }
    });
    let refused = pull_signed(&server, &signer).await.unwrap_err();
    assert!(matches!(refused, RegistryFailure::Unauthorized { .. }), "{refused}");
    let asked = server.asked();
    let logins = asked.iter().filter(|asked| asked.contains("/token")).count();
    assert!(logins == 8 && asked.len() < 160, "{logins} logins, {} requests", asked.len());
}

/// An account that may push referrers, and not the tag, cannot hide the signature at the tag.
#[tokio::test]
async fn a_signature_at_the_tag_counts_behind_many_foreign_referrers() {
    let (server, signer, artifact) = signed_component().await;
    let stranger = Signer::new();
    let bundles: Vec<Value> = (0..100).map(|_| stranger.bundle(artifact, SIGN)).collect();
    attach(&server, artifact, &bundles);
    let text = simple_signing(artifact);
    attach_simple(&server, artifact, &text, &signer.sign(text.as_bytes()));
    assert_eq!(pull_signed(&server, &signer).await.unwrap().manifest, artifact);
}

/// While the registry fails, an invalid signature does not prove that a valid one is missing.
#[tokio::test]
async fn a_failure_of_the_registry_is_reported_instead_of_an_unknown_signature() {
    let (server, signer, artifact) = signed_component().await;
    attach(&server, artifact, &[Signer::new().bundle(artifact, SIGN)]);
    server.say(|asked| asked.path.ends_with(".sig").then(|| StatusCode::INTERNAL_SERVER_ERROR.into_response()));
    assert_eq!(pull_signed(&server, &signer).await.unwrap_err().category(), "RegistryFailed");
}

/// A valid signature counts even if another request fails.
#[tokio::test]
async fn an_error_answer_does_not_hide_a_valid_signature() {
    let (server, signer, artifact) = signed_component().await;
    let text = simple_signing(artifact);
    attach_simple(&server, artifact, &text, &signer.sign(text.as_bytes()));
    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_IMPLEMENTED, StatusCode::OK] {
        server.say(move |asked| asked.path.contains("/referrers/").then(|| (status, "<html>").into_response()));
        assert_eq!(pull_signed(&server, &signer).await.unwrap().manifest, artifact, "{status}");
    }
    // If no signature counts, the failure is reported.
    let (server, signer, artifact) = signed_component().await;
    server.say(|asked| asked.path.ends_with(".sig").then(|| StatusCode::FORBIDDEN.into_response()));
    refused(
        &server,
        &signer,
        artifact,
        expect![
            "RegistryForbidden: 127.0.0.1:PORT answers 403 Forbidden to the request for a signature's manifest; allow the account of the credentials to pull it"
        ],
    )
    .await;
}

/// The signature is still valid, but its content does not have its digest.
#[tokio::test]
async fn a_signature_with_another_digest_is_a_failure_of_the_registry() {
    let (server, signer, artifact) = signed_component().await;
    let bundle = signer.bundle(artifact, SIGN);
    attach(&server, artifact, std::slice::from_ref(&bundle));
    let digest = Digest::of(bundle.to_string().as_bytes());
    server.move_to(
        &format!("/v2/org/provider/blobs/{}", Digest::of(b"component one")),
        &format!("/v2/org/provider/blobs/{digest}"),
    );
    let failure = pull_signed(&server, &signer).await.unwrap_err();
    assert!(matches!(failure, RegistryFailure::WrongDigest { what: "a signature", .. }), "{failure}");
}

#[test]
fn a_policy_that_requires_nothing_or_cannot_be_fulfilled_is_refused() {
    let key = Signer::new().key();
    let refused = |keys: Vec<PublicKey>, require| by_keys(keys, require).unwrap_err().to_string();
    expect!["no signer is named; give the keys of the signers, as cosign public-key prints them, or their identities with a trustRoot"]
        .assert_eq(&refused(Vec::new(), 1));
    expect!["2 signatures are required from 1 keys and identities; write 1 to 1"]
        .assert_eq(&refused(vec![key.clone()], 2));
    expect!["0 signatures are required from 1 keys and identities; write 1 to 1"]
        .assert_eq(&refused(vec![key.clone()], 0));
    let twice = refused(vec![key.clone(), key.clone()], 1).replace(&key.fingerprint().to_string(), "DIGEST");
    expect!["the key DIGEST is given twice; remove one of them"].assert_eq(&twice);
}

#[test]
fn a_text_that_is_not_a_public_key_is_refused() {
    let refused = |pem: &str| PublicKey::from_pem(pem).unwrap_err().to_string();
    let pem =
        |label: &str, der: &[u8]| format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der));
    let texts = [
        (
            String::new(),
            expect![
                "no public key: it has to be a PEM text with the line BEGIN PUBLIC KEY, as cosign generate-key-pair writes to cosign.pub"
            ],
        ),
        (
            pem("ENCRYPTED SIGSTORE PRIVATE KEY", b"x"),
            expect![
                "a private key, which must stay with its owner; give the public key (cosign public-key --key cosign.key)"
            ],
        ),
        (
            pem("CERTIFICATE", b"x"),
            expect![
                "no public key: it has to be a PEM text with the line BEGIN PUBLIC KEY, as cosign generate-key-pair writes to cosign.pub"
            ],
        ),
        (pem("PUBLIC KEY", b"x"), expect!["a public key that cannot be read; write it again with cosign public-key"]),
        // On the curve secp256k1.
        (
            pem(
                "PUBLIC KEY",
                &[
                    &[
                        0x30, 0x56, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b,
                        0x81, 0x04, 0x00, 0x0a, 0x03, 0x42, 0x00, 0x04,
                    ][..],
                    &[1; 64],
                ]
                .concat(),
            ),
            expect![
                "a public key of the kind 1.2.840.10045.2.1; use ECDSA on the curve P-256 or P-384, or RSA with at least 2048 bits"
            ],
        ),
    ];
    for (text, expected) in texts {
        expected.assert_eq(&refused(&text));
    }
}
