//! A `Provider` of the cluster.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use skysail_host::credentials::{SecretKeyRef, SecretValues};

use super::{
    ProviderSpec,
    explain::{self, Explanation},
    outline::Outline,
    schema::{self, API_VERSION, Carrier, Check, Document, KIND, NodeSelector, is_dns_label},
};

/// An object of kind `Provider` that was parsed and not checked yet.
#[derive(Debug)]
pub(crate) struct ProviderObject {
    name: String,
    outline: Outline,
    document: Document,
    secrets: BTreeSet<SecretKeyRef>,
}

impl ProviderObject {
    /// Parses an object's name and its `spec`. The API server may have validated the object with an
    /// older definition.
    ///
    /// # Errors
    /// The object does not fit the schema of `Provider`: place, reason and remedy.
    pub(crate) fn read(name: &str, spec: &Value) -> Result<Self, String> {
        let object = json!({ "apiVersion": API_VERSION, "kind": KIND, "metadata": { "name": name }, "spec": spec });
        // JSON is YAML: one parser, with one set of errors, reads objects and files.
        let text = object.to_string();
        let outline = Outline::of(&text).map_err(|error| sentence(name, explain::syntax(&error)))?;
        let read = serde_saphyr::from_str(&text);
        let mut document: Document = read.map_err(|error| sentence(name, explain::schema(&outline, &error)))?;
        let secrets = schema::secrets_of(&mut document.spec);
        Ok(Self { name: name.to_owned(), outline, document, secrets })
    }

    /// The Secrets that the object names.
    pub(crate) const fn secrets(&self) -> &BTreeSet<SecretKeyRef> {
        &self.secrets
    }

    /// Checks the object, with the values of its Secrets.
    ///
    /// # Errors
    /// The first error: place, reason and remedy.
    pub(crate) fn check(self, secrets: &SecretValues) -> Result<ProviderSpec, String> {
        let Self { name, outline, document, secrets: _ } = self;
        let check = Check::new(Carrier::Object { secrets }, (&outline, 0));
        check.document(document).map_err(|explanation| sentence(&name, explanation))
    }
}

/// The claims of an object that was refused: the provider serves nothing, and no younger provider
/// takes what is its own. Each claim is read by itself, because the error may be in another one.
/// `None` if no provider can have this name.
pub(crate) fn claims_only(name: &str, spec: &Value) -> Option<ProviderSpec> {
    fn field<T: DeserializeOwned + Default>(spec: &Value, name: &str) -> T {
        spec.get(name).and_then(|value| T::deserialize(value).ok()).unwrap_or_default()
    }
    let selector: NodeSelector = field(spec, "nodeSelector");
    let spec = ProviderSpec {
        default: field(spec, "default"),
        load_balancer_classes: field(spec, "loadBalancerClasses"),
        // An empty selector would select every node.
        node_selector: Some(selector.match_labels).filter(|labels| !labels.is_empty()),
        provider_id_schemes: field(spec, "providerIdSchemes"),
        provider_id_prefixes: field(spec, "providerIdPrefixes"),
        interfaces: schema::interfaces(field(spec, "interfaces")),
        ..ProviderSpec::closed(name).ok()?
    };
    is_dns_label(name).then_some(spec)
}

