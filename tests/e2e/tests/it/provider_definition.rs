//! The CRD of `Provider` on a real API server: the API server accepts the CRD, explains its fields
//! and validates objects with it.

use std::{collections::BTreeSet, fs, future};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value, json};
use skysail_test_e2e::{api_server::ApiServer, wait::eventually, workspace::root};

/// An API server with the CRD.
struct Cluster {
    server: ApiServer,
    folder: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Result<Self> {
        let cluster = Self { server: ApiServer::start()?, folder: tempfile::tempdir()? };
        let file = root().join("deploy/manifests/crd.yaml").display().to_string();
        cluster.server.kubectl(&["apply", "--server-side", "--warnings-as-errors", "-f", &file])?;
        cluster.server.wait_for_definition("providers.skysail.dev").await?;
        Ok(cluster)
    }

    /// Creates an object; with `--dry-run=server` the API server only validates it. A warning is a
    /// failure.
    fn create(&self, provider: &Value, more: &[&str]) -> Result<String> {
        let file = self.folder.path().join("provider.json");
        fs::write(&file, provider.to_string())?;
        let file = file.display().to_string();
        self.server.kubectl(&[&["create", "--warnings-as-errors", "-f", &file], more].concat())
    }

    fn definition(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.server.kubectl(&["get", "crd", "providers.skysail.dev", "-o", "json"])?)?)
    }
}

/// The smallest valid provider.
fn provider() -> Value {
    with_spec(json!({"source": source()}))
}

fn with_spec(spec: Value) -> Value {
    json!({"apiVersion": "skysail.dev/v1alpha1", "kind": "Provider", "metadata": {"name": "sim"}, "spec": spec})
}

fn with(field: &str, value: Value) -> Value {
    with_spec(json!({"source": source(), field: value}))
}

fn with_source(source: Value) -> Value {
    with_spec(json!({"source": source}))
}

/// A valid source.
fn source() -> Value {
    json!({"configMap": {"namespace": "skysail-system", "name": "provider"}})
}

/// A provider with a source in a registry, with one more field.
fn with_oci(field: &str, value: Value) -> Value {
    with_source(json!({"oci": {"reference": "ghcr.io/org/provider:v1", field: value}}))
}

fn with_credential(credential: Value) -> Value {
    with("credentials", json!({"api": credential}))
}

#[tokio::test]
async fn the_crd_is_structural_and_kubectl_explain_shows_its_descriptions() -> Result<()> {
    let cluster = Cluster::start().await?;
    let definition = cluster.definition()?;
    for condition in definition["status"]["conditions"].as_array().context("it has conditions")? {
        ensure!(condition["type"] != "NonStructuralSchema", "{condition}");
    }
    let explain = |field: &'static str, what: &'static str| {
        let cluster = &cluster;
        let look = move || {
            let said = cluster.server.kubectl(&["explain", field]).map(|said| words(&said));
            future::ready(said.and_then(|said| {
                ensure!(said.contains(what), "{said}");
                Ok(())
            }))
        };
        eventually(field, 60, look)
    };
    explain("provider.spec.limits.fuel", "CPU work per call, in fuel units").await?;
    explain("provider.spec.limits.fuel", "Default 1,000,000,000").await?;
    explain("provider.spec.limits.fuel", "Range: 100000 to 1000000000000 fuel units.").await?;
    explain("skyp.spec.source.oci.pollInterval", "At least 1s. Default: 1m.").await?;
    explain("provider.spec.credentials.bearer.secretKeyRef", "A key of a Secret of the cluster").await?;
    explain("provider.status.refused.lasting", "will be refused again").await
}

/// The text without kubectl's line breaks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn secret_key_ref(key: &str) -> Value {
    json!({"namespace": "skysail-system", "name": "cloud", "key": key})
}

/// A reference to a key of a Secret.
fn secret(key: &str) -> Value {
    json!({"secretKeyRef": secret_key_ref(key)})
}

