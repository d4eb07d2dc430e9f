//! Tests of keyless signatures that must not count.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use expect_test::{Expect, expect};
use rcgen::{ExtendedKeyUsagePurpose, KeyPair, SanType};
use serde_json::{Value, json};

use super::{
    super::super::{
        PublicKey,
        policy::{SignaturePolicy, Signers},
        statement,
    },
    artifact,
    authority::{Authority, ISSUER, Leaf, NOON, SUBJECT, Wanted, envelope},
    forged, identity, judge, judged, policy, public_root, recorded, recorded_identity, refused, root, root_without_log,
    with_log, with_timestamp,
};
use crate::Digest;

#[test]
fn another_issuer_or_another_subject_is_another_identity() {
    let others = [
        identity("http://127.0.0.1:5081/", "release@skysail.example"),
        identity("https://127.0.0.1:5081", "release@skysail.example"),
        identity("http://127.0.0.1:5081", "Release@skysail.example"),
        identity("http://127.0.0.1:5081", "release@skysail.example.org"),
        identity("http://127.0.0.1:5081", "*"),
        identity("release@skysail.example", "http://127.0.0.1:5081"),
    ];
    for other in others {
        let why = judge(&root(), other, &with_log()).unwrap_err();
        assert_eq!(
            why,
            "is by release@skysail.example (issuer http://127.0.0.1:5081), which is none of the trusted identities"
        );
    }
}

#[test]
fn without_identities_a_certificate_does_not_count() {
    let key = KeyPair::generate().unwrap();
    let key = PublicKey::from_pem(&key.public_key_pem()).unwrap();
    let policy = SignaturePolicy::new(Signers { keys: vec![key], ..Signers::default() }, 1).unwrap();
    let why = judged(&policy, statement::of_bundle(with_log().to_string().as_bytes()), artifact()).unwrap_err();
    assert_eq!(why, "was made with a certificate, and the policy has only keys");
}

#[test]
fn a_signature_does_not_count_for_another_artifact() {
    let policy = policy(&root(), recorded_identity());
    let signed = statement::of_bundle(with_log().to_string().as_bytes());
    expect!["is for another artifact, sha256:014587ce5b8ee3232a5d63a5644971f6e89c57adf68d571654434a16e23ddbb5"]
        .assert_eq(&judged(&policy, signed, Digest::of(b"another")).unwrap_err());
}

#[test]
fn an_attestation_by_the_same_person_is_no_signature() {
    let attestation = recorded(include_str!("../../../tests/cosign/keyless/attestation-bundle.json"));
    refused(
        &root(),
        &attestation,
        expect!["is not a signature but an attestation (https://cosign.sigstore.dev/attestation/vuln/v1)"],
    );
}

#[test]
fn a_certificate_counts_only_at_a_time_that_an_authority_confirms() {
    let authority = Authority::new();
    let leaf = authority.leaf_of_release();
    let envelope = envelope(&leaf.key, artifact());
    let at = |time| authority.bundle(&leaf, &envelope, time);
    const DAY: i64 = 86_400;
    forged(
        &authority.root(),
        &at(NOON + DAY),
        expect![
            "was made with a certificate that the trustRoot does not verify (certificate chain is invalid: certificate chain validation failed: CertExpired { time: UnixTime(1767355200), not_after: UnixTime(1767312000) })"
        ],
    );
    forged(
        &authority.root(),
        &at(NOON - DAY),
        expect![
            "was made with a certificate that the trustRoot does not verify (certificate chain is invalid: certificate chain validation failed: CertNotValidYet { time: UnixTime(1767182400), not_before: UnixTime(1767225600) })"
        ],
    );
    // No authority confirms the time: an entry with an inclusion proof alone has none.
    let mut nobody = at(NOON);
    nobody["verificationMaterial"]["tlogEntries"][0].as_object_mut().unwrap().remove("inclusionPromise");
    forged(
        &authority.root(),
        &nobody,
        expect![
            "was made with a certificate that the trustRoot does not verify (no verified timestamp: No verified timestamp found. V1 bundles require either an RFC3161 timestamp or a tlog entry with both an integrated time and an inclusion_promise (SET).)"
        ],
    );
    let mut nobody = with_log();
    nobody["verificationMaterial"].as_object_mut().unwrap().remove("timestampVerificationData");
    refused(
        &root(),
        &nobody,
        expect![
            "was made with a certificate that the trustRoot does not verify (no verified timestamp: V2 bundle requires RFC3161 timestamp but none could be verified. V2 tlog entries have no integrated time by design. Ensure TSA certificates are present in the trusted root.)"
        ],
    );
    // The time of the log's promise was changed.
    let mut changed = at(NOON + DAY);
    changed["verificationMaterial"]["tlogEntries"][0]["integratedTime"] = json!(NOON.to_string());
    forged(
        &authority.root(),
        &changed,
        expect![
            "was made with a certificate that the trustRoot does not verify (invalid inclusion promise: SET verification failed: Verification error: ECDSA_P256_SHA256 does not verify)"
        ],
    );
}

