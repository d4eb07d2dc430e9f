//! Valid and invalid sources.

use std::{fs, path::Path};

use expect_test::{Expect, expect};

use super::ComponentSource;
use crate::provider_file::{ProviderFileError, load};

fn read(folder: &Path, source: &str) -> Result<ComponentSource, ProviderFileError> {
    let text = format!(
        "apiVersion: skysail.dev/v1alpha1\nkind: Provider\nmetadata: {{name: sim}}\nspec:\n  source:\n{source}"
    );
    let path = folder.join("providers.yaml");
    fs::write(&path, text).unwrap();
    Ok(load(&path)?.providers.remove(0).source)
}

#[track_caller]
fn refused(source: &str, expected: Expect) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("not.pem"), "no certificate").unwrap();
    let error = read(folder.path(), source).expect_err("the source is wrong");
    expected.assert_eq(&error.to_string().replace(&folder.path().display().to_string(), "DIR"));
}

const OCI: &str = "    oci:\n      reference: ghcr.io/org/provider:v1\n";

#[test]
fn sources_with_different_settings_of_a_registry_differ() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    let plain = read(folder.path(), OCI).unwrap();
    assert_eq!(plain.kept_as(), "oci ghcr.io/org/provider:v1");
    // What a mirror sent must not serve after the mirror is removed.
    let mirrored = read(folder.path(), &format!("{OCI}      mirrors: [one.local, two.local]\n")).unwrap();
    assert_eq!(mirrored.kept_as(), "oci ghcr.io/org/provider:v1, mirror one.local, mirror two.local");
    assert_eq!(read(folder.path(), OCI).unwrap(), plain);
    let others = [
        "pollInterval: 5m",
        "timeout: 1m",
        "mirrors: [mirror.local]",
        "plainHTTP: [ghcr.io]",
        "trustedHosts: [a.local]",
        "credentials: {file: config.json}",
    ];
    for other in others {
        assert_ne!(read(folder.path(), &format!("{OCI}      {other}\n")).unwrap(), plain, "{other}");
    }
}

#[test]
fn a_source_that_is_empty_ambiguous_or_invalid_is_refused() {
    refused(
        &format!("{OCI}    file: a.wasm\n"),
        expect![[
            r#"DIR/providers.yaml:5: provider "sim": spec.source: the source names several places; write exactly one of file, configMap and oci"#
        ]],
    );
    refused(
        "    {}\n",
        expect![[
            r#"DIR/providers.yaml:5: provider "sim": spec.source: the source is empty; write exactly one of file, configMap and oci"#
        ]],
    );
    refused(
        "    configMap: {namespace: a}\n",
        expect![[
            r#"DIR/providers.yaml:6: provider "sim": spec.source.configMap: write exactly one of name (one ConfigMap) and names (the ConfigMaps of the parts, in order)"#
        ]],
    );
    refused(
        "    configMap: {namespace: a, name: b, names: [b]}\n",
        expect![[
            r#"DIR/providers.yaml:6: provider "sim": spec.source.configMap: write exactly one of name (one ConfigMap) and names (the ConfigMaps of the parts, in order)"#
        ]],
    );
    refused(
        "    configMap: {namespace: a, names: []}\n",
        expect![[
            r#"DIR/providers.yaml:6: provider "sim": spec.source.configMap.names: 0 names are not allowed; write 1 to 64"#
        ]],
    );
    refused(
        "    configMap: {namespace: a, name: B_}\n",
        expect![[
            r#"DIR/providers.yaml:6: provider "sim": spec.source.configMap.name: "B_" is not a valid object name; use at most 253 lower-case letters, digits, dashes and dots, with a letter or a digit at both ends"#
        ]],
    );
    refused(
        "    git: x\n",
        expect![[
            r#"DIR/providers.yaml:6: provider "sim": spec.source.git: "git" is not a valid key here; write one of file, configMap, oci"#
        ]],
    );
}

