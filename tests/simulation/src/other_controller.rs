//! A foreign controller that writes an object just before a patch of our processes arrives, so that
//! the process has read an older version.

use std::sync::Arc;

use futures::FutureExt as _;
use http::{
    Request,
    header::{CONTENT_TYPE, USER_AGENT},
};
use serde_json::{Value, json};
use skysail_dev::api::{ApiServer, RequestInfo};
use tower::ServiceExt as _;

use crate::{
    Referee,
    client::PEOPLE,
    operations::{MARK, OTHERS_FINALIZER, OTHERS_MARK, OTHERS_TAINT},
    referee::text,
    story::Story,
};

/// Annotation of an object that differs with each write.
const WRITTEN: &str = "example.com/written";

/// See the module.
pub(crate) struct OtherController {
    server: Arc<ApiServer>,
    referee: Arc<Referee>,
    story: Story,
}

impl OtherController {
    pub(crate) fn new(server: Arc<ApiServer>, referee: Arc<Referee>, story: Story) -> Self {
        Self { server, referee, story }
    }

    /// Whether the controller writes before this request: a patch of a Service, of which our
    /// processes write the finalizer together with the status, or of a node without its status.
    pub(crate) fn is_interested_in(request: &RequestInfo) -> bool {
        let RequestInfo { verb, resource, subresource, .. } = request;
        *verb == "patch" && (resource == "services" || resource == "nodes" && subresource.is_empty())
    }

    /// Adds a finalizer to the Service or a taint to the node, which both have to stay. An object
    /// that has it already, or that is being deleted, stays as it is.
    pub(crate) fn marks(&self, request: &RequestInfo) {
        let Some((path, object)) = self.object_of(request) else { return };
        if !text(&object, OTHERS_MARK).is_empty() || object.pointer("/metadata/deletionTimestamp").is_some() {
            return;
        }
        let with = |pointer: &str, one: Value| {
            let list = object.pointer(pointer).and_then(Value::as_array);
            list.into_iter().flatten().cloned().chain([one]).collect::<Value>()
        };
        let patch = if request.resource == "services" {
            let finalizers = with("/metadata/finalizers", json!(OTHERS_FINALIZER));
            json!({ "metadata": { "labels": { MARK: "yes" }, "finalizers": finalizers } })
        } else {
            let taint = json!({ "key": OTHERS_TAINT, "value": "x", "effect": "NoSchedule" });
            json!({ "metadata": { "labels": { MARK: "yes" } }, "spec": { "taints": with("/spec/taints", taint) } })
        };
        self.patch(request, &path, &patch);
    }

    /// Changes an annotation of the object.
    pub(crate) fn writes(&self, request: &RequestInfo) {
        let Some((path, object)) = self.object_of(request) else { return };
        let version = text(&object, "/metadata/resourceVersion");
        self.patch(request, &path, &json!({ "metadata": { "annotations": { WRITTEN: version } } }));
    }

    fn object_of(&self, request: &RequestInfo) -> Option<(String, Value)> {
        let RequestInfo { resource, namespace, name, .. } = request;
        let path = match namespace.as_str() {
            "" => format!("/api/v1/{resource}/{name}"),
            namespace => format!("/api/v1/namespaces/{namespace}/{resource}/{name}"),
        };
        let object = self.referee.object(&path)?;
        Some((path, object))
    }

    fn patch(&self, request: &RequestInfo, path: &str, patch: &Value) {
        let RequestInfo { resource, name, user_agent, .. } = request;
        self.story.tell("other", format_args!("writes {resource} {name} just before {user_agent}: {patch}"));
        let request = Request::patch(path)
            .header(USER_AGENT, PEOPLE)
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(patch.to_string())
            .expect("the path is valid");
        let answer = self.server.service().oneshot(request).now_or_never();
        let answer = answer.expect("the in-memory API answers without waiting").expect("the in-memory API answers");
        assert!(answer.status().is_success(), "the object exists, and the patch is valid: {answer:?}");
    }
}
