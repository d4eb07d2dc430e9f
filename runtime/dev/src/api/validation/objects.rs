//! Rules of the smaller kinds: `ConfigMap`s and Secrets, Events, Leases, definitions of custom
//! resources.

use serde_json::Value;

use crate::api::errors::Cause;
use crate::api::object::{list, text};

/// The API server's limit on the data of one ConfigMap or Secret.
const DATA_BYTES_MAX: usize = 1024 * 1024;

pub(crate) fn config(storage: &str, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let entries = ["/data", "/binaryData"]
        .into_iter()
        .flat_map(|path| new.pointer(path).and_then(Value::as_object).into_iter().flatten().map(move |e| (path, e)));
    let mut size = 0;
    for (path, (key, value)) in entries {
        let field = format!("{}[{key}]", path.trim_start_matches('/'));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if key.is_empty() || key.len() > 253 || !key.chars().all(plain) || matches!(key.as_str(), "." | "..") {
            causes.push(Cause::invalid(field, &Value::from(key.as_str()), CONFIG_KEY));
        }
        size += value.as_str().map_or(0, str::len);
    }
    // Binary data counts in base64, four bytes for three.
    let limit = if storage == "secrets" { DATA_BYTES_MAX * 4 / 3 } else { DATA_BYTES_MAX };
    if size > limit {
        let message = format!("Too long: may not be more than {DATA_BYTES_MAX} bytes");
        causes.push(Cause { field: "data".into(), reason: "FieldValueTooLong", message });
    }
    if let Some(old) = old {
        if old.pointer("/immutable") == Some(&Value::Bool(true)) {
            for path in ["/data", "/binaryData", "/immutable"] {
                if old.pointer(path) != new.pointer(path) {
                    let detail = "field is immutable when `immutable` is set";
                    causes.push(Cause::forbidden(path.trim_start_matches('/'), detail));
                }
            }
        }
        if storage == "secrets" && text(old, "/type") != text(new, "/type") {
            causes.push(Cause::invalid("type", &Value::from(text(new, "/type")), "field is immutable"));
        }
    }
    causes
}

const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
    'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// The required fields of an Event of the newer view, in both spellings.
const NEW_EVENT_FIELDS: [(&str, &str); 4] = [
    ("/reportingComponent", "reportingController"),
    ("/reportingInstance", "reportingInstance"),
    ("/action", "action"),
    ("/reason", "reason"),
];

/// Both views are stored as core Events; the newer view has stricter rules on creation.
pub(crate) fn event(group: &str, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (namespace, involved) = (text(new, "/metadata/namespace"), text(new, "/involvedObject/namespace"));
    let fits = namespace == involved || involved.is_empty() && matches!(namespace, "" | "default" | "kube-system");
    if !fits {
        let detail = "does not match event.namespace";
        causes.push(Cause::invalid("involvedObject.namespace", &Value::from(involved), detail));
    }
    if group.is_empty() || old.is_some() {
        return causes;
    }
    if text(new, "/eventTime").is_empty() {
        causes.push(Cause::required("eventTime", ""));
    }
    // Without a time it counts as an old Event, for which the other fields are optional.
    let required = if causes.is_empty() { NEW_EVENT_FIELDS.as_slice() } else { &[] };
    for (path, field) in required {
        if text(new, path).is_empty() {
            causes.push(Cause::required(*field, ""));
        }
    }
    if !matches!(text(new, "/type"), "Normal" | "Warning") {
        causes.push(Cause::invalid("type", &Value::from(text(new, "/type")), "has invalid value: "));
    }
    causes
}

pub(crate) fn lease(new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["leaseDurationSeconds", "leaseTransitions"] {
        let value = new.pointer(&format!("/spec/{field}")).and_then(Value::as_i64);
        let minimum = i64::from(field == "leaseDurationSeconds");
        if let Some(value) = value.filter(|v| *v < minimum) {
            let detail = if minimum == 1 { "must be greater than 0" } else { "must be greater than or equal to 0" };
            causes.push(Cause::invalid(format!("spec.{field}"), &Value::from(value), detail));
        }
    }
    causes
}

pub(crate) fn definition(new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (name, group) = (text(new, "/metadata/name"), text(new, "/spec/group"));
    let plural = text(new, "/spec/names/plural");
    if name != format!("{plural}.{group}") {
        causes.push(Cause::invalid("metadata.name", &Value::from(name), "must be spec.names.plural+\".\"+spec.group"));
    }
    for (path, field) in [("/spec/group", "spec.group"), ("/spec/names/kind", "spec.names.kind")] {
        if text(new, path).is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    if !matches!(text(new, "/spec/scope"), "Namespaced" | "Cluster") {
        let scope = Value::from(text(new, "/spec/scope"));
        causes.push(Cause::unsupported("spec.scope", &scope, &["Cluster", "Namespaced"]));
    }
    let versions = list(new, "/spec/versions");
    let stored = versions.iter().filter(|v| v.get("storage") == Some(&Value::Bool(true))).count();
    if stored != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &Value::from(versions.to_vec()), detail));
    }
    for (index, version) in versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none() {
            let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
            causes.push(Cause::required(field, "schemas are required"));
        }
    }
    causes
}
