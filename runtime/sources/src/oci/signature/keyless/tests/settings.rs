//! Tests of the operator's settings.

use std::collections::BTreeSet;

use expect_test::expect;
use serde_json::json;

use super::{
    super::{
        super::policy::{SignaturePolicy, SignaturePolicyError, Signers},
        Identity, TrustRoot,
    },
    identity, policy, recorded_identity, root, root_without_log, with_log,
};

#[test]
fn a_text_that_is_not_a_trusted_root_is_refused() {
    let refused = |text: &str| TrustRoot::from_json(text).unwrap_err().to_string();
    let without = |field: &str| {
        let mut root = root();
        root[field] = json!([]);
        root
    };
    let mut broken = root();
    broken["certificateAuthorities"][0]["certChain"]["certificates"][0]["rawBytes"] = json!("AAAA");
    let mut twice = root();
    twice["tlogs"] = json!([root()["tlogs"][0], root()["tlogs"][0]]);
    let mut timeless = without("tlogs");
    timeless["timestampAuthorities"] = json!([]);
    expect!["not a trusted root (failed to parse JSON: EOF while parsing a value at line 1 column 0); give the trusted_root.json of the Sigstore instance, as cosign trusted-root create writes it"].assert_eq(&refused(""));
    expect![[r#"not a trusted root (its media type is "application/vnd.dev.sigstore.bundle.v0.3+json"); give the trusted_root.json of the Sigstore instance, as cosign trusted-root create writes it"#]].assert_eq(&refused(&with_log().to_string()));
    expect!["a trusted root without certificate authorities; add that of Fulcio (cosign trusted-root create --fulcio)"]
        .assert_eq(&refused(&without("certificateAuthorities").to_string()));
    expect!["a trusted root with neither a transparency log nor a timestamp authority, so that the time of a signature cannot be verified; add one (cosign trusted-root create --rekor, --tsa)"].assert_eq(&refused(&timeless.to_string()));
    expect![
        "an invalid trusted root (invalid trusted certificate: TrailingData(SignedData)); create it again (cosign trusted-root create)"
    ]
    .assert_eq(&refused(&broken.to_string()));
    expect!["an invalid trusted root (invalid trusted root: duplicate trusted log ID: 89dfaf7aa562d3896316a5c28d4268893ae5d570448bfa7c186eefa8525941ce); create it again (cosign trusted-root create)"].assert_eq(&refused(&twice.to_string()));
    expect!["not a trusted root: it has 307200 bytes, and the limit is 262144"]
        .assert_eq(&refused(&" ".repeat(300 << 10)));
}

#[test]
fn a_policy_with_identities_that_cannot_be_fulfilled_is_refused() {
    let root = || Some(TrustRoot::from_json(&root().to_string()).unwrap());
    let refused = |identities: Vec<Identity>, trust_root, require| {
        let signers = Signers { keys: Vec::new(), identities, trust_root };
        SignaturePolicy::new(signers, require).map_err(|error: SignaturePolicyError| error.to_string()).unwrap_err()
    };
    let one = recorded_identity;
    expect![
        "identities are given without a trustRoot; give the trusted_root.json of the Sigstore instance that they sign with"
    ]
    .assert_eq(&refused(vec![one()], None, 1));
    expect!["a trustRoot is given without identities; name the identities that may sign, because anyone can get a certificate of its CA"]
        .assert_eq(&refused(Vec::new(), root(), 1));
    expect!["the identity release@skysail.example (issuer http://127.0.0.1:5081) is given twice; remove one of them"]
        .assert_eq(&refused(vec![one(), one()], root(), 1));
    expect!["2 signatures are required from 1 keys and identities; write 1 to 1"].assert_eq(&refused(
        vec![one()],
        root(),
        2,
    ));
    expect!["17 identities are given, and the limit is 16"].assert_eq(&refused(vec![one(); 17], root(), 1));
    expect!["the issuer of an identity is empty, too long or has invalid characters; write it as in the certificate, in 1 to 1024 bytes and without spaces around it"].assert_eq(&refused(vec![identity("", "a")], root(), 1));
    expect!["the subject of an identity is empty, too long or has invalid characters; write it as in the certificate, in 1 to 1024 bytes and without spaces around it"].assert_eq(&refused(vec![identity("a", "a ")], root(), 1));
    expect!["the subject of an identity is empty, too long or has invalid characters; write it as in the certificate, in 1 to 1024 bytes and without spaces around it"].assert_eq(&refused(vec![identity("a", &"a".repeat(1025))], root(), 1));
}

#[test]
fn policies_with_different_roots_or_identities_are_different() {
    let shown = [
        policy(&root(), recorded_identity()),
        policy(&root_without_log(), recorded_identity()),
        policy(&root(), identity("a", "b")),
        policy(&root(), identity("b", "a")),
    ]
    .map(|policy| policy.to_string());
    let different: BTreeSet<&String> = shown.iter().collect();
    assert_eq!(different.len(), shown.len(), "{shown:#?}");
}