#[test]
fn an_authority_counts_only_in_its_validity_period_in_the_root() {
    let before = json!({ "start": "2020-01-01T00:00:00Z", "end": "2025-12-31T00:00:00Z" });
    let authority = Authority::new();
    let leaf = authority.leaf_of_release();
    let bundle = authority.bundle(&leaf, &envelope(&leaf.key, artifact()), NOON);
    let mut over = authority.root();
    over["certificateAuthorities"][0]["validFor"] = before.clone();
    forged(
        &over,
        &bundle,
        expect![
            "was made with a certificate that the trustRoot does not verify (no trusted certificate authority is valid at 2026-01-01T12:00:00Z)"
        ],
    );
    let mut over = authority.root();
    over["tlogs"][0]["publicKey"]["validFor"] = before.clone();
    let why = judge(&over, identity(ISSUER, SUBJECT), &bundle).unwrap_err();
    assert!(why.contains("No log key valid at integrated time 2026-01-01T12:00:00Z"), "{why}");
    let mut over = root();
    over["timestampAuthorities"][0]["validFor"] = before;
    let why = judge(&over, recorded_identity(), &with_log()).unwrap_err();
    assert!(why.contains("timestamp"), "{why}");
}

#[test]
fn a_time_of_an_unknown_authority_does_not_count() {
    // A timestamp authority.
    let mut root = root();
    root["timestampAuthorities"] = public_root()["timestampAuthorities"].clone();
    refused(
        &root,
        &with_log(),
        expect![
            "was made with a certificate that the trustRoot does not verify (invalid RFC 3161 timestamp: TSA timestamp verification failed: Failed to verify timestamp signature: CMS signer does not match any trusted TSA certificate)"
        ],
    );
    root["timestampAuthorities"] = json!([]);
    refused(
        &root,
        &with_log(),
        expect![
            "was made with a certificate that the trustRoot does not verify (invalid RFC 3161 timestamp: TSA timestamp verification failed: no timestamp authorities configured in trusted root)"
        ],
    );
    // A log.
    let authority = Authority::new();
    let leaf = authority.leaf_of_release();
    let bundle = authority.bundle(&leaf, &envelope(&leaf.key, artifact()), NOON);
    let mut root = authority.root();
    root["tlogs"] = Authority::new().root()["tlogs"].clone();
    let why = judge(&root, identity(ISSUER, SUBJECT), &bundle).unwrap_err();
    assert!(why.contains("No log key valid at integrated time"), "{why}");
}

#[test]
fn a_timestamp_of_another_signature_does_not_count() {
    let mut moved = with_log();
    moved["verificationMaterial"]["timestampVerificationData"] =
        with_timestamp()["verificationMaterial"]["timestampVerificationData"].clone();
    let why = judge(&root(), recorded_identity(), &moved).unwrap_err();
    assert!(why.contains("timestamp"), "{why}");
}

