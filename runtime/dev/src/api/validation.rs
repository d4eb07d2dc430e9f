//! Validation of all kinds: names, labels, annotations, finalizers. The rules of single kinds are
//! in `validation/`.

pub(crate) mod nodes;
pub(crate) mod objects;
pub(crate) mod services;

use serde_json::Value;

use super::errors::Cause;
use super::kinds::Kind;
use super::object::{list, text};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// The API server's limit on all annotations of one object together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

fn is_label(s: &str, max: usize) -> bool {
    let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = s.as_bytes();
    (1..=max).contains(&s.len())
        && bytes.iter().all(|c| alphanumeric(*c) || *c == b'-')
        && bytes.first().is_some_and(|c| alphanumeric(*c))
        && bytes.last().is_some_and(|c| alphanumeric(*c))
}

/// RFC 1123 subdomain of at most 253 characters.
pub(crate) fn is_subdomain(s: &str) -> bool {
    s.len() <= 253 && s.split('.').all(|part| is_label(part, 253))
}

fn is_name_part(s: &str) -> bool {
    let bytes = s.as_bytes();
    (1..=63).contains(&s.len())
        && bytes.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// A label key: an optional DNS prefix, a slash, and a name of at most 63 characters.
pub(crate) fn is_qualified_name(s: &str) -> bool {
    match s.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name_part(name),
        None => is_name_part(s),
    }
}

/// A label value: empty, or a name of at most 63 characters.
pub(crate) fn is_label_value(s: &str) -> bool {
    s.is_empty() || is_name_part(s)
}

fn name_fault(kind: &Kind, name: &str) -> Option<&'static str> {
    let any_path_segment = kind.group == "rbac.authorization.k8s.io" && kind.custom.is_none();
    match &*kind.storage {
        _ if any_path_segment => {
            (name.contains(['/', '%']) || matches!(name, "." | "..")).then_some("may not be '.', '..' or contain '/'")
        }
        "services" | "namespaces" if kind.custom.is_none() => (!is_label(name, 63)).then_some(LABEL),
        _ => (!is_subdomain(name)).then_some(SUBDOMAIN),
    }
}

/// The faults of an object's metadata.
pub(crate) fn metadata(kind: &Kind, object: &Value) -> Vec<Cause> {
    let name = text(object, "/metadata/name");
    let mut causes = Vec::new();
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(fault) = name_fault(kind, name) {
        causes.push(Cause::invalid("metadata.name", &Value::from(name), fault));
    }
    for (key, value) in object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
        if !is_qualified_name(key) {
            causes.push(Cause::invalid("metadata.labels", &Value::from(key.as_str()), NAME_PART));
        }
        if !value.as_str().is_some_and(is_label_value) {
            causes.push(Cause::invalid("metadata.labels", value, LABEL_VALUE));
        }
    }
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let size: usize = annotations.into_iter().flatten().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS_BYTES_MAX {
        let message = format!("Too long: may not be more than {ANNOTATIONS_BYTES_MAX} bytes");
        causes.push(Cause { field: "metadata.annotations".into(), reason: "FieldValueTooLong", message });
    }
    for key in annotations.into_iter().flatten().map(|(k, _)| k).filter(|k| !is_qualified_name(&k.to_lowercase())) {
        causes.push(Cause::invalid("metadata.annotations", &Value::from(key.as_str()), NAME_PART));
    }
    for finalizer in list(object, "/metadata/finalizers") {
        if !finalizer.as_str().is_some_and(is_qualified_name) {
            causes.push(Cause::invalid("metadata.finalizers", finalizer, NAME_PART));
        }
    }
    causes
}

const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
    with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The faults of an object of a built-in kind, apart from its metadata; `old` is the stored object
/// on updates.
pub(crate) fn object(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    if kind.custom.is_some() {
        return Vec::new();
    }
    match (&*kind.storage, kind.group.as_str()) {
        ("services", _) => services::validate(new, old),
        ("nodes", _) => nodes::validate(new, old),
        ("configmaps" | "secrets", _) => objects::config(&kind.storage, new, old),
        ("events", group) => objects::event(group, new, old),
        ("leases", _) => objects::lease(new),
        ("customresourcedefinitions", _) => objects::definition(new),
        _ => Vec::new(),
    }
}