/// An invalid provider, and texts in the error.
type Wrong = (Value, &'static [&'static str]);

fn wrong_names_and_owners() -> Vec<Wrong> {
    let named = |name: &str| {
        let spec = json!({"source": source()});
        json!({"apiVersion": "skysail.dev/v1alpha1", "kind": "Provider", "metadata": {"name": name}, "spec": spec})
    };
    let long = "a".repeat(64);
    vec![
        (named("1sim"), &["metadata.name", "begin with a letter"]),
        (named("sim.eu"), &["metadata.name", "at most 63 lower-case letters, digits and dashes"]),
        (named(&long), &["metadata.name", "at most 63"]),
        (
            json!({"apiVersion": "skysail.dev/v1alpha1", "kind": "Provider", "metadata": {"name": "sim"}}),
            &["spec: Required"],
        ),
        (with("defualt", json!(true)), &["unknown field \"spec.defualt\""]),
        (with("default", json!("yes")), &["spec.default", "must be of type boolean"]),
        (with("loadBalancerClasses", json!([""])), &["spec.loadBalancerClasses[0]"]),
        (
            with("nodeSelector", json!({"matchLabels": {}})),
            &["spec.nodeSelector.matchLabels", "matchLabels is empty and would select every node; name a label"],
        ),
        (with("providerIdSchemes", json!(["aws://"])), &["spec.providerIdSchemes[0]"]),
        (with("loadBalancerCidrs", json!(["198.51.100.0"])), &["spec.loadBalancerCidrs[0]", "cidr"]),
        (with("nodeCidrs", json!(["10.0.0.0/33"])), &["spec.nodeCidrs[0]", "cidr"]),
        (
            with("deletionBudget", json!({"deletions": 1, "window": "25h"})),
            &["spec.deletionBudget.window", "a window has 1s to 24h"],
        ),
        (with("deletionBudget", json!({"deletions": 10_001})), &["spec.deletionBudget.deletions", "10000"]),
        (with("rollout", json!({"probation": {"time": "25h"}})), &["spec.rollout.probation.time", "at most 24h"]),
        (with("rollout", json!({"probation": {"time": "5"}})), &["spec.rollout.probation.time", "write a duration"]),
        (
            with("rollout", json!({"probation": {"calls": -1}})),
            &["spec.rollout.probation.calls", "greater than or equal to 0"],
        ),
        (with("rollout", json!({"canary": {}})), &["spec.rollout.canary.percent", "Required"]),
        (
            with("rollout", json!({"canary": {"percent": 100}})),
            &["spec.rollout.canary.percent", "less than or equal to 99"],
        ),
        (
            with("rollout", json!({"canary": {"percent": 0}})),
            &["spec.rollout.canary.percent", "greater than or equal to 1"],
        ),
        (
            with("rollout", json!({"canary": {"percent": 10, "time": "0s"}})),
            &["spec.rollout.canary.time", "or leave canary out"],
        ),
        (with("rollout", json!({"plan": {"onWrites": "no"}})), &["spec.rollout.plan.onWrites", "\"Refuse\""]),
        (
            with("rollout", json!({"shadow": {"onDifference": "refuse"}})),
            &["spec.rollout.shadow.onDifference", "\"Refuse\""],
        ),
        (with("rollout", json!({"retry": "v3"})), &["spec.rollout.retry", "sha256"]),
        // A field that only a provider file has.
        (with("configFile", json!("cloud.conf")), &["unknown field \"spec.configFile\""]),
        (with("vendorConfig", json!({"format": "openstack"})), &["spec.vendorConfig", "write secretKeyRef"]),
        (with("vendorConfig", json!({"format": "azure"})), &["spec.vendorConfig.format", "openstack"]),
    ]
}