#[test]
fn a_forged_promise_of_the_log_does_not_count() {
    let authority = Authority::new();
    let leaf = authority.leaf_of_release();
    let envelope = envelope(&leaf.key, artifact());
    let bundle = authority.bundle(&leaf, &envelope, NOON);
    let stranger = Authority::new().bundle(&leaf, &envelope, NOON);
    let place = "/verificationMaterial/tlogEntries/0/inclusionPromise/signedEntryTimestamp";
    for other in [stranger.pointer(place).unwrap().clone(), json!("MEUC"), json!("")] {
        let mut changed = bundle.clone();
        *changed.pointer_mut(place).unwrap() = other;
        let why = judge(&authority.root(), identity(ISSUER, SUBJECT), &changed).unwrap_err();
        assert!(why.contains("SET verification failed"), "{why}");
    }
    // A forged checkpoint does not count either.
    let mut changed = bundle;
    let place = "/verificationMaterial/tlogEntries/0/inclusionProof/checkpoint";
    *changed.pointer_mut(place).unwrap() = stranger.pointer(place).unwrap().clone();
    forged(
        &authority.root(),
        &changed,
        expect![
            "was made with a certificate that the trustRoot does not verify (invalid checkpoint: No matching Rekor key found for checkpoint signature)"
        ],
    );
}

#[test]
fn a_log_entry_for_another_signature_does_not_count() {
    let authority = Authority::new();
    let (leaf, other) = (authority.leaf_of_release(), authority.leaf_of_release());
    let signed = envelope(&leaf.key, artifact());
    let bundle = authority.bundle(&leaf, &signed, NOON);
    let place = "/verificationMaterial/tlogEntries/0";
    let others = [
        // The same content, signed again.
        (
            authority.bundle(&leaf, &envelope(&leaf.key, artifact()), NOON),
            expect![
                "was made with a certificate that the trustRoot does not verify (log entry does not match the bundle: DSSE signature in bundle does not match any signature in Rekor entry (signature or verifier mismatch))"
            ],
        ),
        // Another content.
        (
            authority.bundle(&leaf, &envelope(&leaf.key, Digest::of(b"another")), NOON),
            expect![
                "was made with a certificate that the trustRoot does not verify (log entry does not match the bundle: DSSE payload hash mismatch: computed ceac6e79eb39ec0598b89bbc1cbbfbedd545203188278feccff3f1387ddcf9f8, expected 712901e023e7448cc9cf218b21381fd420c597b93ed20894e4f0d948d773a70f)"
            ],
        ),
        // Another certificate.
        (
            authority.bundle(&other, &signed, NOON),
            expect![
                "was made with a certificate that the trustRoot does not verify (log entry does not match the bundle: DSSE signature in bundle does not match any signature in Rekor entry (signature or verifier mismatch))"
            ],
        ),
    ];
    for (entry, expected) in others {
        let mut moved = bundle.clone();
        *moved.pointer_mut(place).unwrap() = entry.pointer(place).unwrap().clone();
        forged(&authority.root(), &moved, expected);
    }
}

#[test]
fn a_certificate_of_another_authority_or_for_another_usage_is_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let forge = |leaf: &Leaf, expected: Expect| {
        let bundle = authority.bundle(leaf, &envelope(&leaf.key, artifact()), NOON);
        forged(&authority.root(), &bundle, expected);
    };
    forge(
        &stranger.leaf_of_release(),
        expect![
            "was made with a certificate that the trustRoot does not verify (certificate chain is invalid: certificate chain validation failed: InvalidSignatureForPublicKey)"
        ],
    );
    let usage = ExtendedKeyUsagePurpose::ServerAuth;
    forge(
        &authority.leaf(Wanted { usage, ..Wanted::default() }),
        expect![
            "was made with a certificate that the trustRoot does not verify (certificate chain is invalid: certificate chain validation failed: RequiredEkuNotFoundContext(RequiredEkuNotFoundContext { required: KeyPurposeId(1.3.6.1.5.5.7.3.3), present: [KeyPurposeId(1.3.6.1.5.5.7.3.1)] }))"
        ],
    );
    forge(
        &authority.leaf(Wanted { issuer: None, ..Wanted::default() }),
        expect!["was made with a certificate that the trustRoot does not verify (its certificate names no issuer)"],
    );
    let name = |name: &str| SanType::Rfc822Name(name.try_into().unwrap());
    let names = vec![name(SUBJECT), name("somebody@else.example")];
    forge(
        &authority.leaf(Wanted { names, ..Wanted::default() }),
        expect![
            "was made with a certificate that the trustRoot does not verify (its certificate does not have exactly one supported name)"
        ],
    );
    forge(
        &authority.leaf(Wanted { names: Vec::new(), ..Wanted::default() }),
        expect![
            "was made with a certificate that the trustRoot does not verify (its certificate does not have exactly one supported name)"
        ],
    );
}

