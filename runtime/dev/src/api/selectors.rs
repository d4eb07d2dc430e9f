//! Label and field selectors: parsing, and matching of stored objects.

use serde_json::Value;

use super::errors::ApiError;
use super::kinds::Kind;
use super::object::text;

/// The labels and fields that a list, watch or collection deletion is limited to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

#[derive(Clone, Debug, PartialEq)]
struct Field {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses both selectors of a request for objects of `kind`.
    ///
    /// # Errors
    /// `BadRequest` for a selector that cannot be parsed and for a field that cannot be selected.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let labels = split_outside_parentheses(labels)
            .into_iter()
            .map(|r| requirement(r).ok_or_else(|| unparsable("labelSelector", labels)))
            .collect::<Result<_, _>>()?;
        let fields = fields
            .split(',')
            .filter(|f| !f.is_empty())
            .map(|f| field(f).ok_or_else(|| unparsable("fieldSelector", f)).and_then(|f| supported(kind, f)))
            .collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    /// Whether the selector matches every object.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether `object` matches all requirements.
    pub(crate) fn matches(&self, kind: &Kind, object: &Value) -> bool {
        self.labels.iter().all(|r| r.matches(object)) && self.fields.iter().all(|f| f.matches(kind, object))
    }
}

impl Requirement {
    fn matches(&self, object: &Value) -> bool {
        let value = object.pointer("/metadata/labels").and_then(|l| l.get(&self.key)).and_then(Value::as_str);
        match (&self.test, value) {
            (Test::In(values), Some(v)) => values.iter().any(|w| w == v),
            (Test::NotIn(values), Some(v)) => !values.iter().any(|w| w == v),
            (Test::Exists, found) => found.is_some(),
            (Test::NotIn(_), None) => true,
            (Test::Absent, found) => found.is_none(),
            (Test::Greater(bound), Some(v)) => v.parse::<i64>().is_ok_and(|v| v > *bound),
            (Test::Less(bound), Some(v)) => v.parse::<i64>().is_ok_and(|v| v < *bound),
            (Test::In(_) | Test::Greater(_) | Test::Less(_), None) => false,
        }
    }
}

impl Field {
    fn matches(&self, kind: &Kind, object: &Value) -> bool {
        (field_value(kind, object, &self.path) == self.value) == self.equal
    }
}

/// The selectable value. Objects of both Event views are stored as core Events.
fn field_value(kind: &Kind, object: &Value, path: &str) -> String {
    if &*kind.storage == "events" {
        let path = path.replacen("regarding.", "involvedObject.", 1);
        match path.as_str() {
            "source" | "reportingController" => {
                let source = text(object, "/source/component");
                return if source.is_empty() { text(object, "/reportingComponent") } else { source }.to_owned();
            }
            "reportingComponent" => return text(object, "/reportingComponent").to_owned(),
            path => return scalar(object, path),
        }
    }
    scalar(object, path)
}

fn scalar(object: &Value, path: &str) -> String {
    match object.pointer(&format!("/{}", path.replace('.', "/"))) {
        Some(Value::String(s)) => s.clone(),
        Some(other @ (Value::Bool(_) | Value::Number(_))) => other.to_string(),
        _ if path == "spec.unschedulable" || path == "spec.hostNetwork" => "false".into(),
        _ => String::new(),
    }
}

fn supported(kind: &Kind, field: Field) -> Result<Field, ApiError> {
    let own: &[&str] = match (&*kind.storage, kind.group.as_str()) {
        ("events", "") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events", _) => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("nodes", _) => &["spec.unschedulable"],
        ("services", _) => &["spec.clusterIP", "spec.type"],
        ("secrets", _) => &["type"],
        ("namespaces", _) => &["status.phase"],
        ("pods", _) => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        _ => &[],
    };
    let path = field.path.as_str();
    if path == "metadata.name" || kind.namespaced && path == "metadata.namespace" || own.contains(&path) {
        return Ok(field);
    }
    if is_selectable_by_definition(kind, path) {
        return Ok(field);
    }
    let message = if kind.custom.is_some() || !own.is_empty() {
        format!("field label not supported: {path}")
    } else {
        format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    };
    Err(ApiError::bad_request(message))
}

fn is_selectable_by_definition(kind: &Kind, path: &str) -> bool {
    let Some(version) = &kind.custom else { return false };
    super::object::list(version, "/selectableFields")
        .iter()
        .any(|f| text(f, "/jsonPath").trim_start_matches('.') == path)
}

fn unparsable(which: &str, text: &str) -> ApiError {
    ApiError::bad_request(format!("unable to parse requirement: invalid {which} {text:?}"))
}

fn field(term: &str) -> Option<Field> {
    let (path, value, equal) = if let Some((p, v)) = term.split_once("!=") {
        (p, v, false)
    } else if let Some((p, v)) = term.split_once("==") {
        (p, v, true)
    } else {
        let (p, v) = term.split_once('=')?;
        (p, v, true)
    };
    Some(Field { path: path.trim().into(), value: value.trim().into(), equal })
}

fn split_outside_parentheses(selector: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_u32, 0, Vec::new());
    for (at, c) in selector.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(selector.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(selector.get(start..).unwrap_or_default());
    if selector.trim().is_empty() { Vec::new() } else { parts }
}

fn requirement(term: &str) -> Option<Requirement> {
    let term = term.trim();
    let set = |key: &str, rest: &str| -> Option<(String, Vec<String>)> {
        let inner = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some((label_key(key)?, inner.split(',').map(|v| v.trim().to_owned()).collect()))
    };
    if let Some((key, rest)) = term.split_once(" notin ").or_else(|| term.split_once(" notin(")) {
        return set(key, &parenthesised(rest)).map(|(key, v)| Requirement { key, test: Test::NotIn(v) });
    }
    if let Some((key, rest)) = term.split_once(" in ").or_else(|| term.split_once(" in(")) {
        return set(key, &parenthesised(rest)).map(|(key, v)| Requirement { key, test: Test::In(v) });
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Some(Requirement { key: label_key(key)?, test: Test::NotIn(vec![label_value(value)?]) });
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Some(Requirement { key: label_key(key)?, test: Test::In(vec![label_value(value)?]) });
    }
    if let Some((key, value)) = term.split_once('>') {
        return Some(Requirement { key: label_key(key)?, test: Test::Greater(value.trim().parse().ok()?) });
    }
    if let Some((key, value)) = term.split_once('<') {
        return Some(Requirement { key: label_key(key)?, test: Test::Less(value.trim().parse().ok()?) });
    }
    match term.strip_prefix('!') {
        Some(key) => Some(Requirement { key: label_key(key)?, test: Test::Absent }),
        None => Some(Requirement { key: label_key(term)?, test: Test::Exists }),
    }
}

/// `in(a,b)` was split at its parenthesis; `in (a,b)` still has it.
fn parenthesised(rest: &str) -> String {
    if rest.trim_start().starts_with('(') { rest.to_owned() } else { format!("({rest}") }
}

fn label_key(key: &str) -> Option<String> {
    let key = key.trim();
    super::validation::is_qualified_name(key).then(|| key.to_owned())
}

fn label_value(value: &str) -> Option<String> {
    let value = value.trim();
    super::validation::is_label_value(value).then(|| value.to_owned())
}