fn wrong_sources() -> Vec<Wrong> {
    let maps = |maps: Value| with_source(json!({"configMap": maps}));
    let signed = |signatures: Value| with_oci("signatures", signatures);
    vec![
        (with_source(json!({})), &["spec.source", "write exactly one of configMap and oci"]),
        (
            with_source(json!({"configMap": {"namespace": "n", "name": "a"}, "oci": {"reference": "y"}})),
            &["spec.source", "write exactly one of configMap and oci"],
        ),
        (with_source(json!({"oci": null})), &["spec.source"]),
        (with_source(json!({"file": "/run/secrets/token"})), &["unknown field \"spec.source.file\""]),
        (maps(json!({"name": "a"})), &["spec.source.configMap.namespace: Required"]),
        (
            maps(json!({"namespace": "n"})),
            &["spec.source.configMap", "write exactly one of name (one ConfigMap) and names"],
        ),
        (maps(json!({"namespace": "n", "name": "a", "names": ["b"]})), &["spec.source.configMap", "and names"]),
        (maps(json!({"namespace": "n", "names": []})), &["spec.source.configMap.names"]),
        (maps(json!({"namespace": "n", "name": "A_B"})), &["spec.source.configMap.name"]),
        (with_source(json!({"oci": {}})), &["spec.source.oci.reference: Required"]),
        (with_oci("pollInterval", json!("900ms")), &["spec.source.oci.pollInterval", "at least 1s"]),
        (with_oci("pollInterval", json!("5 min")), &["spec.source.oci.pollInterval", "write a duration"]),
        (with_oci("timeout", json!("0s")), &["spec.source.oci.timeout", "longer than zero"]),
        (with_oci("mirrors", json!(["https://mirror.local"])), &["spec.source.oci.mirrors[0]"]),
        (with_oci("plainHttp", json!(["mirror.local"])), &["unknown field \"spec.source.oci.plainHttp\""]),
        (with_oci("caBundle", json!({})), &["spec.source.oci.caBundle.pem: Required"]),
        (with_oci("credentials", json!({})), &["spec.source.oci.credentials.secretKeyRef: Required"]),
        (signed(json!({"keys": []})), &["spec.source.oci.signatures.keys"]),
        (signed(json!({"keys": [{"file": "a"}]})), &["unknown field \"spec.source.oci.signatures.keys[0].file\""]),
        (
            signed(json!({"keys": [{"pem": "a"}], "require": 2})),
            &["spec.source.oci.signatures", "larger than the number of keys and identities"],
        ),
        (signed(json!({"keys": [{"pem": "a"}], "require": 0})), &["spec.source.oci.signatures.require"]),
    ]
}

fn wrong_identities() -> Vec<Wrong> {
    let signed = |signatures: Value| with_oci("signatures", signatures);
    let one = json!({"issuer": "https://a", "subject": "b"});
    let root = json!({"json": "{}"});
    vec![
        (signed(json!({"require": 1})), &["spec.source.oci.signatures", "no signer is named"]),
        (
            signed(json!({"identities": [one]})),
            &["spec.source.oci.signatures", "identities and trustRoot need each other"],
        ),
        (
            signed(json!({"keys": [{"pem": "a"}], "trustRoot": root})),
            &["spec.source.oci.signatures", "identities and trustRoot need each other"],
        ),
        (
            signed(json!({"keys": [{"pem": "a"}], "identities": [one], "trustRoot": root, "require": 3})),
            &["spec.source.oci.signatures", "larger than the number of keys and identities"],
        ),
        (signed(json!({"identities": [], "trustRoot": root})), &["spec.source.oci.signatures.identities"]),
        (
            signed(json!({"identities": [{"issuer": "https://a"}], "trustRoot": root})),
            &["spec.source.oci.signatures.identities[0].subject: Required"],
        ),
        (
            signed(json!({"identities": [{"issuer": "", "subject": "b"}], "trustRoot": root})),
            &["spec.source.oci.signatures.identities[0].issuer"],
        ),
        (
            signed(json!({"identities": [one], "trustRoot": {"file": "a"}})),
            &["unknown field \"spec.source.oci.signatures.trustRoot.file\""],
        ),
    ]
}