#[test]
fn a_signature_by_another_key_than_the_certificates_is_refused() {
    let authority = Authority::new();
    let leaf = authority.leaf_of_release();
    let by_another = envelope(&KeyPair::generate().unwrap(), artifact());
    forged(
        &authority.root(),
        &authority.bundle(&leaf, &by_another, NOON),
        expect![
            "was made with a certificate that the trustRoot does not verify (invalid signature: DSSE signature verification failed: Verification error: ECDSA_P256_SHA256 does not verify)"
        ],
    );
}

/// The content of the root decides which proofs are required.
#[test]
fn a_bundle_needs_every_proof_that_the_root_requires() {
    // The root has a log, and the bundle no entry.
    refused(
        &root(),
        &with_timestamp(),
        expect![
            "was made with a certificate that the trustRoot does not verify (Bundle error: application/vnd.dev.sigstore.bundle.v0.3+json bundle must have an inclusion proof)"
        ],
    );
    // The root has a certificate transparency log, and the certificate no timestamp of it.
    let mut seen = root();
    seen["ctlogs"] = public_root()["ctlogs"].clone();
    refused(
        &seen,
        &with_log(),
        expect![
            "was made with a certificate that the trustRoot does not verify (invalid signed certificate timestamp: certificate is missing SCT extension (Signed Certificate Timestamp))"
        ],
    );
    // An entry of a log that is not in the root does not replace one of the root's log.
    let authority = Authority::new();
    let leaf = authority.leaf_of_release();
    let bundle = authority.bundle(&leaf, &envelope(&leaf.key, artifact()), NOON);
    let mut root = authority.root();
    root["tlogs"] = json!([]);
    root["timestampAuthorities"] = public_root()["timestampAuthorities"].clone();
    let why = judge(&root, identity(ISSUER, SUBJECT), &bundle).unwrap_err();
    assert!(why.contains("No log key valid at integrated time"), "{why}");
}

#[test]
fn a_bundle_with_two_signers_is_refused() {
    let mut both = with_log();
    both["verificationMaterial"]["publicKey"] = json!({ "hint": "key" });
    refused(&root(), &both, expect!["cannot be read (it has more than one key or certificate)"]);
    let mut both = with_log();
    let certificate = both["verificationMaterial"]["certificate"].clone();
    both["verificationMaterial"]["x509CertificateChain"] = json!({ "certificates": [certificate] });
    refused(&root(), &both, expect!["cannot be read (it has more than one key or certificate)"]);
    let mut both = with_log();
    both["messageSignature"] = json!({ "signature": both["dsseEnvelope"]["signatures"][0]["sig"] });
    refused(&root(), &both, expect!["cannot be read (it has two contents)"]);
    // The first of two contents is of another signer.
    let text = with_log().to_string();
    let twice = text.replacen(r#""dsseEnvelope":"#, r#""dsseEnvelope":null,"dsseEnvelope":"#, 1);
    assert_ne!(twice, text);
    assert!(statement::of_bundle(twice.as_bytes()).is_err());
}

#[test]
fn a_list_beyond_its_bound_is_refused() {
    let mut many = with_log();
    let entries = many["verificationMaterial"]["tlogEntries"].as_array_mut().unwrap();
    *entries = vec![entries[0].clone(); 9];
    refused(
        &root(),
        &many,
        expect!["cannot be read (the limit of certificates, timestamps and log entries is 8 each)"],
    );
    let mut many = with_log();
    let times = many["verificationMaterial"]["timestampVerificationData"]["rfc3161Timestamps"].as_array_mut().unwrap();
    *times = vec![times[0].clone(); 9];
    refused(
        &root(),
        &many,
        expect!["cannot be read (the limit of certificates, timestamps and log entries is 8 each)"],
    );
    let mut many = with_log();
    let certificate = many["verificationMaterial"].as_object_mut().unwrap().remove("certificate").unwrap();
    many["verificationMaterial"]["x509CertificateChain"] = json!({ "certificates": vec![certificate; 9] });
    many["mediaType"] = json!("application/vnd.dev.sigstore.bundle+json;version=0.2");
    refused(
        &root(),
        &many,
        expect!["cannot be read (the limit of certificates, timestamps and log entries is 8 each)"],
    );
}

/// Every text and number of a bundle that a verifier uses.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, field)| places(field, &format!("{at}/{name}"), found)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| places(item, &format!("{at}/{index}"), found));
        }
        _ => found.push(at.to_owned()),
    }
}

