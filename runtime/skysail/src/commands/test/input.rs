//! What the author says about the cloud: its machines, and a Service that it accepts.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::{Value, json};
use skysail_host::slot::Offer;
use skysail_provider::{IpFamily, IpFamilyPolicy, Node, NodeSet, Protocol, Service, ServicePort};

use crate::{
    args::TestArgs,
    commands::call::{
        component,
        functions::{nodes_of, service_of},
    },
    provider_file::{ComponentSource, ProviderSpec},
    text_file,
};

/// The first node port of a port that has none.
const NODE_PORT: u16 = 30_080;

/// The component that the command line or the provider file names.
///
/// # Errors
/// The file cannot be read, or the provider file names no file.
pub(super) fn offer(named: Option<&Path>, spec: Option<&ProviderSpec>, bytes_max: u64) -> anyhow::Result<Offer> {
    let source = spec.map(|spec| (&spec.name, &spec.source));
    match (named, source) {
        (Some(file), _) => component(file, bytes_max),
        (None, Some((_, ComponentSource::File(file)))) => component(file, bytes_max),
        (None, Some((name, ComponentSource::Oci(_)))) => bail!(
            "the component of the provider {name:?} is in a registry; pull it with `skysail pull`, and name the file as COMPONENT"
        ),
        (None, Some((name, ComponentSource::ConfigMap(_)))) => bail!(
            "the component of the provider {name:?} is in a ConfigMap; save it as a file, and name the file as COMPONENT"
        ),
        (None, Some((_, ComponentSource::None)) | None) => {
            bail!("no component is named; name its file as COMPONENT, or in `spec.source.file` of the provider file")
        }
    }
}

/// The nodes of the machines.
///
/// # Errors
/// The file cannot be read, is no list of Nodes, or no machine is named.
pub(super) fn nodes(args: &TestArgs) -> anyhow::Result<NodeSet> {
    let nodes = match &args.nodes {
        Some(file) => {
            let text = text_file::read("--nodes", file, "the output of `kubectl get nodes -o yaml`")?;
            read_nodes(&text).with_context(|| format!("--nodes: {}", file.display()))?
        }
        None => {
            let node = |(name, id): &(String, String)| Node {
                name: name.clone(),
                uid: format!("uid-of-{name}"),
                provider_id: Some(id.clone()),
                ready: true,
                ..Node::default()
            };
            NodeSet::new(args.node.iter().map(|given| node(given).into()))
        }
    };
    ensure!(
        !nodes.is_empty(),
        "no machine is named; give machines that exist in the cloud with --node NAME=PROVIDER-ID, or a file with --nodes"
    );
    for node in nodes.as_slice() {
        ensure!(
            node.provider_id.is_some(),
            "--nodes: the node {:?} has no spec.providerID; add it, or leave the node out",
            node.name
        );
    }
    Ok(nodes)
}

fn read_nodes(text: &str) -> anyhow::Result<NodeSet> {
    let document: Value =
        serde_saphyr::from_str(text).context("it is neither JSON nor YAML; save `kubectl get nodes -o yaml`")?;
    let objects = match document {
        Value::Array(objects) => objects,
        Value::Object(mut list) if list.contains_key("items") => match list.remove("items") {
            Some(Value::Array(objects)) => objects,
            _ => bail!("its `items` is not a list; save `kubectl get nodes -o yaml`"),
        },
        node @ Value::Object(_) => vec![node],
        _ => bail!("it is no list of Nodes; save `kubectl get nodes -o yaml`"),
    };
    if let Some(kind) = objects.iter().filter_map(|object| object["kind"].as_str()).find(|kind| *kind != "Node") {
        bail!("it has a {kind}, and Nodes are needed; save `kubectl get nodes -o yaml`");
    }
    nodes_of(objects)
}

/// The Service that those of the cases are copies of.
///
/// # Errors
/// The file cannot be read, or is no Service of type `LoadBalancer`.
pub(super) fn service(file: Option<&Path>) -> anyhow::Result<Service> {
    let service = match file {
        Some(file) => {
            let text = text_file::read("--service", file, "a Service of type LoadBalancer")?;
            read_service(&text).with_context(|| format!("--service: {}", file.display()))?
        }
        None => {
            Service { ports: vec![port("http", 80), port("https", 443)], ..Service::new("skysail-test", "web", "") }
        }
    };
    Ok(as_the_api_server_completes(service))
}

fn port(name: &str, port: u16) -> ServicePort {
    ServicePort {
        name: name.to_owned(),
        protocol: Protocol::Tcp,
        app_protocol: None,
        port,
        node_port: 0,
        target_port: "8080".to_owned(),
    }
}