fn wrong_reach_and_limits() -> Vec<Wrong> {
    let rule = |rule: Value| with("egress", json!({"rules": [rule]}));
    let at = json!(["https://api.example.com"]);
    let limit = |limits: Value| with("limits", limits);
    vec![
        (rule(json!({"origins": []})), &["spec.egress.rules[0].origins"]),
        (rule(json!({"origins": ["api.example.com"]})), &["spec.egress.rules[0].origins[0]"]),
        (rule(json!({"origins": ["https://api.example.com/v1"]})), &["spec.egress.rules[0].origins[0]"]),
        (rule(json!({"origins": at, "methods": ["get"]})), &["spec.egress.rules[0].methods[0]", "\"GET\""]),
        (rule(json!({"origins": at, "pathPrefixes": ["v1"]})), &["spec.egress.rules[0].pathPrefixes[0]"]),
        (with("egress", json!({"allowCidrs": ["private"]})), &["spec.egress.allowCidrs[0]", "cidr"]),
        (
            with("egress", json!({"caBundle": {"file": "a", "pem": "b"}})),
            &["unknown field \"spec.egress.caBundle.file\""],
        ),
        (limit(json!({"fuel": 99_999})), &["spec.limits.fuel", "greater than or equal to 100000"]),
        (limit(json!({"concurrentCalls": 65})), &["spec.limits.concurrentCalls", "less than or equal to 64"]),
        (limit(json!({"fuel": 1.5e5 + 0.5})), &["spec.limits.fuel", "must be of type integer"]),
        (limit(json!({"httpTimeMs": 40_000})), &["spec.limits.httpTimeMs", "cannot take longer than its call"]),
        (limit(json!({"deadlineMs": 5_000})), &["spec.limits.httpTimeMs", "longer than deadlineMs (or its default)"]),
    ]
}

fn wrong_credentials() -> Vec<Wrong> {
    let at = json!(["https://api.example.com"]);
    let value = secret("TOKEN");
    let mut many = Map::new();
    for number in 0..33 {
        many.insert(format!("c{number}"), json!({"origins": at, "bearer": value}));
    }
    vec![
        (with_credential(json!({"bearer": value})), &["spec.credentials.api.origins: Required"]),
        (
            with_credential(json!({"origins": at})),
            &[
                "spec.credentials",
                "exactly one of bearer, header, basic, clientCertificate, keystone, oauth2, serviceAccountKey, vsphere, aws and cloudstack",
            ],
        ),
        (
            with_credential(json!({"origins": at, "bearer": value, "header": {"name": "X", "value": value}})),
            &[
                "spec.credentials",
                "exactly one of bearer, header, basic, clientCertificate, keystone, oauth2, serviceAccountKey, vsphere, aws and cloudstack",
            ],
        ),
        (
            with_credential(json!({"origins": at, "keystone": {"authUrl": "https://keystone"}})),
            &["spec.credentials[api].keystone", "exactly one of applicationCredential and password"],
        ),
        (
            with_credential(json!({"origins": at, "oauth2": {
                "tokenUrl": "https://issuer", "clientId": "a", "clientSecret": value, "clientAuthentication": "Header",
            }})),
            &["spec.credentials.api.oauth2.clientAuthentication", "\"Basic\", \"Body\""],
        ),
        (with_credential(json!({"origins": at, "bearer": {}})), &["bearer.secretKeyRef: Required"]),
        (with_credential(json!({"origins": at, "bearer": {"env": "A"}})), &["unknown field", "bearer.env"]),
        (with_credential(json!({"origins": at, "bearer": {"file": "/a"}})), &["unknown field", "bearer.file"]),
        (
            with_credential(json!({"origins": at, "aws": {"region": "a", "instanceMetadata": {}}})),
            &["unknown field", "aws.instanceMetadata"],
        ),
        (with_credential(json!({"origins": at, "bearer": secret("a key")})), &["bearer.secretKeyRef.key"]),
        (with_credential(json!({"origins": at, "bearer": "s3cret"})), &["bearer", "must be of type object"]),
        (
            with_credential(json!({"origins": at, "basic": {"username": "a:b", "password": value}})),
            &["spec.credentials.api.basic.username"],
        ),
        (
            with_credential(json!({"origins": at, "header": {"name": "X Y", "value": value}})),
            &["spec.credentials.api.header.name"],
        ),
        (
            with("credentials", json!({"a b": {"origins": at, "bearer": value}})),
            &["spec.credentials", "the name of a credential is not valid"],
        ),
        (with("credentials", Value::Object(many)), &["spec.credentials", "32"]),
    ]
}