#[test]
fn garbage_at_any_place_is_refused() {
    let own = {
        let authority = Authority::new();
        let leaf = authority.leaf_of_release();
        let bundle = authority.bundle(&leaf, &envelope(&leaf.key, artifact()), NOON);
        (policy(&authority.root(), identity(ISSUER, SUBJECT)), bundle)
    };
    let real = (policy(&root(), recorded_identity()), with_log());
    let mut tried = 0;
    for (policy, bundle) in [real, own] {
        let mut all = Vec::new();
        places(&bundle, "", &mut all);
        for place in all {
            // Rekor 2 repeats these in the signed part, and only that part is read.
            let again = bundle.pointer("/verificationMaterial/tlogEntries/0/kindVersion/version")
                == Some(&json!("0.0.2"))
                && ["/inclusionProof/rootHash", "/inclusionProof/treeSize"].iter().any(|end| place.ends_with(end));
            if again
                || place.ends_with("/logId/keyId")
                    && bundle.pointer("/verificationMaterial/tlogEntries/0/inclusionPromise").is_none()
            {
                continue;
            }
            let was = bundle.pointer(&place).unwrap().as_str().unwrap_or_default().to_owned();
            let middle = was.len() / 2;
            let turned: String = was
                .char_indices()
                .map(|(at, c)| {
                    if at != middle {
                        c
                    } else if c == 'A' {
                        'B'
                    } else {
                        'A'
                    }
                })
                .collect();
            for garbage in
                [json!(turned), json!(""), json!("\u{0}"), json!("AAAA"), json!(-1), json!([]), json!({}), json!(null)]
            {
                let mut changed = bundle.clone();
                *changed.pointer_mut(&place).unwrap() = garbage.clone();
                let signed = statement::of_bundle(changed.to_string().as_bytes());
                assert!(judged(&policy, signed, artifact()).is_err(), "{place}: {garbage} in place of {was:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 200, "{tried}");
}

/// Invalid DER causes no panic, and never another identity.
#[test]
fn a_changed_byte_in_a_certificate_or_a_timestamp_never_changes_the_identity() {
    let policy = policy(&root_without_log(), recorded_identity());
    let certificate = "/verificationMaterial/certificate/rawBytes";
    let timestamp = "/verificationMaterial/timestampVerificationData/rfc3161Timestamps/0/signedTimestamp";
    let judge = |place: &str, der: &[u8]| {
        let mut changed = with_timestamp();
        *changed.pointer_mut(place).unwrap() = json!(STANDARD.encode(der));
        judged(&policy, statement::of_bundle(changed.to_string().as_bytes()), artifact())
    };
    for place in [certificate, timestamp] {
        let der = STANDARD.decode(with_timestamp().pointer(place).unwrap().as_str().unwrap()).unwrap();
        judge(place, &der).unwrap();
        let mut counted = 0;
        for at in 0..der.len() {
            let mut changed = der.clone();
            changed[at] ^= if at % 2 == 0 { 0x01 } else { 0x80 };
            counted += usize::from(judge(place, &changed).is_ok());
            if at % 8 == 0 {
                judge(place, &der[..at]).unwrap_err();
            }
        }
        // Some bytes of a timestamp are neither signed nor read; a certificate has no such bytes.
        let unread = if place == timestamp { 64 } else { 0 };
        assert!(counted <= unread, "{place}: {counted}");
    }
}
