//! Valid and invalid provider files. Each error has to name the file, the place, the reason and the
//! remedy.

use std::{fs, path::Path, time::Duration};

use expect_test::{Expect, expect};

use skysail_controllers::DeletionPolicy;
use skysail_host::{
    http_client::DeletionLimit,
    slot::{CanaryOptions, OnDifference, PlanOptions, ProbationOptions, RolloutOptions, ShadowOptions},
};
use skysail_provider::Interface;

use super::{ComponentSource, load};

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
    assert_eq!(provider.source, ComponentSource::File(folder.path().join("sim.wasm")));
    assert_eq!(provider.config, "region = eu\n");
    assert!(!file.files.changed());
    fs::write(folder.path().join("token"), "another").unwrap();
    assert!(file.files.changed());
    assert!(!format!("{file:?}").contains("s3cret-token"), "Debug prints the value of a credential");
}

#[test]
fn several_documents_are_several_providers() {
    let text = format!("{}---\n{}", document("default: true\n"), document("").replace("name: sim", "name: other"));
    let folder = folder(&text);
    assert_eq!(load(&folder.path().join("providers.yaml")).unwrap().providers.len(), 2);
}

#[test]
fn by_default_a_rollout_has_only_a_probation() {
    let loaded = |text: &str| {
        let folder = folder(&document(text));
        load(&folder.path().join("providers.yaml")).unwrap().providers.remove(0)
    };
    let watched = |minutes| ProbationOptions { calls: 20, time: Duration::from_mins(minutes) };
    let rollout = loaded("").rollout;
    assert_eq!(rollout, RolloutOptions { probation: Some(watched(5)), ..RolloutOptions::default() });
    let spec = loaded("rollout: {canary: {percent: 10, time: 10m}, shadow: {}, plan: {}, probation: {time: 0s}}\n");
    let canary = Some(CanaryOptions { percent: 10, watched: watched(10) });
    let shadow = Some(ShadowOptions { on_difference: OnDifference::Report });
    let plan = Some(PlanOptions { on_writes: OnDifference::Report });
    assert_eq!(spec.rollout, RolloutOptions { shadow, plan, canary, probation: None });
    let refusing = loaded("rollout: {shadow: {onDifference: Refuse}}\n").rollout.shadow;
    assert_eq!(refusing, Some(ShadowOptions { on_difference: OnDifference::Refuse }));
    let refusing = loaded("rollout: {plan: {onWrites: Refuse}}\n").rollout.plan;
    assert_eq!(refusing, Some(PlanOptions { on_writes: OnDifference::Refuse }));

    // `retry` is not part of the slot's settings, so that it ends no probation.
    let digest = format!("sha256:{}", "0a".repeat(32));
    let asking = loaded(&format!("rollout: {{retry: \"{digest}\"}}\n"));
    assert_eq!(asking.retry, Some(digest));
    assert_eq!(asking.fingerprint, loaded("").fingerprint);
    assert_ne!(spec.fingerprint, loaded("").fingerprint);
}

/// The slot serves on: only the controllers follow the pause.
#[test]
fn a_pause_is_a_claim_and_no_setting_of_the_slot() {
    let loaded = |text: &str| {
        let folder = folder(&document(text));
        load(&folder.path().join("providers.yaml")).unwrap().providers.remove(0)
    };
    let (paused, works) = (loaded("paused: true\n"), loaded("paused: false\n"));
    assert_eq!((paused.paused, works.paused, loaded("").paused), (true, false, false));
    assert_eq!(paused.fingerprint, works.fingerprint);
    assert_ne!(paused.claims(), works.claims());
}

#[test]
fn a_deletion_policy_is_a_claim_and_has_two_values() {
    let loaded = |text: &str| {
        let folder = folder(&document(text));
        load(&folder.path().join("providers.yaml")).unwrap().providers.remove(0)
    };
    let (retains, deletes) = (loaded("deletionPolicy: Retain\n"), loaded("deletionPolicy: Delete\n"));
    assert_eq!((retains.deletion_policy, deletes.deletion_policy), (DeletionPolicy::Retain, DeletionPolicy::Delete));
    assert_eq!(loaded("").deletion_policy, DeletionPolicy::Delete);
    assert_eq!(retains.fingerprint, deletes.fingerprint, "the slot serves on");
    assert_ne!(retains.claims(), deletes.claims());
    let folder = folder(&document("deletionPolicy: retain\n"));
    let refusal = load(&folder.path().join("providers.yaml")).unwrap_err().to_string();
    assert!(
        refusal.contains("spec.deletionPolicy") && refusal.contains("Delete") && refusal.contains("Retain"),
        "{refusal}"
    );
}

