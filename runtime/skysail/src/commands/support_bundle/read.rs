//! What a support bundle has of a cluster and of a manager. A part that cannot be read is missing
//! in the bundle, with the reason, and the others are read.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{Node, Pod, Service},
    events::v1::Event,
};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, TypeMeta},
    client::Body,
    core::ApiResource,
};
use serde_json::{Value, json};
use skysail_controllers::names::{LOAD_BALANCER_FINALIZER, PROVIDER_KIND, SYSTEM_NAMESPACE};
use skysail_serving::options::SECURE_PORT;
use tokio::time::timeout;

use super::{archive::Bundle, redact::Redaction, services};
use crate::{
    args::ObjectPath,
    cluster::list_all,
    commands::{manager_port, run::api_resource},
    output,
};

/// Most pods whose logs are read: a manager has two or three replicas.
const PODS_MAX: usize = 20;
/// How long the logs and checks of one pod may take: the kubelet of a dead node does not answer.
const POD_WITHIN: Duration = Duration::from_mins(2);
/// How much of a container's log is read: so many of the last lines, and of these the first bytes.
/// Where the network is too slow for that, less.
const LOG_LINES: [u32; 2] = [20_000, 1_000];
const LOG_BYTES_MAX: u32 = 16 << 20;
/// Largest answer of a manager's path, in bytes. Metrics of 32 providers have a few MiB.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// The checks of a manager, which need no permission of the manager.
const CHECKS: [(&str, &str); 2] = [("livez", "/livez?verbose"), ("readyz", "/readyz?verbose")];
/// The other paths of a manager.
const STATE: [(&str, &str); 3] = [("providers", "/providers"), ("configz", "/configz"), ("metrics", "/metrics")];

/// File of the Services.
const SERVICES: &str = "services.yaml";

/// The kinds of objects about which the manager emits Events.
const KINDS: [&str; 5] = [PROVIDER_KIND, "Node", "Service", "Namespace", "Lease"];

/// The cluster to read.
pub(super) struct Cluster<'a> {
    pub(super) client: &'a Client,
    /// Namespace of the manager, and the label selector of its pods.
    pub(super) namespace: &'a str,
    pub(super) selector: &'a str,
    pub(super) redaction: &'a Redaction,
}

/// A list of objects that becomes a file.
struct List<'a> {
    file: &'static str,
    resource: ApiResource,
    /// The namespaces; none means all, or that the resource has none.
    namespaces: Vec<&'a str>,
    keep: fn(&DynamicObject, &str) -> bool,
}