#[test]
fn an_error_in_the_settings_of_a_registry_names_the_field() {
    refused(
        "    oci: {reference: \"GHCR.io/Org\"}\n",
        expect![[
            r#"DIR/providers.yaml:6: provider "sim": spec.source.oci.reference: "GHCR.io/Org" is not a reference (invalid reference format); write ghcr.io/org/provider:v1"#
        ]],
    );
    refused(
        "    oci: {reference: \"ghcr.io/org/provider@sha256:12\"}\n",
        expect![[
            r#"DIR/providers.yaml:6: provider "sim": spec.source.oci.reference: "ghcr.io/org/provider@sha256:12" is not a reference (invalid reference format); write ghcr.io/org/provider:v1"#
        ]],
    );
    for (field, expected) in [
        (
            "pollInterval: 5",
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.pollInterval: "5" is not a duration; write 5s, 1m30s or 250ms"#
            ]],
        ),
        (
            "pollInterval: 10ms",
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.pollInterval: 10ms is too short; write at least 1s"#
            ]],
        ),
        (
            "timeout: 0s",
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.timeout: "0s" is not longer than zero; write 5s or 1m30s"#
            ]],
        ),
        (
            "credentials: {file: missing.json}",
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.credentials.file: DIR/missing.json does not exist; create it, or correct the path"#
            ]],
        ),
        (
            "caBundle: {file: not.pem}",
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.caBundle: the CA bundle is not a list of PEM certificates; write them one after the other, each with its BEGIN and END line"#
            ]],
        ),
        (
            "insecure: true",
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.insecure: "insecure" is not a valid key here; write one of reference, pollInterval, timeout, credentials, caBundle, mirrors, plainHTTP, trustedHosts, proxy, signatures"#
            ]],
        ),
        (
            "mirrors: [\"https://mirror.local/v2\"]",
            expect![[
                r#"DIR/providers.yaml:6: provider "sim": spec.source.oci: "https://mirror.local/v2" is not the host of a registry; write ghcr.io or registry.local:5000, without https:// and without a path"#
            ]],
        ),
    ] {
        refused(&format!("{OCI}      {field}\n"), expected);
    }
}

/// A P-256 public key; its private key was deleted.
const KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
     MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEgpRHoSU9HdzoODunGIPzY/Qxyawp\n\
     ml3/AQcCJsyIGIsJRNcaSSSnS/nm4djjEQ2RFo4SWki+ZGl+vW6KLTEpJg==\n\
     -----END PUBLIC KEY-----\n";

#[test]
fn signatures_are_part_of_the_source_and_of_its_key_in_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cosign.pub"), KEY).unwrap();
    let plain = read(folder.path(), OCI).unwrap();
    let signed = read(folder.path(), &format!("{OCI}      signatures: {{keys: [{{file: cosign.pub}}]}}\n")).unwrap();
    assert_ne!(signed, plain);
    // A component that was archived without a signature policy must not serve now.
    assert!(
        signed.kept_as().starts_with("oci ghcr.io/org/provider:v1, signed by 1 of sha256:"),
        "{}",
        signed.kept_as()
    );
    let inline: String = KEY.lines().map(|line| format!("            {line}\n")).collect();
    let text = format!("{OCI}      signatures:\n        keys:\n        - pem: |\n{inline}        require: 1\n");
    assert_eq!(read(folder.path(), &text).unwrap(), signed);
}

#[test]
fn a_signature_policy_that_cannot_be_met_is_refused() {
    let wrong = [
        (
            "{keys: []}",
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures: no signer is named; give the keys of the signers, as cosign public-key prints them, or their identities with a trustRoot"#
            ]],
        ),
        (
            "{keys: [{file: missing.pub}]}",
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures.keys[0].file: DIR/missing.pub does not exist; create it, or correct the path"#
            ]],
        ),
        (
            "{keys: [{file: not.pem}]}",
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures.keys[0].file: it holds no public key: it has to be a PEM text with the line BEGIN PUBLIC KEY, as cosign generate-key-pair writes to cosign.pub"#
            ]],
        ),
        (
            "{keys: [{pem: x, file: y}]}",
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures.keys[0].file: expected end of mapping after enum variant value; correct it"#
            ]],
        ),
        (
            "{require: 1}",
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures: no signer is named; give the keys of the signers, as cosign public-key prints them, or their identities with a trustRoot"#
            ]],
        ),
    ];
    for (policy, expected) in wrong {
        refused(&format!("{OCI}      signatures: {policy}\n"), expected);
    }
}

/// A trusted root of the Sigstore instance that signed the test data.
const ROOT: &str = include_str!("../../../../sources/src/oci/tests/cosign/keyless/root.json");