#[test]
fn a_budget_of_deletions_has_a_window_and_is_no_setting_of_the_slot() {
    let loaded = |text: &str| {
        let folder = folder(&document(text));
        load(&folder.path().join("providers.yaml")).map(|mut file| file.providers.remove(0))
    };
    let limit = |text: &str| loaded(text).unwrap().deletion_limit;
    let of = |deletions, seconds| Some(DeletionLimit { deletions, window: Duration::from_secs(seconds) });
    assert_eq!(limit(""), None);
    assert_eq!(limit("deletionBudget: {deletions: 20}\n"), of(20, 3600));
    assert_eq!(limit("deletionBudget: {deletions: 0, window: 10m}\n"), of(0, 600));
    let (few, many) = (loaded("deletionBudget: {deletions: 1}\n").unwrap(), loaded("").unwrap());
    assert_eq!(few.fingerprint, many.fingerprint, "the slot serves on");
    for (text, says) in [
        ("{deletions: 10001}", "spec.deletionBudget.deletions: 10001 is more than 10000"),
        ("{deletions: 1, window: 25h}", "spec.deletionBudget.window: a window has 1s to 24h; write 10m or 1h"),
        ("{deletions: 1, window: 500ms}", "spec.deletionBudget.window: a window has 1s to 24h"),
        ("{deletions: 1, window: soon}", "spec.deletionBudget.window: \"soon\" is not a duration"),
        ("{deletions: -1}", "spec.deletionBudget.deletions"),
        ("{window: 1h}", "deletions"),
    ] {
        let refusal = loaded(&format!("deletionBudget: {text}\n")).unwrap_err().to_string();
        assert!(refusal.contains(says), "{text}: {refusal}");
    }
}

#[test]
fn another_user_in_a_vendors_file_is_another_setting_and_another_password_is_not() {
    let fingerprint = |user: &str, password: &str| {
        let folder = folder(&document(
            "vendorConfig: {format: openstack, file: cloud.conf}\n\
             egress: {rules: [{origins: [\"https://keystone.example.com\"]}]}\n",
        ));
        let conf = format!(
            "[Global]\nauth-url = https://keystone.example.com/v3\nusername = {user}\npassword = {password}\n\
             tenant-id = k8s\ndomain-name = Default\n"
        );
        fs::write(folder.path().join("cloud.conf"), conf).unwrap();
        load(&folder.path().join("providers.yaml")).unwrap().providers.remove(0).fingerprint
    };
    let before = fingerprint("ccm", "s3cret-password");
    assert_ne!(fingerprint("other", "s3cret-password"), before);
    assert_eq!(fingerprint("ccm", "another-password"), before);
}

#[test]
fn a_wrong_rollout_is_refused() {
    refused(
        &document("rollout: {retry: v3}\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.rollout.retry: "v3" is not a digest; write sha256: and 64 hex digits, as status.refused.digest has them"#
        ]],
    );
    refused(
        &document("rollout: {canary: {}}\n"),
        expect![[r#"DIR/providers.yaml:7: provider "sim": spec.rollout.canary: the key "percent" is missing; add it"#]],
    );
    refused(
        &document("rollout: {canary: {percent: 100}}\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.rollout.canary.percent: 100 is not a valid share; write 1 to 99, or leave canary out for all objects at once"#
        ]],
    );
    refused(
        &document("rollout: {canary: {percent: 10, time: 0s}}\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.rollout.canary.time: a canary needs a time longer than zero; write a duration such as 5m, or leave canary out"#
        ]],
    );
    refused(
        &document("rollout: {canary: {percent: 10, time: 25h}}\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.rollout.canary.time: 90000s is too long; write at most 86400s"#
        ]],
    );
    refused(
        &document("rollout: {shadow: {onDifference: refuse}}\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.rollout.shadow.onDifference: "refuse" is unknown; write Report or Refuse"#
        ]],
    );
}

