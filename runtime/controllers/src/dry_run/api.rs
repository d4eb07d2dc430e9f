//! Holds back the writes to the Kubernetes API, and answers them with the object as it would be.

use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower::BoxError;

use crate::held::{DryRuns, ObjectWrite};

const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Where a node has its conditions.
const CONDITIONS: &str = "/status/conditions";

/// A client that reads as `client` does and writes nothing.
pub(super) fn holding(client: &Client, dry_runs: DryRuns) -> Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, dry_runs) = (inner.clone(), dry_runs.clone());
        async move {
            if request.method().is_safe() {
                return inner.send(request).await.map_err(BoxError::from);
            }
            held(&inner, &dry_runs, request).await
        }
    });
    Client::new(service, client.default_namespace())
}

async fn held(client: &Client, dry_runs: &DryRuns, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let object_path = path.strip_suffix("/status").unwrap_or(&path);
    let Some((kind, name)) = subject(object_path) else {
        return Err(format!("a dry run cannot hold back {} {path}; this is a bug in Skysail", parts.method).into());
    };
    let known = dry_runs.records().written.get(object_path).cloned();
    let current = match known {
        Some(object) => object,
        None => {
            let read = Request::get(object_path).body(Body::empty())?;
            let answer = client.send(read).await?;
            if !answer.status().is_success() {
                // For example 404 Not Found: the object was deleted meanwhile.
                return Ok(answer);
            }
            serde_json::from_slice(&answer.into_body().collect_bytes().await?)?
        }
    };
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let (after, answer) = match (&parts.method, content_type) {
        (&Method::DELETE, _) => {
            let deleted = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" });
            (Value::Null, deleted)
        }
        (&Method::PATCH, Some(MERGE_PATCH | STRATEGIC_MERGE_PATCH)) => {
            let patch = serde_json::from_slice(&body.collect_bytes().await?)?;
            let after = patched(current.clone(), patch, content_type == Some(STRATEGIC_MERGE_PATCH));
            (after.clone(), after)
        }
        (method, _) => return Err(format!("a dry run cannot answer {method} {path}; this is a bug in Skysail").into()),
    };
    let mut records = dry_runs.records();
    if !after.is_null() {
        records.written.insert(object_path.to_owned(), after.clone());
    }
    if after != current {
        let key = (records.provider.clone(), kind.to_owned(), name);
        let write = ObjectWrite { method: parts.method.to_string(), path: path.clone(), before: current, after };
        records.entry(key).writes.push(write);
    }
    drop(records);
    let response = Response::builder().status(StatusCode::OK).header(CONTENT_TYPE, "application/json");
    Ok(response.body(Body::from(serde_json::to_vec(&answer)?))?)
}

/// Kind and name of the object at this path: a node or a Service.
fn subject(path: &str) -> Option<(&'static str, String)> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["", "api", "v1", "nodes", name] => Some(("Node", (*name).to_owned())),
        ["", "api", "v1", "namespaces", namespace, "services", name] => {
            Some(("Service", format!("{namespace}/{name}")))
        }
        _ => None,
    }
}

/// Applies a merge patch (RFC 7396). A strategic merge patch merges conditions by their type; the
/// controllers send no other list in such a patch.
///
/// The guards of the patch, UID and resource version, do not count: the object is read for the
/// patch, and a manager would plan again after a conflict.
fn patched(mut object: Value, mut patch: Value, strategic: bool) -> Value {
    if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("uid");
    }
    if strategic && let Some(Value::Array(new)) = patch.pointer_mut(CONDITIONS) {
        let mut all = object.pointer(CONDITIONS).and_then(Value::as_array).cloned().unwrap_or_default();
        for condition in new.drain(..) {
            match all.iter_mut().find(|known| known.get("type") == condition.get("type")) {
                Some(known) => json_patch::merge(known, &condition),
                None => all.push(condition),
            }
        }
        *new = all;
    }
    json_patch::merge(&mut object, &patch);
    object
}