#[test]
fn identities_and_their_trusted_root_are_part_of_the_source_and_of_its_key_in_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cosign.pub"), KEY).unwrap();
    fs::write(folder.path().join("root.json"), ROOT).unwrap();
    let signed_by = |identities: &str| {
        let policy = format!("identities: [{identities}], trustRoot: {{file: root.json}}");
        read(folder.path(), &format!("{OCI}      signatures: {{{policy}}}\n")).unwrap()
    };
    let one = signed_by("{issuer: https://a, subject: b}");
    expect![[r#"oci ghcr.io/org/provider:v1, signed by 1 of "b" of "https://a" by sha256:b1c5da346d58b1d98250a4225331d24eb16460e3142f8cf45925d74a26ee5bfb"#]].assert_eq(&one.kept_as());
    assert_ne!(signed_by("{issuer: https://a, subject: c}"), one);
    assert_ne!(signed_by("{issuer: https://c, subject: b}").kept_as(), one.kept_as());
    // The content in place of the file.
    let text = format!(
        "{OCI}      signatures:\n        identities: [{{issuer: https://a, subject: b}}]\n        trustRoot: {{json: '{ROOT}'}}\n"
    );
    assert_eq!(read(folder.path(), &text).unwrap().kept_as(), one.kept_as());
    // Another trusted root is another source.
    fs::write(folder.path().join("root.json"), format!("{ROOT}\n")).unwrap();
    assert_ne!(signed_by("{issuer: https://a, subject: b}"), one);
    // A key and a certificate.
    let policy = "keys: [{file: cosign.pub}], identities: [{issuer: https://a, subject: b}], trustRoot: {file: root.json}, require: 2";
    let both = read(folder.path(), &format!("{OCI}      signatures: {{{policy}}}\n")).unwrap();
    assert!(both.kept_as().contains("signed by 2 of sha256:"), "{}", both.kept_as());
}

#[test]
fn identities_that_could_never_be_verified_are_refused() {
    let one = "identities: [{issuer: https://a, subject: b}]";
    let inline = format!("trustRoot: {{json: '{ROOT}'}}");
    let wrong = [
        (
            format!("{{{one}}}"),
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures: identities are given without a trustRoot; give the trusted_root.json of the Sigstore instance that they sign with"#
            ]],
        ),
        (
            format!("{{{one}, trustRoot: {{file: missing.json}}}}"),
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures.trustRoot.file: DIR/missing.json does not exist; create it, or correct the path"#
            ]],
        ),
        (
            format!("{{{one}, trustRoot: {{file: not.pem}}}}"),
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures.trustRoot.file: it is not a trusted root (failed to parse JSON: expected ident at line 1 column 2); give the trusted_root.json of the Sigstore instance, as cosign trusted-root create writes it"#
            ]],
        ),
        (
            format!("{{{one}, trustRoot: {{json: '{{}}'}}}}"),
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures.trustRoot.json: it is not a trusted root (failed to parse JSON: missing field `mediaType` at line 1 column 2); give the trusted_root.json of the Sigstore instance, as cosign trusted-root create writes it"#
            ]],
        ),
        (
            format!("{{{inline}}}"),
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures: a trustRoot is given without identities; name the identities that may sign, because anyone can get a certificate of its CA"#
            ]],
        ),
        (
            format!("{{{one}, {inline}, require: 2}}"),
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures: 2 signatures are required from 1 keys and identities; write 1 to 1"#
            ]],
        ),
        (
            format!("{{identities: [{{issuer: https://a}}], {inline}}}"),
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures.identities[0]: the key "subject" is missing; add it"#
            ]],
        ),
        (
            format!("{{identities: [{{issuer: https://a, subjectRegExp: b}}], {inline}}}"),
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures.identities[0].subjectRegExp: "subjectRegExp" is not a valid key here; write one of issuer, subject"#
            ]],
        ),
        (
            format!("{{identities: [{{issuer: https://a, subject: ''}}], {inline}}}"),
            expect![[
                r#"DIR/providers.yaml:8: provider "sim": spec.source.oci.signatures: the subject of an identity is empty, too long or has invalid characters; write it as in the certificate, in 1 to 1024 bytes and without spaces around it"#
            ]],
        ),
    ];
    for (policy, expected) in wrong {
        refused(&format!("{OCI}      signatures: {policy}\n"), expected);
    }
}