#[test]
fn an_unknown_key_is_refused() {
    refused(
        &document("egres: {}\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.egres: "egres" is not a valid key here; write one of default, loadBalancerClasses, nodeSelector, providerIdSchemes, providerIdPrefixes, interfaces, loadBalancerCidrs, nodeCidrs, paused, deletionPolicy, deletionBudget, source, config, configFile, vendorConfig, egress, credentials, limits, allowInterfaceLoss, allowIdentityChange, allowUnmetEgress, rollout"#
        ]],
    );
}

/// A key in double quotes may contain anything; on a terminal it would erase or reorder the line.
#[test]
fn a_hostile_key_cannot_change_what_an_error_says() {
    let folder = folder(&document("\"a\\e[2K\\u202Eb\\u2028\\nDIR/providers.yaml is valid\": {}\n"));
    let error = load(&folder.path().join("providers.yaml")).expect_err("the file is wrong").to_string();
    assert!(error.contains(": spec.a [2Kb"), "{error:?}");
    assert!(!error.contains(['\u{1b}', '\u{202e}', '\u{2028}', '\n']), "{error:?}");
}

#[test]
fn an_unknown_limit_is_refused() {
    refused(
        &document("limits: {fule: 5}\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.limits.fule: "fule" is not a valid key here; write one of fuel, cpuTimeMs, deadlineMs, memoryBytes, tableElements, instances, handles, hostCallBytes, resultBytes, stackBytes, logLines, logBytes, events, httpRequests, httpRequestsPerSecond, httpConcurrency, httpRequestBytes, httpResponseBytes, httpHeaders, httpHeaderBytes, httpTimeMs, cacheBytes, cacheEntries, cacheTtlMs, concurrentCalls, componentBytes, compileTimeMs, compileMemoryBytes"#
        ]],
    );
}

#[test]
fn a_duplicate_key_is_refused() {
    refused(
        &document("config: a\nlimits: {}\nconfig: b\n"),
        expect![[
            r#"DIR/providers.yaml:9: provider "sim": spec.config: the key is written again, and first in line 7; keep one of them"#
        ]],
    );
}

