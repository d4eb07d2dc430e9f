//! OpenAPI v3, as much as `kubectl` needs before it trusts a server with validation.
//!
//! kubectl looks for the `fieldValidation` parameter on the patch operation of a kind; where it is, unknown fields are
//! the server's business (`codec`). There is no v2 document and no schema: kubectl then uses the types it knows.

use serde_json::{Map, Value, json};

use super::state::State;

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
    let info = json!({"title": "Skysail's in-memory Kubernetes API", "version": super::discovery::GIT_VERSION});
    (!paths.is_empty()).then(|| json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {}}))
}
