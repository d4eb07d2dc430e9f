//! The cells of each built-in kind.

use serde_json::{Value, json};

use super::{Column, age_of, human};
use crate::api::clock::Clock;
use crate::api::object::{self, has, list, text};

/// The columns after the name; an Event's name comes last.
pub(super) fn columns(storage: &str) -> &'static [Column] {
    match storage {
        "services" => &[
            ("Type", false),
            ("Cluster-IP", false),
            ("External-IP", false),
            ("Port(s)", false),
            ("Age", false),
            ("Selector", true),
        ],
        "nodes" => &[
            ("Status", false),
            ("Roles", false),
            ("Age", false),
            ("Version", false),
            ("Internal-IP", true),
            ("External-IP", true),
            ("OS-Image", true),
            ("Kernel-Version", true),
            ("Container-Runtime", true),
        ],
        "pods" => &[
            ("Ready", false),
            ("Status", false),
            ("Restarts", false),
            ("Age", false),
            ("IP", true),
            ("Node", true),
            ("Nominated Node", true),
            ("Readiness Gates", true),
        ],
        "configmaps" => &[("Data", false), ("Age", false)],
        "secrets" => &[("Type", false), ("Data", false), ("Age", false)],
        "namespaces" => &[("Status", false), ("Age", false)],
        "events" => &[
            ("Last Seen", false),
            ("Type", false),
            ("Reason", false),
            ("Object", false),
            ("Subobject", true),
            ("Source", true),
            ("Message", false),
            ("First Seen", true),
            ("Count", true),
            ("Name", true),
        ],
        "leases" => &[("Holder", false), ("Age", false)],
        "endpoints" => &[("Endpoints", false), ("Age", false)],
        "endpointslices" => &[("AddressType", false), ("Ports", false), ("Endpoints", false), ("Age", false)],
        "deployments" => &[
            ("Ready", false),
            ("Up-to-date", false),
            ("Available", false),
            ("Age", false),
            ("Containers", true),
            ("Images", true),
            ("Selector", true),
        ],
        "clusterrolebindings" | "rolebindings" => {
            &[("Role", false), ("Age", false), ("Users", true), ("Groups", true), ("ServiceAccounts", true)]
        }
        "clusterroles" | "roles" | "customresourcedefinitions" => &[("Created At", false)],
        _ => &[("Age", false)],
    }
}

/// The cells of one object, its name included.
pub(super) fn of(storage: &str, object: &Value, clock: &Clock) -> Vec<Value> {
    let name = Value::from(object::name(object));
    let age = age_of(object, clock);
    match storage {
        "services" => service(object, name, age),
        "nodes" => node(object, name, age),
        "pods" => pod(object, name, age),
        "configmaps" => vec![name, json!(size(object, "/data") + size(object, "/binaryData")), age],
        "secrets" => vec![name, text(object, "/type").into(), json!(size(object, "/data")), age],
        "namespaces" => vec![name, text(object, "/status/phase").into(), age],
        "events" => event(object, clock),
        "leases" => vec![name, text(object, "/spec/holderIdentity").into(), age],
        "endpoints" => vec![name, endpoints(object), age],
        "endpointslices" => {
            vec![name, text(object, "/addressType").into(), slice_ports(object), slice_addresses(object), age]
        }
        "deployments" => deployment(object, name, age),
        "clusterrolebindings" | "rolebindings" => binding(object, name, age),
        "clusterroles" | "roles" | "customresourcedefinitions" => {
            vec![name, text(object, "/metadata/creationTimestamp").into()]
        }
        _ => vec![name, age],
    }
}

