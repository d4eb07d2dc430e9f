//! Good and bad provider files. Each bad one has to name the file, the place, the reason and the way out.

use std::{fs, path::Path};

use expect_test::{Expect, expect};

use super::load;

/// A folder with a provider file and the files that it names.
fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("providers.yaml"), text).unwrap();
    fs::write(folder.path().join("token"), "s3cret-token\n").unwrap();
    fs::write(folder.path().join("empty"), "\n").unwrap();
    folder
}

#[track_caller]
fn refused(text: &str, expected: Expect) {
    let folder = folder(text);
    let error = load(&folder.path().join("providers.yaml")).expect_err("the file is wrong");
    expected.assert_eq(&error.to_string().replace(&folder.path().display().to_string(), "DIR"));
}

fn document(spec: &str) -> String {
    let spec = spec.lines().map(|line| format!("  {line}\n")).collect::<String>();
    format!(
        "apiVersion: skysail.dev/v1alpha1\nkind: Provider\nmetadata:\n  name: sim\nspec:\n  source: {{file: sim.wasm}}\n{spec}"
    )
}

#[test]
fn a_good_file_is_read_with_everything_that_it_names() {
    let folder = folder(&document(
        "default: true\n\
         loadBalancerClasses: [example.com/fast]\n\
         nodeSelector: {matchLabels: {cloud: sim}}\n\
         config: |\n\
         \x20 region = eu\n\
         egress:\n\
         \x20 rules:\n\
         \x20 - origins: [\"https://api.example.com\"]\n\
         \x20   methods: [GET]\n\
         \x20   pathPrefixes: [/v1]\n\
         credentials:\n\
         \x20 api:\n\
         \x20   origins: [\"https://api.example.com\"]\n\
         \x20   bearer: {file: token}\n\
         limits: {fuel: 5000000}\n",
    ));
    let file = load(&folder.path().join("providers.yaml")).unwrap();
    let [provider] = &file.providers[..] else { panic!("one provider") };
    assert_eq!(provider.name, "sim");
    assert!(provider.default);
    assert_eq!(provider.component, folder.path().join("sim.wasm"));
    assert_eq!(provider.config, "region = eu\n");
    assert!(!file.files.changed());
    fs::write(folder.path().join("token"), "another").unwrap();
    assert!(file.files.changed());
    assert!(!format!("{file:?}").contains("s3cret-token"), "a value never shows");
}

#[test]
fn several_documents_are_several_providers() {
    let text = format!("{}---\n{}", document("default: true\n"), document("").replace("name: sim", "name: other"));
    let folder = folder(&text);
    assert_eq!(load(&folder.path().join("providers.yaml")).unwrap().providers.len(), 2);
}

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    refused(
        &document("egres: {}\n"),
        expect![
            "DIR/providers.yaml:7: unknown field `egres`, expected one of default, loadBalancerClasses, nodeSelector, source, config, configFile, egress, credentials, limits, allowInterfaceLoss, allowIdentityChange at line 7, column 3; compare with the example in `deploy/manifests`"
        ],
    );
}

#[test]
fn a_text_that_is_no_yaml_is_refused() {
    refused(
        "\tno: [yaml",
        expect![
            "DIR/providers.yaml:1: unknown field `no`, expected one of apiVersion, kind, metadata, spec at line 1, column 2; compare with the example in `deploy/manifests`"
        ],
    );
}

#[test]
fn an_empty_file_is_refused() {
    refused("", expect!["DIR/providers.yaml: no provider in it; write at least one document of kind Provider"]);
}

#[test]
fn another_kind_is_refused() {
    refused(
        &document("").replace("kind: Provider", "kind: ConfigMap"),
        expect![
            "DIR/providers.yaml:1: kind: ConfigMap of skysail.dev/v1alpha1 is not what this file holds; write apiVersion: skysail.dev/v1alpha1 and kind: Provider"
        ],
    );
}

#[test]
fn a_bad_origin_is_refused() {
    let text = "egress:\n  rules:\n  - origins: [\"https://api.example.com/v1\"]\n";
    refused(
        &document(text),
        expect![[
            r#"DIR/providers.yaml: provider "sim": spec.egress: rules[0].origins[0]: origin "https://api.example.com/v1" has a path, query or fragment; an origin ends after the host or port, use pathPrefixes for paths"#
        ]],
    );
}

#[test]
fn an_origin_that_allows_everything_is_refused() {
    refused(
        &document("egress:\n  rules:\n  - origins: [\"https://*\"]\n"),
        expect![[
            r#"DIR/providers.yaml: provider "sim": spec.egress: rules[0].origins[0]: origin "https://*" has a wildcard over a whole public suffix; name at least the domain that belongs to you, as in https://*.example.com"#
        ]],
    );
}