fn read_service(text: &str) -> anyhow::Result<Service> {
    const REMEDY: &str = "write a Service of type LoadBalancer, or save one with `kubectl get service NAME -o yaml`";
    let mut object: Value =
        serde_saphyr::from_str(text).map_err(|error| anyhow!("it is no YAML: {error}; {REMEDY}"))?;
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("document without a kind");
    let is_service = kind == "Service" && text("/apiVersion") == Some("v1");
    ensure!(is_service, "it is a {kind} and no Service of v1; {REMEDY}");
    let of_type = text("/spec/type").unwrap_or("ClusterIP");
    ensure!(of_type == "LoadBalancer", "it is a Service of type {of_type}; {REMEDY}");
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("namespace").or_insert_with(|| json!("skysail-test"));
        // Each case has a UID of its own.
        metadata.insert("uid".to_owned(), json!("none"));
    }
    let service = service_of(object)?;
    ensure!(!service.ports.is_empty(), "the Service has no port; write at least one into spec.ports");
    Ok(service)
}

/// Sets what each Service of a cluster has.
fn as_the_api_server_completes(mut service: Service) -> Service {
    if service.ip_families.is_empty() {
        service.ip_families = vec![IpFamily::Ipv4];
    }
    service.ip_family_policy.get_or_insert(IpFamilyPolicy::SingleStack);
    if service.allocate_node_ports {
        let unset = service.ports.iter_mut().filter(|port| port.node_port == 0);
        for (port, number) in unset.zip(NODE_PORT..) {
            port.node_port = number;
        }
    }
    service.status = skysail_provider::LoadBalancerStatus::default();
    service
}

#[cfg(test)]
mod tests {
    use super::{as_the_api_server_completes, read_nodes, read_service, service};

    fn refused<T: std::fmt::Debug>(read: anyhow::Result<T>) -> String {
        format!("{:#}", read.unwrap_err())
    }

    #[test]
    fn nodes_are_a_list_of_kubectl_an_array_or_one_node() {
        let node = "{apiVersion: v1, kind: Node, metadata: {name: a}, spec: {providerID: 'x://1'}}";
        for text in [node.to_owned(), format!("[{node}]"), format!("kind: List\nitems:\n- {node}\n")] {
            let nodes = read_nodes(&text).unwrap();
            assert_eq!(nodes.as_slice()[0].provider_id.as_deref(), Some("x://1"), "{text}");
        }
        assert!(
            refused(read_nodes("[{kind: Pod, metadata: {name: a}}]")).contains("it has a Pod, and Nodes are needed")
        );
        assert!(refused(read_nodes("17")).contains("it is no list of Nodes"));
        assert!(refused(read_nodes("a: [")).contains("it is neither JSON nor YAML"));
    }

    #[test]
    fn a_service_file_gives_annotations_and_ports_and_what_is_no_service_is_refused() {
        let text = |kind: &str, of_type: &str| {
            format!(
                "apiVersion: v1\nkind: {kind}\nmetadata: {{name: web, annotations: {{a: b}}}}\n\
                 spec: {{type: {of_type}, ports: [{{port: 80}}, {{port: 81, nodePort: 31000}}]}}\n"
            )
        };
        let service = as_the_api_server_completes(read_service(&text("Service", "LoadBalancer")).unwrap());
        assert_eq!((service.namespace.as_str(), service.annotations["a"].as_str()), ("skysail-test", "b"));
        assert_eq!(service.ports.iter().map(|port| port.node_port).collect::<Vec<_>>(), [30_080, 31_000]);
        let no_service = refused(read_service(&text("Pod", "LoadBalancer")));
        assert!(no_service.starts_with("it is a Pod and no Service of v1; write a Service"), "{no_service}");
        assert!(refused(read_service(&text("Service", "ClusterIP"))).starts_with("it is a Service of type ClusterIP"));
        assert!(refused(read_service("[1, 2]")).starts_with("it is a document without a kind"));
        assert!(refused(read_service("a: [")).starts_with("it is no YAML"));
        let ports = text("Service", "LoadBalancer").replace("[{port: 80}, {port: 81, nodePort: 31000}]", "[]");
        assert!(refused(read_service(&ports)).contains("has no port"));
    }

    #[test]
    fn the_default_service_is_complete() {
        let service = service(None).unwrap();
        assert_eq!(service.ports.iter().map(|port| port.node_port).collect::<Vec<_>>(), [30_080, 30_081]);
        assert_eq!(service.ip_families.len(), 1);
    }
}