#[tokio::test]
async fn an_invalid_provider_is_refused_with_the_field_and_the_remedy() -> Result<()> {
    let cluster = Cluster::start().await?;
    // This provider is valid; each one below has one error.
    cluster.create(&provider(), &["--dry-run=server"])?;
    let mut problems = Vec::new();
    let all =
        [wrong_names_and_owners(), wrong_sources(), wrong_identities(), wrong_reach_and_limits(), wrong_credentials()];
    for (wrong, expected) in all.concat() {
        match cluster.create(&wrong, &["--dry-run=server"]) {
            Ok(_) => problems.push(format!("accepted: {wrong}")),
            Err(error) => {
                let message = words(&format!("{error:#}"));
                if let Some(missing) = expected.iter().find(|part| !message.contains(**part)) {
                    problems.push(format!("{missing:?} is not in: {message}"));
                }
            }
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Valid providers, which together have every field of the schema.
fn valid() -> Vec<Value> {
    let at = json!(["https://*.example.com:8443", "http://127.0.0.1:9000", "https://[fd00::1]"]);
    let value = secret(".dockerconfigjson");
    let pem = json!({"pem": "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"});
    let proxy = "http://proxy.example.com:3128";
    let whole = json!({
        "default": true,
        "loadBalancerClasses": ["example.com/fast"],
        "nodeSelector": {"matchLabels": {"example.com/cloud": "sim", "empty": ""}},
        "providerIdSchemes": ["sim", "x-1.y_z+"],
        "interfaces": ["load-balancers", "instances"],
        "providerIdPrefixes": ["sim://eu/", "cn-hangzhou."],
        "loadBalancerCidrs": ["198.51.100.200/29", "2001:db8::/64"],
        "nodeCidrs": ["10.1.0.0/16"],
        "paused": true,
        "deletionPolicy": "Retain",
        "deletionBudget": {"deletions": 20, "window": "1h30m"},
        "source": {"oci": {
            "reference": "ghcr.io/org/provider:v1",
            "pollInterval": "1h1.5m.5s",
            "timeout": "1500000µs",
            "credentials": value,
            "caBundle": pem,
            "mirrors": ["mirror.local:5000"],
            "plainHTTP": ["mirror.local:5000"],
            "proxy": proxy,
            "trustedHosts": ["[fd00::1]:9000"],
            "signatures": {
                "keys": [pem, pem],
                "identities": [{"issuer": "https://issuer.example", "subject": "release@example.com"}],
                "trustRoot": {"json": "{}"},
                "require": 3,
            },
        }},
        "config": "region = eu\n",
        "egress": {
            "rules": [{"origins": at, "methods": ["GET", "POST"], "pathPrefixes": ["/v1", "/"], "reads": ["Action=Describe*"], "deletes": ["Action=Delete*"]}, {"origins": at}],
            "allowCidrs": ["127.0.0.1/32", "fd00::/64"],
            "caBundle": pem,
            "proxy": proxy,
        },
        "credentials": credentials(),
        "limits": limits(),
        "allowInterfaceLoss": true,
        "allowIdentityChange": true,
        "allowUnmetEgress": true,
        "rollout": {
            "shadow": {"onDifference": "Refuse"},
            "plan": {"onWrites": "Refuse"},
            "canary": {"percent": 99, "calls": 0, "time": "24h"},
            "probation": {"calls": 0, "time": "24h"},
            "retry": format!("sha256:{}", "0a".repeat(32)),
        },
    });
    let map = json!({"configMap": {"namespace": "skysail-system", "name": "provider", "key": "provider.wasm"}});
    let maps = json!({"configMap": {"namespace": "skysail-system", "names": ["provider-1", "provider.2"]}});
    let mirrored = json!({"oci": {"reference": "registry.local:5000/a@sha256:00", "caBundle": pem}});
    let conf = json!({"format": "openstack", "secretKeyRef": secret_key_ref("cloud.conf"), "credential": "cloud"});
    let elsewhere = json!({"source": map, "rollout": {"probation": {"time": "0"}}, "vendorConfig": conf});
    let specs = [whole, elsewhere, json!({"source": maps}), json!({"source": mirrored}), json!({"source": source()})];
    specs.into_iter().map(with_spec).collect()
}

/// Credentials of every scheme and with every field.
fn credentials() -> Value {
    let at = json!(["https://api.example.com"]);
    let credential = |field: &str, proof: Value| json!({"origins": at, field: proof});
    let value = secret(".dockerconfigjson");
    let account = json!({"namespace": "kube-system", "name": "ccm", "audience": "sts.amazonaws.com"});
    json!({
        "a": credential("bearer", value.clone()),
        "b.c-d_E": credential("header", json!({"name": "X-Auth-Token", "value": value})),
        "c": credential("basic", json!({"username": "", "password": value})),
        "d": credential("clientCertificate", json!({"certificate": value, "key": value})),
        "e": credential("keystone", json!({"authUrl": "https://keystone.example.com:5000/v3", "password": {
            "user": {"name": "ccm", "domainName": "Default"}, "password": value, "project": {"id": "k8s"},
        }})),
        "f": credential("keystone", json!({"authUrl": "http://10.0.0.1", "applicationCredential": {
            "name": "ccm", "user": {"id": "ccm"}, "secret": value,
        }})),
        "g": credential("oauth2", json!({
            "tokenUrl": "https://issuer.example.com/token", "clientId": "ccm", "clientSecret": value,
            "clientAuthentication": "Body", "scopes": ["a"], "parameters": {"audience": "b"},
        })),
        "h": credential("serviceAccountKey", json!({"key": value, "scopes": ["a"]})),
        "j": credential("aws", json!({"region": "eu-west-1", "accessKey": {
            "id": value, "secret": value, "sessionToken": value,
        }})),
        "k": credential("aws", json!({
            "region": "eu-west-1", "service": "ec2", "credentialsFile": {"content": value, "profile": "dev"},
        })),
        "l": credential("aws", json!({"region": "eu-west-1", "webIdentity": {
            "roleArn": "arn:aws:iam::123456789012:role/ccm", "token": value, "sessionName": "a",
            "stsUrl": "https://sts.example.com",
        }})),
        "o": credential("keystone", json!({"authUrl": "https://keystone", "password": {
            "user": {"id": "ccm"}, "password": value, "trustId": "t",
        }})),
        "p": credential("keystone", json!({"authUrl": "https://keystone", "password": {
            "user": {"name": "ccm", "domainId": "d"}, "password": value,
            "project": {"name": "k8s", "domainId": "d"},
        }})),
        "q": credential("keystone", json!({"authUrl": "https://keystone", "password": {
            "user": {"id": "ccm"}, "password": value, "project": {"name": "k8s", "domainName": "d"},
        }})),
        "r": credential("keystone", json!({"authUrl": "https://keystone", "applicationCredential": {
            "id": "a", "secret": value,
        }})),
        "s": credential("keystone", json!({"authUrl": "https://keystone", "applicationCredential": {
            "name": "a", "user": {"name": "ccm", "domainId": "d"}, "secret": value,
        }})),
        "t": credential("keystone", json!({"authUrl": "https://keystone", "applicationCredential": {
            "name": "a", "user": {"name": "ccm", "domainName": "d"}, "secret": value,
        }})),
        "u": credential("oauth2", json!({
            "tokenUrl": "https://issuer", "clientId": "ccm", "clientAssertion": value,
        })),
        "v": credential("oauth2", json!({
            "tokenUrl": "https://issuer", "clientId": "ccm", "serviceAccountToken": account,
        })),
        "w": credential("aws", json!({"region": "eu-west-1", "webIdentity": {
            "roleArn": "arn:aws:iam::123456789012:role/ccm", "serviceAccountToken": account,
        }})),
        "n": credential("cloudstack", json!({"apiKey": value, "secretKey": value})),
        "i": credential("vsphere", json!({"url": "https://vcenter", "username": "ccm@vsphere.local", "password": value})),
    })
}

fn limits() -> Value {
    json!({
        "fuel": 1_000_000_000_000_u64,
        "cpuTimeMs": 3_600_000,
        "deadlineMs": 3_600_000,
        "memoryBytes": 1 << 30,
        "tableElements": 1,
        "instances": 64,
        "handles": 8,
        "hostCallBytes": 4096,
        "resultBytes": 1 << 30,
        "stackBytes": 65536,
        "logLines": 1,
        "logBytes": 65536,
        "events": 1,
        "httpRequests": 1,
        "httpRequestsPerSecond": 10_000,
        "httpConcurrency": 1,
        "httpRequestBytes": 1024,
        "httpResponseBytes": 1024,
        "httpHeaders": 1,
        "httpHeaderBytes": 1024,
        "httpTimeMs": 3_600_000,
        "cacheBytes": 1024,
        "cacheEntries": 1,
        "cacheTtlMs": 1,
        "concurrentCalls": 64,
        "componentBytes": 1024,
        "compileTimeMs": 100,
        "compileMemoryBytes": 17_179_869_184_u64,
    })
}

#[tokio::test]
async fn valid_providers_with_every_field_are_accepted_and_their_status_is_shown() -> Result<()> {
    let cluster = Cluster::start().await?;
    let definition = cluster.definition()?;
    let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties").context("a schema")?;
    let mut written = BTreeSet::new();
    for provider in valid() {
        cluster.create(&provider, &["--dry-run=server"])?;
        fields_of(&schema["spec"], &provider["spec"], "spec", &mut written)?;
    }
    let mut known = BTreeSet::new();
    known_fields(&schema["spec"], "spec", &mut known);
    let untried: Vec<_> = known.difference(&written).collect();
    ensure!(untried.is_empty(), "no provider here has {untried:?}");

    // The stored object is the written one with the defaults that are false; it has no other ones.
    let mut expected = provider()["spec"].clone();
    for off in ["allowIdentityChange", "allowInterfaceLoss", "allowUnmetEgress", "default"] {
        expected[off] = json!(false);
    }
    cluster.create(&provider(), &[])?;
    let stored: Value = serde_json::from_str(&cluster.server.kubectl(&["get", "provider", "sim", "-o", "json"])?)?;
    ensure!(stored["spec"] == expected, "stored: {}", stored["spec"]);
    let status = status();
    let (mut written, mut known) = (BTreeSet::new(), BTreeSet::new());
    fields_of(&schema["status"], &status, "status", &mut written)?;
    known_fields(&schema["status"], "status", &mut known);
    ensure!(written == known, "{:?}", known.difference(&written));
    let patch = json!({"status": status}).to_string();
    cluster.server.kubectl(&["patch", "provider", "sim", "--subresource=status", "--type=merge", "-p", &patch])?;
    let stored: Value = serde_json::from_str(&cluster.server.kubectl(&["get", "skyp", "sim", "-o", "json"])?)?;
    ensure!(stored["status"] == status, "stored: {}", stored["status"]);
    let shown = cluster.server.kubectl(&["get", "skysail"])?;
    let (head, row) = shown.split_once('\n').context("a head and a row")?;
    ensure!(words(head) == "NAME READY DEGRADED REASON VERSION DIGEST CANDIDATE AGE", "{head}");
    ensure!(words(row).starts_with("sim True True ClaimTaken 1.2.3 sha256:aa sha256:bb "), "{row}");
    Ok(())
}

fn status() -> Value {
    let condition = |about: &str, status: &str, reason: &str| {
        json!({
            "type": about,
            "status": status,
            "reason": reason,
            "message": "for people",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        })
    };
    json!({
        "observedGeneration": 1,
        "providerIdSchemes": ["sim"],
        "conditions": [
            condition("Ready", "True", "Serving"),
            condition("ReleaseAccepted", "False", "IdentityChanged"),
            condition("Degraded", "True", "ClaimTaken"),
        ],
        "active": {
            "digest": "sha256:aa",
            "origin": "file /components/sim.wasm",
            "name": "sim",
            "version": "1.2.3",
            "contract": "0.1.0",
            "interfaces": ["instances"],
            "providerIdSchemes": ["sim"],
            "since": "2026-01-02T03:04:05Z",
        },
        "probation": {"predecessor": "sha256:00", "calls": 20, "timeMs": 300_000},
        "candidate": {"digest": "sha256:bb", "origin": "file /components/sim.wasm", "stage": "verified"},
        "refused": {
            "digest": "sha256:cc",
            "origin": "file /components/sim.wasm",
            "stage": "described",
            "code": "IdentityChanged",
            "reason": "for people",
            "lasting": true,
            "retried": false,
        },
        "canary": {
            "digest": "sha256:dd",
            "origin": "file /components/sim.wasm",
            "version": "1.2.4",
            "percent": 10,
            "calls": 20,
            "timeMs": 300_000,
        },
        "shadow": {
            "digest": "sha256:dd",
            "asked": 3,
            "unanswered": 1,
            "differing": 1,
            "differences": ["routes.list: [] before, [1] now"],
        },
        "sourceFailure": {"code": "FileMissing", "reason": "for people"},
        "swaps": 2,
        "draining": 1,
        "calls": [calls()],
    })
}

fn calls() -> Value {
    json!({
        "function": "load-balancers.ensure",
        "calls": 4,
        "failed": 1,
        "outcomes": {"Ok": 3, "LimitExceeded": 1},
        "p50Ms": 40,
        "p99Ms": 1200,
        "fuelP99": 2_000_000,
        "fuelMax": 1_000_000_000_000_u64,
        "fuelLimit": 1_000_000_000_000_u64,
        "limitHits": {"fuel": 1},
        "lastFailure": last_failure(),
    })
}

fn last_failure() -> Value {
    json!({"code": "Trapped", "message": "why", "time": "2026-01-01T00:00:00Z", "succeededSince": false})
}

/// All fields of a schema; `.*` stands for the values of a map, `[]` for the entries of a list.
fn known_fields(schema: &Value, path: &str, fields: &mut BTreeSet<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        known_fields(property, &path, fields);
        fields.insert(path);
    }
    known_fields_below(&schema["items"], &format!("{path}[]"), fields);
    known_fields_below(&schema["additionalProperties"], &format!("{path}.*"), fields);
}

fn known_fields_below(schema: &Value, path: &str, fields: &mut BTreeSet<String>) {
    if schema.is_object() {
        known_fields(schema, path, fields);
    }
}

/// The fields that a value has, by their places in the schema.
fn fields_of(schema: &Value, value: &Value, path: &str, fields: &mut BTreeSet<String>) -> Result<()> {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(property) = schema["properties"].get(name) {
                    let path = format!("{path}.{name}");
                    fields_of(property, value, &path, fields)?;
                    fields.insert(path);
                } else if schema["additionalProperties"].is_object() {
                    fields_of(&schema["additionalProperties"], value, &format!("{path}.*"), fields)?;
                } else {
                    bail!("the schema has no {path}.{name}");
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                fields_of(&schema["items"], item, &format!("{path}[]"), fields)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}