impl Cluster<'_> {
    /// The version of the API server.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn version(&self) -> anyhow::Result<(String, String)> {
        let version = self.client.apiserver_version().await;
        let remedy = "the API server does not answer; check the server and the credentials in the kubeconfig";
        let version = version.map_err(said).context(remedy)?;
        Ok((output::json(&version)?, version.git_version))
    }

    /// Reads all parts, and says which one is being read; returns the Services that have or had a
    /// load balancer.
    pub(super) async fn read(&self, bundle: &mut Bundle<'_>) -> Vec<ObjectPath> {
        let mut paths = Vec::new();
        for list in self.lists() {
            output::say(&format!("reading {}", list.file));
            let objects = self.list(&list).await;
            if let (SERVICES, Ok(objects)) = (list.file, &objects) {
                paths = services::paths(objects);
            }
            bundle.add(list.file, objects.and_then(|objects| self.yaml(typed(objects, &list.resource))));
        }
        self.of_deployments(bundle).await;
        paths
    }

    /// The manager's Deployments, and the logs and checks of its pods.
    async fn of_deployments(&self, bundle: &mut Bundle<'_>) {
        output::say("reading the manager's Deployments and pods");
        let deployments = self.labelled(&ApiResource::erase::<Deployment>(&())).await;
        bundle.add("deployments.yaml", deployments.and_then(|deployments| self.yaml(deployments)));
        let mut pods = match self.labelled(&ApiResource::erase::<Pod>(&())).await {
            Ok(pods) => pods,
            Err(error) => return bundle.add("pods.yaml", Err(error)),
        };
        bundle.add("pods.yaml", self.yaml(pods.clone()));
        if pods.is_empty() {
            let Self { namespace, selector, .. } = self;
            let none = anyhow!(
                "the namespace {namespace} has no pod with the label {selector}; give --namespace, or --selector"
            );
            bundle.add("logs", Err(none));
        }
        if pods.len() > PODS_MAX {
            let left = anyhow!("of {} pods the first {PODS_MAX} are read", pods.len());
            bundle.add("logs", Err(left));
            pods.truncate(PODS_MAX);
        }
        for pod in &pods {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            output::say(&format!("reading the logs of {name}"));
            if timeout(POD_WITHIN, self.pod(name, pod, bundle)).await.is_err() {
                let late = anyhow!("the pod's node did not answer within {} s", POD_WITHIN.as_secs());
                bundle.add(&format!("logs/{name}"), Err(late));
            }
        }
    }

    fn lists(&self) -> [List<'_>; 5] {
        let all = |file, resource, keep| List { file, resource, namespaces: Vec::new(), keep };
        let mut of_leases = vec![SYSTEM_NAMESPACE, self.namespace];
        of_leases.dedup();
        [
            all("providers.yaml", api_resource(), |_, _| true),
            all("nodes.yaml", ApiResource::erase::<Node>(&()), |_, _| true),
            all(SERVICES, ApiResource::erase::<Service>(&()), has_load_balancer),
            all("events.yaml", ApiResource::erase::<Event>(&()), is_about_the_manager),
            List { namespaces: of_leases, ..all("leases.yaml", ApiResource::erase::<Lease>(&()), |_, _| true) },
        ]
    }

    async fn list(&self, list: &List<'_>) -> anyhow::Result<Vec<DynamicObject>> {
        let apis: Vec<Api<DynamicObject>> = if list.namespaces.is_empty() {
            vec![Api::all_with(self.client.clone(), &list.resource)]
        } else {
            let of = |namespace: &&str| Api::namespaced_with(self.client.clone(), namespace, &list.resource);
            list.namespaces.iter().map(of).collect()
        };
        let mut objects = Vec::new();
        for api in &apis {
            let listed = list_all(api).await.map_err(said)?;
            objects.extend(listed.into_iter().filter(|object| (list.keep)(object, self.namespace)));
        }
        Ok(objects)
    }

    /// The objects of the manager's namespace with its label.
    async fn labelled(&self, resource: &ApiResource) -> anyhow::Result<Vec<DynamicObject>> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), self.namespace, resource);
        let params = ListParams::default().labels(self.selector);
        Ok(typed(api.list(&params).await.map_err(said)?.items, resource))
    }

    /// The objects as a list that kubectl reads, and their number.
    fn yaml(&self, objects: Vec<DynamicObject>) -> anyhow::Result<(String, String)> {
        let number = objects.len();
        let mut items = objects.into_iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        items.iter_mut().for_each(|item| self.redaction.object(item));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        Ok((output::yaml(&list)?, format!("objects: {number}")))
    }

    /// The logs and the checks of a pod.
    async fn pod(&self, name: &str, pod: &DynamicObject, bundle: &mut Bundle<'_>) {
        let pods = format!("/api/v1/namespaces/{}/pods", self.namespace);
        let statuses = pod.data.pointer("/status/containerStatuses").and_then(Value::as_array);
        for status in statuses.into_iter().flatten() {
            let container = status.get("name").and_then(Value::as_str).unwrap_or_default();
            let path = format!("{pods}/{name}/log?container={container}");
            bundle.add(&format!("logs/{name}_{container}.log"), self.log(&path).await);
            if status.get("restartCount").and_then(Value::as_u64).is_some_and(|restarts| restarts > 0) {
                let text = self.log(&format!("{path}&previous=true")).await;
                bundle.add(&format!("logs/{name}_{container}.previous.log"), text);
            }
        }
        let port = port_of(pod);
        for (check, query) in CHECKS {
            let text = self.text(&format!("{pods}/https:{name}:{port}/proxy{query}")).await;
            bundle.add(&format!("health/{name}_{check}.txt"), text);
        }
    }

    async fn log(&self, path: &str) -> anyhow::Result<(String, String)> {
        let [most, less] =
            LOG_LINES.map(|lines| format!("{path}&timestamps=true&tailLines={lines}&limitBytes={LOG_BYTES_MAX}"));
        match self.text(&most).await {
            // No whole answer in time. A refusal would be the same for fewer lines.
            Err(error) if error.downcast_ref::<kube::Error>().is_some() => self.text(&less).await,
            result => result,
        }
    }

    async fn text(&self, path: &str) -> anyhow::Result<(String, String)> {
        let request = Request::get(path).body(Body::empty()).context("the name of the pod is not valid in a URL")?;
        let answer = self.client.send(request).await?;
        let status = answer.status();
        text_of(self.redaction, status, &answer.into_body().collect().await?.to_bytes())
    }
}

