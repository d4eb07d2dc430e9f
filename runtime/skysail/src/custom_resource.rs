//! The `CustomResourceDefinition` of the resource `Provider`.
//!
//! The schema of `spec` is generated from the types that read the provider file, without the fields
//! that name files of the manager. This module adds bounds and rules. The API server checks what
//! can be checked without another object or a file; the manager checks the rest.

mod bounds;
mod rules;
mod schema;
mod status;

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::schema::{OptionalEnum, StructuralSchemaRewriter};
use schemars::{Schema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

pub(crate) use self::status::{
    Active, Calls, Canary, Candidate, FailedCall, Failure, Probation, ProviderStatus, Refused, Shadow,
};
use crate::provider_file::{self, API_VERSION, KIND};

/// The annotation of the definition with the version of the program that it belongs to.
pub(crate) const VERSION_ANNOTATION: &str = "skysail.dev/version";

/// The comment above the printed definition.
const HEAD: &str = "# The cluster-scoped resource Provider, as `skysail crd` prints it.\n";

/// Fields that exist only in a provider file: an account with write access to an object must not
/// read the manager's files and environment variables through it.
const ONLY_IN_A_FILE: [&str; 4] = ["file", "env", "configFile", "instanceMetadata"];

/// The definition.
///
/// # Errors
/// The tables of bounds and rules do not fit the types; a test checks that they do.
pub(crate) fn definition() -> anyhow::Result<CustomResourceDefinition> {
    let (group, version) = API_VERSION.split_once('/').context("an API version without a group")?;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("providers.{group}"),
            "annotations": {VERSION_ANNOTATION: env!("CARGO_PKG_VERSION")},
        },
        "spec": {
            "group": group,
            // The claims of providers on Services and nodes reach over all namespaces.
            "scope": "Cluster",
            "names": {
                "kind": KIND,
                "listKind": format!("{KIND}List"),
                "plural": "providers",
                "singular": "provider",
                "shortNames": ["skyp"],
                "categories": ["skysail"],
            },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns(),
                "schema": {"openAPIV3Schema": root()?},
            }],
        },
    });
    Ok(serde_json::from_value(definition)?)
}

/// The definition as YAML. Its keys are sorted, so that the text changes only if the definition
/// changes.
///
/// # Errors
/// As [`definition`].
pub(crate) fn yaml() -> anyhow::Result<String> {
    let definition = plain(serde_json::to_value(definition()?)?);
    let options = serde_saphyr::ser_options! { folded_wrap_chars: 120 };
    let yaml = serde_saphyr::to_string_with_options(&definition, options).context("cannot write YAML")?;
    Ok(format!("{HEAD}{yaml}"))
}

/// The columns of `kubectl get providers`.
fn columns() -> Value {
    let column = |name: &str, path: &str, what: &str| json!({"name": name, "type": "string", "jsonPath": path, "description": what});
    json!([
        column("Ready", r#".status.conditions[?(@.type=="Ready")].status"#, "Whether a release serves."),
        column(
            "Degraded",
            r#".status.conditions[?(@.type=="Degraded")].status"#,
            "Whether the provider differs from its spec."
        ),
        column(
            "Reason",
            r#".status.conditions[?(@.type=="Degraded")].reason"#,
            "Reason of the condition Degraded in one word; AsExpected if the provider is not degraded."
        ),
        column("Version", ".status.active.version", "Version of the serving release."),
        column("Digest", ".status.active.digest", "Digest of the serving release."),
        column("Candidate", ".status.candidate.digest", "Digest of the release that is being rolled out."),
        json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
    ])
}

/// The schema of the whole object.
fn root() -> anyhow::Result<Value> {
    let mut root = json!({
        "type": "object",
        "description": "A cloud provider: a WebAssembly component that the manager runs in a sandbox, with its egress rules, credentials and limits.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Group and version of this resource: skysail.dev/v1alpha1."},
            "kind": {"type": "string", "description": "Kind of this resource: Provider."},
            "metadata": {"type": "object"},
            "spec": spec()?,
            "status": status()?,
        },
    });
    let object = root.as_object_mut().context("a schema is an object")?;
    object.insert(schema::VALIDATIONS.to_owned(), rules::of_the_object());
    Ok(root)
}

fn spec() -> anyhow::Result<Value> {
    let mut spec = object(provider_file::spec_schema(structural()))?;
    schema::take_away(&mut spec, &ONLY_IN_A_FILE)?;
    schema::fit(&mut spec)?;
    bounds::add_limits(&mut spec)?;
    schema::add(&mut spec, &bounds::all())?;
    schema::add(&mut spec, &rules::all()?)?;
    Ok(Value::Object(spec))
}

fn status() -> anyhow::Result<Value> {
    let mut status = object(structural().into_generator().into_root_schema_for::<ProviderStatus>())?;
    schema::fit(&mut status)?;
    Ok(Value::Object(status))
}

/// Settings for a structural schema, which the API server requires.
fn structural() -> SchemaSettings {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.meta_schema = None;
        // A structural schema has no references.
        settings.inline_subschemas = true;
    });
    settings.with_transform(StructuralSchemaRewriter).with_transform(OptionalEnum)
}

fn object(schema: Schema) -> anyhow::Result<Map<String, Value>> {
    match schema.to_value() {
        Value::Object(schema) => Ok(schema),
        other => anyhow::bail!("a schema is an object, and not {other}"),
    }
}

/// The value with sorted keys, independent of the map type of `serde_json`, and with whole numbers
/// as integers: the type of the definition stores bounds as floating-point numbers.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.into_iter().map(|(key, value)| (key, plain(value))).collect();
            entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        Value::Number(number) => whole(&number).map_or(Value::Number(number), Value::from),
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

fn whole(number: &serde_json::Number) -> Option<i64> {
    let text = number.as_f64().filter(|_| number.is_f64())?.to_string();
    text.parse().ok()
}

#[cfg(test)]
mod tests;