#[test]
fn a_missing_key_is_refused() {
    refused(
        &document("").replace("  source: {file: sim.wasm}\n", "  default: true\n"),
        expect![[r#"DIR/providers.yaml:5: provider "sim": spec: the key "source" is missing; add it"#]],
    );
}

#[test]
fn a_missing_key_is_refused_where_its_mapping_begins() {
    refused(
        &document("egress:\n  rules:\n  - methods: [GET]\n    pathPrefixes: [/]\n"),
        expect![[
            r#"DIR/providers.yaml:9: provider "sim": spec.egress.rules[0]: the key "origins" is missing; add it"#
        ]],
    );
    refused(
        &document("").replace("metadata:\n  name: sim\n", ""),
        expect![[r#"DIR/providers.yaml:1: the key "metadata" is missing; add it"#]],
    );
    refused(
        &document("").replace("  name: sim\n", "  {}\n"),
        expect![[r#"DIR/providers.yaml:3: metadata: the key "name" is missing; add it"#]],
    );
}

/// A secret that was written in place of its path must not get into a log.
#[test]
fn an_error_does_not_contain_a_value_that_may_be_a_secret() {
    let api = "origins: [\"https://api.example.com\"]";
    for wrong in ["bearer: s3cret", "basic: s3cret", "bearer: {file: [s3cret]}", "header: {name: X-A, value: s3cret}"] {
        let folder = folder(&document(&format!("credentials:\n  api: {{{api}, {wrong}}}\n")));
        let error = load(&folder.path().join("providers.yaml")).unwrap_err().to_string();
        assert!(!error.contains("s3cret"), "{error}");
        assert!(error.contains("providers.yaml:8: provider \"sim\": spec.credentials.api."), "{error}");
    }
}

#[test]
fn a_limit_that_is_no_number_is_refused() {
    refused(
        &document("limits: {fuel: lots}\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.limits.fuel: "lots" is not a whole number of 0 or more; correct it"#
        ]],
    );
}

#[test]
fn a_flag_that_is_not_true_or_false_is_refused() {
    refused(
        &document("default: maybe\n"),
        expect![[r#"DIR/providers.yaml:7: provider "sim": spec.default: "maybe" is not true or false; correct it"#]],
    );
}

#[test]
fn a_text_in_place_of_a_list_is_refused() {
    refused(
        &document("loadBalancerClasses: example.com/fast\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.loadBalancerClasses: the value has to be a list; correct it"#
        ]],
    );
}

#[test]
fn a_text_in_place_of_a_mapping_is_refused() {
    refused(
        &document("egress: all\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.egress: the value has to be a mapping of keys to values; correct it"#
        ]],
    );
}

#[test]
fn a_credential_as_a_plain_text_is_refused() {
    refused(
        &document("credentials:\n  api: {origins: [\"https://api.example.com\"], bearer: the-token}\n"),
        expect![[
            r#"DIR/providers.yaml:8: provider "sim": spec.credentials.api.bearer: the value has to be a mapping; write one of the keys file, env, secretKeyRef with its value"#
        ]],
    );
}

#[test]
fn an_unknown_place_of_a_credential_is_refused() {
    refused(
        &document("credentials:\n  api: {origins: [\"https://api.example.com\"], bearer: {vault: x}}\n"),
        expect![[
            r#"DIR/providers.yaml:8: provider "sim": spec.credentials.api.bearer.vault: "vault" is not a valid key here; write one of file, env, secretKeyRef"#
        ]],
    );
}

#[test]
fn a_document_without_content_is_refused() {
    refused(
        "apiVersion: skysail.dev/v1alpha1\nkind: Provider\n",
        expect![[r#"DIR/providers.yaml:1: the key "metadata" is missing; add it"#]],
    );
}

#[test]
fn a_text_that_is_not_yaml_is_refused() {
    refused(
        "kind: Provider\nspec: {a: [b}\n",
        expect![
            "DIR/providers.yaml:2: the text is not YAML: mismatched bracket '[' closed by '}'; correct this line, or the line before"
        ],
    );
}

#[test]
fn a_document_that_is_not_a_mapping_is_refused() {
    refused("hello\n", expect!["DIR/providers.yaml:1: the value has to be a mapping of keys to values; correct it"]);
}

#[test]
fn an_empty_file_is_refused() {
    refused("", expect!["DIR/providers.yaml: the file has no provider; write at least one document of kind Provider"]);
}

#[test]
fn another_kind_is_refused() {
    refused(
        &document("").replace("kind: Provider", "kind: ConfigMap"),
        expect![[r#"DIR/providers.yaml:2: kind: "ConfigMap" is not supported; write Provider"#]],
    );
}

#[test]
fn another_version_is_refused() {
    refused(
        &document("").replace("v1alpha1", "v2"),
        expect![[r#"DIR/providers.yaml:1: apiVersion: "skysail.dev/v2" is not supported; write skysail.dev/v1alpha1"#]],
    );
}

#[test]
fn an_invalid_name_is_refused() {
    refused(
        &document("").replace("name: sim", "name: Sim"),
        expect![[
            r#"DIR/providers.yaml:4: metadata.name: "Sim" is not a name; use at most 63 lower-case letters, digits and dashes, and begin with a letter"#
        ]],
    );
}

#[test]
fn an_empty_class_is_refused() {
    refused(
        &document("loadBalancerClasses: [a, \"\"]\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.loadBalancerClasses[1]: a class has 1 to 253 bytes; use a name such as example.com/fast"#
        ]],
    );
}

#[test]
fn a_selector_of_everything_is_refused() {
    refused(
        &document("nodeSelector: {matchLabels: {}}\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.nodeSelector.matchLabels: matchLabels is empty and would select every node; name a label, or set spec.default instead"#
        ]],
    );
}

#[test]
fn a_bad_origin_is_refused() {
    refused(
        &document(
            "egress:\n  rules:\n  - origins: [\"https://a.example.com\"]\n  - origins:\n    - \"https://api.example.com/v1\"\n",
        ),
        expect![[
            r#"DIR/providers.yaml:11: provider "sim": spec.egress.rules[1].origins[0]: origin "https://api.example.com/v1" has a path, query or fragment; an origin ends after the host or port, use pathPrefixes for paths"#
        ]],
    );
}

#[test]
fn an_origin_of_another_scheme_is_refused() {
    refused(
        &document("egress:\n  rules:\n  - origins: [\"ftp://x\"]\n"),
        expect![[
            r#"DIR/providers.yaml:9: provider "sim": spec.egress.rules[0].origins[0]: origin "ftp://x" has an unsupported scheme; write https://HOST or http://HOST"#
        ]],
    );
}

#[test]
fn an_origin_that_allows_everything_is_refused() {
    refused(
        &document("egress:\n  rules:\n  - origins: [\"https://*\"]\n"),
        expect![[
            r#"DIR/providers.yaml:9: provider "sim": spec.egress.rules[0].origins[0]: origin "https://*" has a wildcard over a whole public suffix; name at least the domain that belongs to you, as in https://*.example.com"#
        ]],
    );
}

#[test]
fn an_empty_list_of_origins_is_refused() {
    refused(
        &document("egress:\n  rules:\n  - methods: [GET]\n    origins: []\n"),
        expect![[
            r#"DIR/providers.yaml:10: provider "sim": spec.egress.rules[0].origins: is empty, which allows nothing; name at least one origin"#
        ]],
    );
}

#[test]
fn a_bad_method_is_refused() {
    refused(
        &document("egress:\n  rules:\n  - origins: [\"https://a.example.com\"]\n    methods: [CONNECT]\n"),
        expect![[
            r#"DIR/providers.yaml:10: provider "sim": spec.egress.rules[0].methods[0]: method "CONNECT" cannot be allowed; write one of ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]"#
        ]],
    );
}

#[test]
fn a_bad_path_prefix_is_refused() {
    refused(
        &document("egress:\n  rules:\n  - origins: [\"https://a.example.com\"]\n    pathPrefixes: [v1]\n"),
        expect![[
            r#"DIR/providers.yaml:10: provider "sim": spec.egress.rules[0].pathPrefixes[0]: path prefix "v1" does not begin with /; write it from the root, as in /v1"#
        ]],
    );
}

#[test]
fn a_bad_cidr_is_refused() {
    refused(
        &document("egress:\n  allowCidrs:\n  - 10.0.0.0/33\n"),
        expect![[
            r#"DIR/providers.yaml:9: provider "sim": spec.egress.allowCidrs[0]: "10.0.0.0/33" is not a CIDR; write an address and a prefix length, as in 10.20.0.0/16 or 127.0.0.1/32"#
        ]],
    );
}

#[test]
fn a_missing_ca_bundle_is_refused() {
    refused(
        &document("egress:\n  caBundle: {file: missing}\n"),
        expect![[
            r#"DIR/providers.yaml:8: provider "sim": spec.egress.caBundle.file: DIR/missing does not exist; create it, or correct the path"#
        ]],
    );
}

#[test]
fn a_ca_bundle_without_a_certificate_is_refused() {
    refused(
        &document("egress:\n  caBundle: {file: token}\n"),
        expect![[
            r#"DIR/providers.yaml:8: provider "sim": spec.egress.caBundle: no certificate found; it must be PEM with at least one certificate"#
        ]],
    );
}

#[test]
fn a_missing_secret_file_is_refused() {
    refused(
        &document("credentials:\n  api:\n    origins: [\"https://api.example.com\"]\n    bearer: {file: missing}\n"),
        expect![[
            r#"DIR/providers.yaml:10: provider "sim": spec.credentials.api.bearer.file: DIR/missing does not exist; create it, or correct the path"#
        ]],
    );
}

#[test]
fn an_empty_secret_file_is_refused() {
    refused(
        &document("credentials:\n  api:\n    origins: [\"https://api.example.com\"]\n    bearer: {file: empty}\n"),
        expect![[
            r#"DIR/providers.yaml:10: provider "sim": spec.credentials.api.bearer: is shorter than 6 bytes: it could be guessed and could not be redacted from answers; use a longer one"#
        ]],
    );
}

#[test]
fn a_variable_that_is_not_set_is_refused() {
    refused(
        &document(
            "credentials:\n  api:\n    origins: [\"https://api.example.com\"]\n    bearer: {env: SKYSAIL_TEST_NOT_SET}\n",
        ),
        expect![[
            r#"DIR/providers.yaml:10: provider "sim": spec.credentials.api.bearer: environment variable SKYSAIL_TEST_NOT_SET is not set; set it for this process, or name a file"#
        ]],
    );
}

#[test]
fn a_credential_without_a_scheme_is_refused() {
    refused(
        &document("credentials:\n  api:\n    origins: [\"https://api.example.com\"]\n"),
        expect![[
            r#"DIR/providers.yaml:8: provider "sim": spec.credentials.api: has 0 of bearer, header, basic, clientCertificate, keystone, oauth2, serviceAccountKey, vsphere, aws and cloudstack; write exactly one"#
        ]],
    );
}

#[test]
fn a_credential_for_a_bad_origin_is_refused() {
    refused(
        &document("credentials:\n  api:\n    origins:\n    - api.example.com\n    bearer: {file: token}\n"),
        expect![[
            r#"DIR/providers.yaml:10: provider "sim": spec.credentials.api.origins[0]: origin "api.example.com" has no scheme; write https://HOST or http://HOST"#
        ]],
    );
}

#[test]
fn a_bad_name_of_a_credential_is_refused() {
    refused(
        &document("credentials:\n  \"a b\": {origins: [\"https://api.example.com\"], bearer: {file: token}}\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.credentials: "a b" cannot be a name; use 1 to 63 letters, digits, '-', '_' and '.'"#
        ]],
    );
}

#[test]
fn a_bad_header_is_refused() {
    refused(
        &document(
            "credentials:\n  api:\n    origins: [\"https://api.example.com\"]\n    header: {name: Host, value: {file: token}}\n",
        ),
        expect![[
            r#"DIR/providers.yaml:10: provider "sim": spec.credentials.api.header.name: is a header that only the host may set; use another one"#
        ]],
    );
}

#[test]
fn a_limit_out_of_range_is_refused() {
    refused(
        &document("limits:\n  memoryBytes: 65536\n  fuel: 0\n"),
        expect![[
            r#"DIR/providers.yaml:9: provider "sim": spec.limits.fuel: fuel is 0, and may be 100000 to 1000000000000 fuel units (default 1000000000): an empty call takes some hundred units, a call of an import two thousand, reading a thousand nodes a few million, and a thousand million are 0.1 to 0.2 s of CPU"#
        ]],
    );
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    refused(
        &document("limits: {deadlineMs: 1000}\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.limits.httpTimeMs: httpTimeMs is 20000, but a call ends after deadlineMs, 1000: an exchange cannot take longer than its call"#
        ]],
    );
}

#[test]
fn a_cloud_config_given_twice_is_refused() {
    refused(
        &document("config: a\nconfigFile: token\n"),
        expect![[r#"DIR/providers.yaml:7: provider "sim": spec.config: config and configFile are both set; keep one"#]],
    );
}

#[test]
fn a_missing_cloud_config_is_refused() {
    refused(
        &document("configFile: missing\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.configFile: DIR/missing does not exist; create it, or correct the path"#
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
            r#"DIR/providers.yaml:15: provider "other": spec.default: provider "sim" of line 7 is the default already; at most one provider can be the default, so set spec.default of one of them to false"#
        ]],
    );
}

#[test]
fn the_same_name_twice_is_refused() {
    refused(
        &format!("{}---\n{}", document(""), document("")),
        expect![[
            r#"DIR/providers.yaml:11: provider "sim": metadata.name: the provider of line 4 has the same name; give each its own"#
        ]],
    );
}

/// A key of the second document, after a document without content.
#[test]
fn the_line_of_an_error_is_in_the_right_document() {
    let other = document("limits:\n  fuel: 0\n").replace("name: sim", "name: other");
    refused(
        &format!("---\n---\n{}---\n{other}", document("")),
        expect![[
            r#"DIR/providers.yaml:17: provider "other": spec.limits.fuel: fuel is 0, and may be 100000 to 1000000000000 fuel units (default 1000000000): an empty call takes some hundred units, a call of an import two thousand, reading a thousand nodes a few million, and a thousand million are 0.1 to 0.2 s of CPU"#
        ]],
    );
}

#[test]
fn a_missing_file_is_refused() {
    let error = load(Path::new("no/such/file.yaml")).expect_err("there is no such file");
    expect!["no/such/file.yaml: does not exist; create it, or correct the path"].assert_eq(&error.to_string());
}

#[test]
fn schemes_and_addresses_of_a_provider_are_part_of_its_claims() {
    let spec = "providerIdSchemes: [sim, sim.v2]\nloadBalancerCidrs: [\"127.0.0.0/8\"]\nnodeCidrs: [\"10.0.0.0/8\"]\n";
    let folder = folder(&document(spec));
    let file = load(&folder.path().join("providers.yaml")).unwrap();
    let [provider] = &file.providers[..] else { panic!("one provider") };
    assert_eq!(provider.provider_id_schemes, ["sim".to_owned(), "sim.v2".to_owned()].into());
    let addresses =
        skysail_controllers::ProviderAddresses::new(&["127.0.0.0/8".to_owned()], &["10.0.0.0/8".to_owned()]);
    assert_eq!(provider.addresses, addresses.unwrap());
    let claims = provider.claims();
    fs::write(folder.path().join("providers.yaml"), document(&spec.replace("10.0.0.0/8", "11.0.0.0/8"))).unwrap();
    let changed = load(&folder.path().join("providers.yaml")).unwrap();
    assert_ne!(changed.providers[0].claims(), claims, "the claims of the changed file are the same");
}

#[test]
fn a_scheme_of_two_providers_and_an_invalid_scheme_are_refused() {
    let other = document("providerIdSchemes: [other, sim]\n").replace("name: sim", "name: other");
    refused(
        &format!("{}---\n{other}", document("providerIdSchemes: [sim]\n")),
        expect![[
            r#"DIR/providers.yaml:15: provider "other": spec.providerIdSchemes[1]: provider "sim" has "sim" already of line 7; a node has one owner, so give the scheme to one provider"#
        ]],
    );
    refused(
        &document("providerIdSchemes: [sim, sim]\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.providerIdSchemes[1]: "sim" is listed twice; remove one of the two entries"#
        ]],
    );
    refused(
        &document("providerIdSchemes: [\"sim://\"]\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.providerIdSchemes[0]: the value is no scheme; write the text before :// in spec.providerID of a node, such as aws or incus"#
        ]],
    );
}

#[test]
fn a_prefix_of_two_providers_and_an_invalid_prefix_are_refused() {
    let one = document("providerIdPrefixes: [\"sim://east/\"]\n");
    let other =
        document("providerIdPrefixes: [\"sim://west/\", \"sim://east/\"]\n").replace("name: sim", "name: other");
    refused(
        &format!("{one}---\n{other}"),
        expect![[
            r#"DIR/providers.yaml:15: provider "other": spec.providerIdPrefixes[1]: provider "sim" has "sim://east/" already of line 7; a node has one owner, so give the prefix to one provider"#
        ]],
    );
    refused(
        &document("providerIdPrefixes: [\"two words\"]\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.providerIdPrefixes[0]: a prefix has 1 to 253 visible ASCII characters; write the beginning of spec.providerID of a node, such as openstack://region/"#
        ]],
    );
    let folder = folder(&document("providerIdSchemes: [a]\nproviderIdPrefixes: [a]\n"));
    let file = load(&folder.path().join("providers.yaml")).unwrap();
    assert_eq!(file.providers[0].prefixes(), ["a".to_owned()].into(), "a scheme is no prefix");
}

#[test]
fn a_link_local_or_inexact_address_range_is_refused() {
    refused(
        &document("loadBalancerCidrs: [10.0.0.0/8, 169.254.0.0/16]\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.loadBalancerCidrs[1]: 169.254.0.0/16 is link-local, which a load balancer cannot have; remove the entry"#
        ]],
    );
    refused(
        &document("nodeCidrs: [10.0.0.1/8]\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.nodeCidrs[0]: 10.0.0.1/8 has bits set behind the prefix length; write the network's first address"#
        ]],
    );
}

#[test]
fn only_interfaces_that_the_manager_uses_can_be_listed() {
    let folder = folder(&document("interfaces: [instances, load-balancers, instances]\n"));
    let file = load(&folder.path().join("providers.yaml")).unwrap();
    assert_eq!(file.providers[0].interfaces, [Interface::LoadBalancers, Interface::Instances].into());
    refused(
        &document("interfaces: [instances, zones]\n"),
        expect![[
            r#"DIR/providers.yaml:7: provider "sim": spec.interfaces[1]: "zones" is not a valid value here; write one of load-balancers, load-balancer-inventory, instances, routes, persistent-volume-labels"#
        ]],
    );
}