#[test]
fn a_bad_cidr_is_refused() {
    refused(
        &document("egress:\n  allowCidrs: [10.0.0.0/33]\n"),
        expect![[
            r#"DIR/providers.yaml: provider "sim": spec.egress: allowCidrs[0]: "10.0.0.0/33" is not a CIDR; write an address and a prefix length, as in 10.20.0.0/16 or 127.0.0.1/32"#
        ]],
    );
}

#[test]
fn a_missing_secret_file_is_refused() {
    let text = "credentials:\n  api:\n    origins: [\"https://api.example.com\"]\n    bearer: {file: missing}\n";
    refused(
        &document(text),
        expect![[
            r#"DIR/providers.yaml: provider "sim": spec: credentials.api.bearer: read file DIR/missing; check that the Secret is mounted there and readable: No such file or directory (os error 2)"#
        ]],
    );
}

#[test]
fn an_empty_secret_file_is_refused() {
    let text = "credentials:\n  api:\n    origins: [\"https://api.example.com\"]\n    bearer: {file: empty}\n";
    refused(
        &document(text),
        expect![[
            r#"DIR/providers.yaml: provider "sim": spec: credentials.api.bearer: is shorter than 6 bytes: it could be guessed and could not be redacted from answers; use a longer one"#
        ]],
    );
}

#[test]
fn a_variable_that_is_not_set_is_refused() {
    let text =
        "credentials:\n  api:\n    origins: [\"https://api.example.com\"]\n    bearer: {env: SKYSAIL_TEST_NOT_SET}\n";
    refused(
        &document(text),
        expect![[
            r#"DIR/providers.yaml: provider "sim": spec: credentials.api.bearer: environment variable SKYSAIL_TEST_NOT_SET is not set"#
        ]],
    );
}

#[test]
fn a_credential_without_a_scheme_is_refused() {
    refused(
        &document("credentials:\n  api:\n    origins: [\"https://api.example.com\"]\n"),
        expect![[
            r#"DIR/providers.yaml: provider "sim": spec: credentials.api: has 0 of bearer, header, basic and clientCertificate; write exactly one"#
        ]],
    );
}

#[test]
fn two_defaults_are_refused() {
    let text = format!(
        "{}---\n{}",
        document("default: true\n"),
        document("default: true\n").replace("name: sim", "name: other")
    );
    refused(
        &text,
        expect![[
            r#"DIR/providers.yaml:15: provider "other": spec.default: provider "sim" (line 7) is the default already; at most one can take what no other claims, so remove one"#
        ]],
    );
}

#[test]
fn the_same_name_twice_is_refused() {
    refused(
        &format!("{}---\n{}", document(""), document("")),
        expect![[
            r#"DIR/providers.yaml:11: metadata.name "sim": the provider of line 4 has the same name; give each its own"#
        ]],
    );
}

#[test]
fn a_limit_out_of_range_is_refused() {
    refused(
        &document("limits: {fuel: 0}\n"),
        expect![[
            r#"DIR/providers.yaml: provider "sim": spec.limits: fuel is 0, and may be 100000 to 1000000000000 fuel units (default 1000000000): an empty call takes about ten units, reading a thousand nodes a few million, and a thousand million are 0.1 to 0.2 s of CPU"#
        ]],
    );
}

#[test]
fn an_unknown_limit_is_refused_with_its_line() {
    refused(
        &document("limits: {fule: 5}\n"),
        expect![
            "DIR/providers.yaml:7: unknown field `fule`, expected one of fuel, deadlineMs, memoryBytes, tableElements, instances, handles, hostCallBytes, resultBytes, stackBytes, logLines, logBytes, events, httpRequests, httpRequestsPerSecond, httpConcurrency, httpRequestBytes, httpResponseBytes, httpHeaders, httpTimeMs, cacheBytes, cacheEntries, cacheTtlMs, concurrentCalls, componentBytes, compileTimeMs, compileMemoryBytes at line 7, column 12; compare with the example in `deploy/manifests`"
        ],
    );
}

#[test]
fn a_cloud_config_given_twice_is_refused() {
    refused(
        &document("config: a\nconfigFile: token\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.config: config and configFile are both there; keep one"#
        ]],
    );
}

#[test]
fn a_file_that_is_not_there_is_refused() {
    let error = load(Path::new("no/such/file.yaml")).expect_err("there is no such file");
    expect!["no/such/file.yaml: does not exist; create it, or correct the path"].assert_eq(&error.to_string());
}