/// The explanation as a sentence, without the line and the name of the provider: an object needs
/// neither.
fn sentence(name: &str, Explanation { line: _, place, reason }: Explanation) -> String {
    let provider = format!("provider {name:?}");
    let place = place.strip_prefix(&provider).map_or(&*place, |rest| rest.trim_start_matches(": "));
    if place.is_empty() { reason } else { format!("{place}: {reason}") }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};
    use skysail_host::credentials::{Secret, SecretKeyRef, SecretValues};

    use super::{ProviderObject, ProviderSpec};

    fn token() -> SecretKeyRef {
        SecretKeyRef { namespace: "cloud".to_owned(), name: "api".to_owned(), key: "token".to_owned() }
    }

    fn take(spec: &Value) -> Result<ProviderSpec, String> {
        let secrets = SecretValues::from([(token(), Secret::new("a-long-token"))]);
        ProviderObject::read("sim", spec)?.check(&secrets)
    }

    #[track_caller]
    fn refused(changes: Value, expected: Expect) {
        let mut spec = json!({ "source": { "configMap": { "namespace": "cloud", "name": "sim" } } });
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        expected.assert_eq(&take(&spec).unwrap_err());
    }

    #[test]
    fn an_object_is_read_as_a_document_of_the_file_is() {
        let spec = json!({
            "default": true,
            "source": { "oci": { "reference": "registry.example.com/sim:v1", "credentials": { "secretKeyRef": token() } } },
            "limits": { "fuel": 2_000_000_000_u64 },
            "credentials": { "api": { "origins": ["https://api.example.com"], "bearer": { "secretKeyRef": token() } } },
        });
        let object = ProviderObject::read("sim", &spec).unwrap();
        assert!(object.secrets().iter().eq([&token()]));
        let spec = take(&spec).unwrap();
        assert!(spec.default && spec.name == "sim" && spec.limits.fuel == 2_000_000_000);
        assert_eq!(spec.credentials.redact("<a-long-token>"), "<[redacted]>");
    }

    /// The texts that an operator has to replace stand for texts of the same form.
    #[test]
    fn the_examples_of_the_guests_are_objects() {
        for guest in ["aws", "hetzner", "openstack", "vsphere"] {
            let file = format!("{}/../../guests/{guest}/provider.yaml", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(file).unwrap();
            let mut object: Value = serde_saphyr::from_str(&text).unwrap();
            // The certificate of an example is an ellipsis.
            object["spec"]["egress"].as_object_mut().unwrap().remove("caBundle");
            let read = ProviderObject::read(guest, &object["spec"]).unwrap();
            let value = |key: &SecretKeyRef| (key.clone(), Secret::new("a-long-token"));
            let secrets = read.secrets().iter().map(value).collect();
            if let Err(error) = read.check(&secrets) {
                panic!("guests/{guest}/provider.yaml: {error}");
            }
        }
    }

    #[test]
    fn an_object_cannot_use_the_role_of_the_manager_s_machine() {
        let aws = json!({ "region": "eu-west-1", "instanceMetadata": {} });
        refused(
            json!({ "credentials": { "api": { "origins": ["https://ec2.eu-west-1.amazonaws.com"], "aws": aws } } }),
            expect![[
                r#"spec.credentials.api.aws.instanceMetadata: it would give the role of the manager's machine to everyone who may write Providers; write the provider in a provider file, or use webIdentity"#
            ]],
        );
    }

    #[test]
    fn errors_about_an_object_have_no_lines() {
        refused(
            json!({ "fuel": 1 }),
            expect![[
                r#"spec.fuel: "fuel" is not a valid key here; write one of default, loadBalancerClasses, nodeSelector, providerIdSchemes, providerIdPrefixes, interfaces, loadBalancerCidrs, nodeCidrs, paused, deletionPolicy, deletionBudget, source, config, configFile, vendorConfig, egress, credentials, limits, allowInterfaceLoss, allowIdentityChange, allowUnmetEgress, rollout"#
            ]],
        );
        refused(
            json!({ "limits": { "fuel": "many" } }),
            expect![[r#"spec.limits.fuel: "many" is not a whole number of 0 or more; correct it"#]],
        );
        refused(
            json!({ "limits": { "fuel": 1 } }),
            expect![
                "spec.limits.fuel: fuel is 1, and may be 100000 to 1000000000000 fuel units (default 1000000000): an empty call takes some hundred units, a call of an import two thousand, reading a thousand nodes a few million, and a thousand million are 0.1 to 0.2 s of CPU"
            ],
        );
        refused(
            json!({ "source": {} }),
            expect!["spec.source: the source is empty; write exactly one of file, configMap and oci"],
        );
        refused(
            json!({ "source": { "file": "/run/secrets/token" } }),
            expect![
                "spec.source.file: an object in the cluster must not name a file or an environment variable of the manager; write configMap or oci for a component, secretKeyRef for a secret, and the text itself for everything else"
            ],
        );
        refused(
            json!({ "rollout": { "probation": { "time": "soon" } } }),
            expect![[r#"spec.rollout.probation.time: "soon" is not a duration; write 5s, 1m30s or 250ms"#]],
        );
        expect![[r#"the key "source" is missing; add it"#]].assert_eq(&take(&Value::Null).unwrap_err());
    }

    /// An account with write access to Providers must not read the manager's files and variables.
    #[test]
    fn an_object_that_names_a_file_or_a_variable_of_the_manager_is_refused() {
        let map = json!({ "configMap": { "namespace": "cloud", "name": "sim" } });
        let file = json!({ "file": "/run/secrets/kubernetes.io/serviceaccount/token" });
        let api = |value: &Value| json!({ "api": { "origins": ["https://api.example.com"], "bearer": value } });
        let oci = |field: &str, value: &Value| json!({ "oci": { "reference": "example.com/sim:v1", field: value } });
        let root = json!({ "identities": [{ "issuer": "https://a", "subject": "b" }], "trustRoot": file });
        for (spec, place) in [
            (json!({ "source": file }), "source.file"),
            (json!({ "source": oci("credentials", &file) }), "source.oci.credentials.file"),
            (json!({ "source": oci("caBundle", &file) }), "source.oci.caBundle.file"),
            (json!({ "source": oci("signatures", &json!({ "keys": [file] })) }), "source.oci.signatures.keys[0].file"),
            (json!({ "source": oci("signatures", &root) }), "source.oci.signatures.trustRoot.file"),
            (json!({ "source": map, "configFile": "/etc/passwd" }), "configFile"),
            (json!({ "source": map, "egress": { "caBundle": file } }), "egress.caBundle.file"),
            (json!({ "source": map, "credentials": api(&file) }), "credentials.api.bearer.file"),
            (json!({ "source": map, "credentials": api(&json!({ "env": "HOME" })) }), "credentials.api.bearer.env"),
        ] {
            let error = take(&spec).unwrap_err();
            let expected = format!(
                "spec.{place}: an object in the cluster must not name a file or an environment variable of the manager; write"
            );
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_missing_secret_is_named() {
        let absent = json!({ "namespace": "cloud", "name": "other", "key": "token" });
        let api = json!({ "origins": ["https://api.example.com"], "bearer": { "secretKeyRef": absent } });
        refused(
            json!({ "credentials": { "api": api } }),
            expect![[
                r#"spec.credentials.api.bearer: Secret cloud/other does not exist, has no text under the key "token", or may not be read by the manager's ServiceAccount; create the Secret with the key, or allow the ServiceAccount to get it"#
            ]],
        );
        let oci = json!({ "reference": "registry.example.com/sim:v1", "credentials": { "secretKeyRef": absent } });
        refused(
            json!({ "source": { "oci": oci } }),
            expect![[
                r#"spec.source.oci.credentials.secretKeyRef: Secret cloud/other does not exist, has no text under the key "token", or may not be read by the manager's ServiceAccount; create the Secret with the key, or allow the ServiceAccount to get it"#
            ]],
        );
    }
}
