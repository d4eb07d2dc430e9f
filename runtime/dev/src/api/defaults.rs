//! The fields that the API server sets, keeps and resets when an object is written. Services are in
//! `defaults/services.rs`.

pub(crate) mod services;

use serde_json::{Map, Value, json};

use super::kinds::Kind;
use super::object;

/// Defaults and resets of a new object.
pub(crate) fn on_create(kind: &Kind, new: &mut Value, taint_new_nodes: bool) {
    if kind.custom.is_some() {
        if kind.status {
            object::remove(new, "/status");
        }
        return;
    }
    match &*kind.storage {
        "services" => {
            object::set(new, "/status", json!({"loadBalancer": {}}));
            services::apply_defaults(new);
        }
        "nodes" if taint_new_nodes => taint_not_ready(new),
        "namespaces" => {
            object::set(new, "/spec/finalizers", json!(["kubernetes"]));
            object::set(new, "/status", json!({"phase": "Active"}));
        }
        "pods" => object::set(new, "/status", json!({"phase": "Pending", "qosClass": "BestEffort"})),
        "deployments" => object::set(new, "/status", json!({})),
        "customresourcedefinitions" => {
            object::remove(new, "/status");
        }
        _ => {}
    }
    every_write(kind, new);
}

/// Fields kept from the stored object, and defaults.
pub(crate) fn on_update(kind: &Kind, subresource: &str, old: &Value, new: &mut Value) {
    if subresource == "status" {
        only_status(kind, old, new);
    } else if kind.status {
        object::copy(old, new, "/status");
    }
    if kind.custom.is_some() {
        return;
    }
    match &*kind.storage {
        "services" if subresource.is_empty() => services::carry_over(old, new),
        "services" => services::status_defaults(new),
        "namespaces" => object::copy(old, new, "/spec/finalizers"),
        "events" => super::events::complete(new),
        _ => {}
    }
    every_write(kind, new);
}

/// A write to `status` changes the status and the metadata that the kind's strategy permits.
fn only_status(kind: &Kind, old: &Value, new: &mut Value) {
    let mut merged = old.clone();
    object::copy(new, &mut merged, "/status");
    if kind.custom.is_none() {
        // Services and Nodes also accept other metadata, such as finalizers.
        object::copy(new, &mut merged, "/metadata");
    } else {
        object::copy(new, &mut merged, "/metadata/managedFields");
    }
    *new = merged;
}

fn every_write(kind: &Kind, new: &mut Value) {
    match &*kind.storage {
        "nodes" => {
            object::set_default(new, "/spec", Value::Object(Map::new()));
            object::set_default(new, "/status/daemonEndpoints/kubeletEndpoint/Port", 0);
            for field in NODE_INFO {
                object::set_default(new, &format!("/status/nodeInfo/{field}"), "");
            }
        }
        "secrets" => {
            object::set_default(new, "/type", "Opaque");
            fold_string_data(new);
        }
        "namespaces" => {
            let name = object::name(new).to_owned();
            let labels = object::remove(new, "/metadata/labels").unwrap_or(Value::Null);
            let mut labels = labels.as_object().cloned().unwrap_or_default();
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
            object::set(new, "/metadata/labels", Value::Object(labels));
        }
        "leases" => object::set_default(new, "/spec", Value::Object(Map::new())),
        "deployments" => deployment(new),
        "pods" => pod_spec(new, "/spec"),
        "customresourcedefinitions" => definition(new),
        "clusterrolebindings" | "rolebindings" => {
            object::set_default(new, "/roleRef/apiGroup", "rbac.authorization.k8s.io");
        }
        "clusterroles" | "roles" if new.get("rules").is_none() => object::set(new, "/rules", Value::Null),
        _ => {}
    }
}

const NODE_INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

/// The admission plugin `TaintNodesByCondition`: a new node has the taint until the node controller
/// removes it.
fn taint_not_ready(new: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let mut taints = object::list(new, "/spec/taints").to_vec();
    if !taints.contains(&taint) {
        taints.push(taint);
        object::set(new, "/spec/taints", taints);
    }
}

/// `stringData` is written as plain text and stored as `data`.
fn fold_string_data(new: &mut Value) {
    use base64::Engine as _;
    let Some(Value::Object(plain)) = object::remove(new, "/stringData") else { return };
    for (key, value) in plain {
        let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        let mut data = new.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
        data.insert(key, encoded.into());
        object::set(new, "/data", Value::Object(data));
    }
}

fn deployment(new: &mut Value) {
    for (path, value) in [
        ("/spec/replicas", json!(1)),
        ("/spec/revisionHistoryLimit", json!(10)),
        ("/spec/progressDeadlineSeconds", json!(600)),
        ("/spec/strategy/type", json!("RollingUpdate")),
    ] {
        object::set_default(new, path, value);
    }
    if object::text(new, "/spec/strategy/type") == "RollingUpdate" {
        object::set_default(new, "/spec/strategy/rollingUpdate/maxSurge", "25%");
        object::set_default(new, "/spec/strategy/rollingUpdate/maxUnavailable", "25%");
    }
    pod_spec(new, "/spec/template/spec");
}

fn pod_spec(new: &mut Value, at: &str) {
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
    ] {
        object::set_default(new, &format!("{at}/{field}"), value);
    }
    let account = object::text(new, &format!("{at}/serviceAccountName")).to_owned();
    if !account.is_empty() {
        object::set_default(new, &format!("{at}/serviceAccount"), account);
    }
    let containers = new.pointer_mut(&format!("{at}/containers")).and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        let image = object::text(container, "/image");
        let latest = image.ends_with(":latest") || !image.rsplit('/').next().unwrap_or_default().contains([':', '@']);
        let policy = if latest { "Always" } else { "IfNotPresent" };
        object::set_default(container, "/imagePullPolicy", policy);
        object::set_default(container, "/terminationMessagePath", "/dev/termination-log");
        object::set_default(container, "/terminationMessagePolicy", "File");
        object::set_default(container, "/resources", json!({}));
        for port in container.pointer_mut("/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            object::set_default(port, "/protocol", "TCP");
        }
    }
}

fn definition(new: &mut Value) {
    let kind = object::text(new, "/spec/names/kind").to_owned();
    object::set_default(new, "/spec/names/singular", kind.to_lowercase());
    object::set_default(new, "/spec/names/listKind", format!("{kind}List"));
    object::set_default(new, "/spec/conversion/strategy", "None");
}