fn size(object: &Value, path: &str) -> usize {
    object.pointer(path).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

fn or_none(text: String) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

fn labels(object: &Value, path: &str) -> Value {
    let pairs = object.pointer(path).and_then(Value::as_object).into_iter().flatten();
    or_none(pairs.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect::<Vec<_>>().join(","))
}

fn texts(object: &Value, path: &str) -> Vec<String> {
    list(object, path).iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

fn service(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let ports: Vec<String> = list(object, "/spec/ports")
        .iter()
        .map(|p| {
            let (port, protocol) = (p.get("port").cloned().unwrap_or_default(), text(p, "/protocol"));
            match p.get("nodePort").and_then(Value::as_i64).filter(|n| *n > 0) {
                Some(node_port) => format!("{port}:{node_port}/{protocol}"),
                None => format!("{port}/{protocol}"),
            }
        })
        .collect();
    let cluster_ip = text(object, "/spec/clusterIP").to_owned();
    vec![
        name,
        text(object, "/spec/type").into(),
        or_none(cluster_ip),
        external_ip(object),
        or_none(ports.join(",")),
        age,
        labels(object, "/spec/selector"),
    ]
}

fn external_ip(object: &Value) -> Value {
    let external = texts(object, "/spec/externalIPs");
    match text(object, "/spec/type") {
        "LoadBalancer" => {
            let ingress = list(object, "/status/loadBalancer/ingress")
                .iter()
                .map(|i| if has(i, "/ip") { text(i, "/ip").to_owned() } else { text(i, "/hostname").to_owned() });
            let mut all: Vec<String> = ingress.chain(external).collect();
            all.dedup();
            if all.is_empty() { "<pending>".into() } else { all.join(",").into() }
        }
        "ExternalName" => text(object, "/spec/externalName").into(),
        _ => or_none(external.join(",")),
    }
}

fn node(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let ready = list(object, "/status/conditions").iter().find(|c| text(c, "/type") == "Ready");
    let mut status = match ready.map(|c| text(c, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<String> = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => Some(role.to_owned()),
            _ if key == "kubernetes.io/role" => value.as_str().filter(|v| !v.is_empty()).map(str::to_owned),
            _ => None,
        })
        .collect();
    roles.sort();
    let address = |wanted: &str| {
        let found = list(object, "/status/addresses").iter().find(|a| text(a, "/type") == wanted);
        or_none(found.map(|a| text(a, "/address").to_owned()).unwrap_or_default())
    };
    let info = |field: &str| match text(object, &format!("/status/nodeInfo/{field}")) {
        "" => Value::from("<unknown>"),
        found => found.into(),
    };
    vec![
        name,
        status.into(),
        or_none(roles.join(",")),
        age,
        text(object, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn pod(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let statuses = list(object, "/status/containerStatuses");
    let ready = statuses.iter().filter(|s| s.get("ready") == Some(&Value::Bool(true))).count();
    let restarts: i64 = statuses.iter().filter_map(|s| s.get("restartCount")?.as_i64()).sum();
    let phase = if object::is_deleting(object) { "Terminating" } else { text(object, "/status/phase") };
    vec![
        name,
        format!("{ready}/{}", list(object, "/spec/containers").len()).into(),
        phase.into(),
        restarts.to_string().into(),
        age,
        or_none(text(object, "/status/podIP").to_owned()),
        or_none(text(object, "/spec/nodeName").to_owned()),
        or_none(text(object, "/status/nominatedNodeName").to_owned()),
        "<none>".into(),
    ]
}

/// Both views of an Event print the same cells; `object` may have either form.
fn event(object: &Value, clock: &Clock) -> Vec<Value> {
    let either = |old: &str, new: &str| {
        let found = text(object, old);
        if found.is_empty() { text(object, new).to_owned() } else { found.to_owned() }
    };
    let since = |times: [String; 2]| {
        let time = times.into_iter().find(|t| !t.is_empty()).unwrap_or_default();
        clock.age(&time).map_or(Value::from("<unknown>"), human)
    };
    let event_time = text(object, "/eventTime").to_owned();
    let first = since([either("/firstTimestamp", "/deprecatedFirstTimestamp"), event_time.clone()]);
    let last = match text(object, "/series/lastObservedTime") {
        "" => since([either("/lastTimestamp", "/deprecatedLastTimestamp"), event_time]),
        time => since([time.to_owned(), String::new()]),
    };
    let kind = either("/involvedObject/kind", "/regarding/kind").to_lowercase();
    let involved = either("/involvedObject/name", "/regarding/name");
    let target = if involved.is_empty() { kind } else { format!("{kind}/{involved}") };
    let component = either("/source/component", "/deprecatedSource/component");
    let host = either("/source/host", "/deprecatedSource/host");
    let reporter = either("/reportingComponent", "/reportingController");
    let source = match (component.is_empty(), host.is_empty()) {
        (true, _) => reporter,
        (false, true) => component,
        (false, false) => format!("{component}, {host}"),
    };
    let count = ["/series/count", "/count", "/deprecatedCount"]
        .iter()
        .find_map(|path| object.pointer(path).and_then(Value::as_i64))
        .unwrap_or(1);
    vec![
        last,
        text(object, "/type").into(),
        text(object, "/reason").into(),
        target.into(),
        either("/involvedObject/fieldPath", "/regarding/fieldPath").into(),
        source.into(),
        either("/message", "/note").trim().into(),
        first,
        count.max(1).into(),
        object::name(object).into(),
    ]
}

fn endpoints(object: &Value) -> Value {
    let all: Vec<String> = list(object, "/subsets")
        .iter()
        .flat_map(|s| {
            list(s, "/addresses").iter().flat_map(move |a| {
                let ip = text(a, "/ip");
                list(s, "/ports").iter().map(move |p| format!("{ip}:{}", p.get("port").cloned().unwrap_or_default()))
            })
        })
        .collect();
    or_none(shortened(&all))
}

fn shortened(all: &[String]) -> String {
    let shown: Vec<&str> = all.iter().take(3).map(String::as_str).collect();
    match all.len().saturating_sub(3) {
        0 => shown.join(","),
        more => format!("{} + {more} more...", shown.join(",")),
    }
}

fn slice_ports(object: &Value) -> Value {
    let ports: Vec<String> =
        list(object, "/ports").iter().filter_map(|p| p.get("port").map(ToString::to_string)).collect();
    if ports.is_empty() { "<unset>".into() } else { shortened(&ports).into() }
}

fn slice_addresses(object: &Value) -> Value {
    let all: Vec<String> = list(object, "/endpoints").iter().flat_map(|e| texts(e, "/addresses")).collect();
    if all.is_empty() { "<unset>".into() } else { shortened(&all).into() }
}

fn deployment(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or_default();
    let containers = |field: &str| {
        let all = list(object, "/spec/template/spec/containers").iter();
        all.map(|c| text(c, &format!("/{field}")).to_owned()).collect::<Vec<_>>().join(",")
    };
    vec![
        name,
        format!("{}/{}", number("/status/readyReplicas"), number("/spec/replicas")).into(),
        number("/status/updatedReplicas").into(),
        number("/status/availableReplicas").into(),
        age,
        containers("name").into(),
        containers("image").into(),
        labels(object, "/spec/selector/matchLabels"),
    ]
}

fn binding(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let of_kind = |wanted: &str| -> Value {
        let subjects = list(object, "/subjects").iter().filter(|s| text(s, "/kind") == wanted);
        let names = subjects.map(|s| match text(s, "/namespace") {
            "" => text(s, "/name").to_owned(),
            namespace => format!("{namespace}/{}", text(s, "/name")),
        });
        names.collect::<Vec<_>>().join(", ").into()
    };
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    vec![name, role.into(), age, of_kind("User"), of_kind("Group"), of_kind("ServiceAccount")]
}