/// What the API server said. The text of kube's error has the whole answer.
fn said(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{}: {}", status.code, output::plain(&status.message)),
        error => error.into(),
    }
}

/// Reads what the manager says about itself.
pub(super) async fn of_manager(client: &Client, server: &str, redaction: &Redaction, bundle: &mut Bundle<'_>) {
    for (name, path) in CHECKS.into_iter().chain(STATE) {
        output::say(&format!("reading {server}{path}"));
        let answer = manager_port::get(client, server, path, ANSWER_BYTES_MAX).await;
        let text = answer.and_then(|(status, body)| text_of(redaction, status, &body));
        bundle.add(&format!("manager/{name}.txt"), text);
    }
}

/// An answer as text, without secrets, and its length. A failed check is an answer, and every other
/// error is none.
fn text_of(redaction: &Redaction, status: StatusCode, body: &Bytes) -> anyhow::Result<(String, String)> {
    match manager_port::message_of(body) {
        Some(why) if !status.is_success() => Err(anyhow!("{status}: {why}")),
        _ if status.is_success() || status == StatusCode::INTERNAL_SERVER_ERROR => {
            let text = redaction.text(&String::from_utf8_lossy(body));
            let lines = text.lines().count();
            Ok((text, format!("lines: {lines}")))
        }
        _ => Err(anyhow!("{status}")),
    }
}

/// The objects with their kind, which the API server leaves out in a list.
fn typed(mut objects: Vec<DynamicObject>, resource: &ApiResource) -> Vec<DynamicObject> {
    for object in &mut objects {
        object.types = Some(TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() });
    }
    objects
}

/// The port `https` of a container of this pod, or else the default of `--secure-port`.
fn port_of(pod: &DynamicObject) -> u64 {
    let of = |value: &Value, field: &str| value.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let containers = pod.data.get("spec").map(|spec| of(spec, "containers")).unwrap_or_default();
    let mut ports = containers.iter().flat_map(|container| of(container, "ports"));
    let named = ports.find(|port| port.get("name").is_some_and(|name| name == "https"));
    named.and_then(|port| port.get("containerPort")?.as_u64()).unwrap_or(SECURE_PORT.into())
}

/// Whether the cloud has, or should have, a load balancer for this Service.
fn has_load_balancer(service: &DynamicObject, _namespace: &str) -> bool {
    service.data.pointer("/spec/type").is_some_and(|kind| kind == "LoadBalancer")
        || service.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == LOAD_BALANCER_FINALIZER)
}

/// Whether an Event is about objects that the manager serves, or about the manager's own pods.
fn is_about_the_manager(event: &DynamicObject, namespace: &str) -> bool {
    let kind = event.data.pointer("/regarding/kind").and_then(Value::as_str);
    kind.is_some_and(|kind| KINDS.contains(&kind)) || event.metadata.namespace.as_deref() == Some(namespace)
}
