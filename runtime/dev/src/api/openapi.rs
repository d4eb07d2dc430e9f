//! OpenAPI: for `kubectl explain`, and for kubectl's decision whether the server validates.
//!
//! kubectl looks for the `fieldValidation` parameter on the patch operation of a kind; if present,
//! kubectl leaves unknown fields to the server (`codec`). No patch operation lists its patch types,
//! so kubectl merges by the types that it knows.
//!
//! `openapi.txt` holds one schema a line, its name and its JSON: those of the built-in kinds and
//! what they refer to, from the OpenAPI v3 documents of kube-apiserver 1.36.3. The schemas of
//! custom resources are those of their definitions.

use std::collections::HashMap;

use ::http::Response;
use axum::body::Body;
use serde_json::{Map, Value, json};

use super::discovery::GIT_VERSION;
use super::kinds::Kind;
use super::object;
use super::state::State;

static SCHEMAS: &str = include_str!("openapi.txt");
/// Where documents refer to schemas.
const REFERENCE: &str = "#/components/schemas/";

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3`.
pub(crate) fn index(state: &State) -> Value {
    let mut paths = Map::new();
    for kind in &state.kinds {
        let path = path_of(&kind.group, &kind.version);
        let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
        paths.insert(path, url);
    }
    json!({"paths": paths})
}

/// `/openapi/v3/api/v1` and `/openapi/v3/apis/GROUP/VERSION`.
pub(crate) fn document(state: &State, group: &str, version: &str) -> Option<Value> {
    let parameter = json!({
        "name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": true},
        "description": "What happens to unknown fields: Ignore, Warn or Strict.",
    });
    let mut paths = Map::new();
    for kind in state.kinds.iter().filter(|k| k.group == group && k.version == version) {
        let scope = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
        let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let operation = |action: &str| {
            json!({
                "parameters": [parameter], "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk,
            })
        };
        let base = path_of(group, version);
        paths.insert(format!("/{base}/{scope}{}", kind.plural), json!({"post": operation("post")}));
        paths.insert(
            format!("/{base}/{scope}{}/{{name}}", kind.plural),
            json!({"patch": operation("patch"), "put": operation("put")}),
        );
    }
    let info = json!({"title": "Skysail's in-memory Kubernetes API", "version": GIT_VERSION});
    let schemas = schemas(state.kinds.iter().filter(|k| k.group == group && k.version == version));
    (!paths.is_empty())
        .then(|| json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}))
}

/// `/openapi/v2`: an empty document, which kubectl reads before it reports an unknown kind. As
/// protobuf it is an empty message.
pub(crate) fn v2(accept: &str) -> Response<Body> {
    if accept.contains("proto-openapi") {
        let content_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
        return super::http::with_type(Response::new(Body::empty()), content_type);
    }
    let document = json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": GIT_VERSION}, "paths": {}});
    super::http::with_type(Response::new(Body::from(document.to_string())), "application/json")
}

/// The schemas of these kinds and of their references.
fn schemas<'a>(kinds: impl Iterator<Item = &'a std::sync::Arc<Kind>>) -> Map<String, Value> {
    let known: HashMap<&str, &str> = SCHEMAS.lines().filter_map(|line| line.split_once(' ')).collect();
    let mut schemas = Map::new();
    let mut wanted = Vec::new();
    for kind in kinds {
        match &kind.custom {
            Some(version) => {
                let schema = custom(kind, version);
                wanted.extend(references(&schema));
                schemas.insert(format!("{}.{}.{}", kind.group, kind.version, kind.kind), schema);
            }
            None => wanted.extend(known.keys().find(|name| name.ends_with(&builtin(kind))).map(|n| (*n).to_owned())),
        }
    }
    while let Some(name) = wanted.pop() {
        let schema = known.get(name.as_str()).and_then(|text| serde_json::from_str::<Value>(text).ok());
        if let Some(schema) = schema.filter(|_| !schemas.contains_key(&name)) {
            wanted.extend(references(&schema));
            schemas.insert(name, schema);
        }
    }
    schemas
}

/// The end of the schema name of a built-in kind: `.core.v1.Service`.
fn builtin(kind: &Kind) -> String {
    let group = kind.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!(".{group}.{}.{}", kind.version, kind.kind)
}

/// The schema of a custom resource, with the fields of every object.
fn custom(kind: &Kind, version: &Value) -> Value {
    let mut schema = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_else(|| json!({"type": "object"}));
    for field in ["apiVersion", "kind"] {
        object::set(&mut schema, &format!("/properties/{field}"), json!({"type": "string"}));
    }
    let metadata = format!("{REFERENCE}io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    object::set(&mut schema, "/properties/metadata", json!({"allOf": [{"$ref": metadata}]}));
    let gvk = json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
    object::set(&mut schema, "/x-kubernetes-group-version-kind", gvk);
    schema
}

/// The names of all schemas that this one refers to.
fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| match value {
                Value::String(text) if key == "$ref" => {
                    text.strip_prefix(REFERENCE).map(str::to_owned).into_iter().collect()
                }
                value => references(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{SCHEMAS, builtin, references};
    use crate::api::kinds;

    #[test]
    fn every_built_in_kind_has_a_schema_and_every_reference_has_a_target() {
        let lines: Vec<_> = SCHEMAS.lines().map(|line| line.split_once(' ').unwrap()).collect();
        let names: BTreeSet<_> = lines.iter().map(|(name, _)| *name).collect();
        for kind in kinds::builtin() {
            assert_eq!(names.iter().filter(|name| name.ends_with(&builtin(&kind))).count(), 1, "{kind:?}");
        }
        for (name, text) in lines {
            for reference in references(&serde_json::from_str(text).unwrap()) {
                assert!(names.contains(reference.as_str()), "{name} refers to {reference}");
            }
        }
    }
}
