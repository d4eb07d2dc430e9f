//! The functions of the contract: their arguments from JSON, their results to JSON.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{Value, json};
use skysail_controllers::{provider_node, provider_service, provider_volume};
use skysail_host::{Answer as _, SandboxedProvider, slot::Slot};
use skysail_provider::{
    Call, Clusters, Detail, Instance, Instances, LoadBalancerInventory, LoadBalancers, NODES_PER_PAGE, NewRoute,
    NodeLegacy, NodeSet, OwnedLoadBalancer, PersistentVolume, PersistentVolumeLabels, Provider, Result, Route, Routes,
    Service, Zones,
};

use super::identity;
use crate::args::function_names;

/// One call, ready to be made.
#[derive(Clone, Debug)]
pub(in crate::commands) enum Function {
    /// Needs no cloud-config.
    Identity(identity::Function),
    /// Needs a component that accepted its cloud-config.
    Provider(ProviderFunction),
}

/// A function of the provider with its arguments, as `--json` has them.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all_fields = "camelCase", deny_unknown_fields)]
pub(in crate::commands) enum ProviderFunction {
    #[serde(rename = "load-balancers.name")]
    Name(OfService),
    #[serde(rename = "load-balancers.get")]
    Get(OfService),
    #[serde(rename = "load-balancers.ensure")]
    Ensure(WithNodes),
    #[serde(rename = "load-balancers.update")]
    Update(WithNodes),
    #[serde(rename = "load-balancers.ensure-deleted")]
    EnsureDeleted(OfService),
    #[serde(rename = "load-balancer-inventory.list")]
    InventoryList(OfCluster),
    #[serde(rename = "load-balancer-inventory.delete")]
    InventoryDelete {
        #[serde(default = "kubernetes")]
        cluster: String,
        name: String,
        service: Option<(String, String, String)>,
    },
    #[serde(rename = "instances.describe")]
    Instances {
        #[serde(deserialize_with = "nodes")]
        nodes: NodeSet,
        #[serde(default = "metadata")]
        detail: Detail,
    },
    #[serde(rename = "routes.list")]
    RoutesList(OfCluster),
    #[serde(rename = "routes.create")]
    RoutesCreate {
        #[serde(default = "kubernetes")]
        cluster: String,
        routes: Vec<NewRoute>,
    },
    #[serde(rename = "routes.delete")]
    RoutesDelete {
        #[serde(default = "kubernetes")]
        cluster: String,
        routes: Vec<Route>,
    },
    #[serde(rename = "zones.current")]
    ZonesCurrent {},
    #[serde(rename = "zones.by-provider-id")]
    ZonesByProviderId { provider_id: String },
    #[serde(rename = "zones.by-node-name")]
    ZonesByNodeName { node: String },
    #[serde(rename = "clusters.list")]
    ClustersList {},
    #[serde(rename = "clusters.master")]
    ClustersMaster(OfCluster),
    #[serde(rename = "node-legacy.add-ssh-key-to-all-instances")]
    AddSshKey { user: String, key: String },
    #[serde(rename = "node-legacy.current-node-name")]
    CurrentNodeName { hostname: String },
    #[serde(rename = "node-legacy.scrub-dns")]
    ScrubDns { nameservers: Vec<String>, searches: Vec<String> },
    #[serde(rename = "persistent-volume-labels.labels")]
    VolumeLabels {
        #[serde(default = "kubernetes")]
        cluster: String,
        #[serde(deserialize_with = "volume")]
        volume: Box<PersistentVolume>,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::commands) struct OfCluster {
    #[serde(default = "kubernetes")]
    cluster: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::commands) struct OfService {
    #[serde(default = "kubernetes")]
    cluster: String,
    #[serde(deserialize_with = "service")]
    service: Box<Service>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::commands) struct WithNodes {
    #[serde(default = "kubernetes")]
    cluster: String,
    #[serde(deserialize_with = "service")]
    service: Box<Service>,
    #[serde(deserialize_with = "nodes")]
    nodes: NodeSet,
}

fn kubernetes() -> String {
    "kubernetes".to_owned()
}

const fn metadata() -> Detail {
    Detail::Metadata
}

/// A provider with every interface.
pub(in crate::commands) trait Callable:
    Provider
    + LoadBalancers
    + LoadBalancerInventory
    + Instances
    + Routes
    + Zones
    + Clusters
    + NodeLegacy
    + PersistentVolumeLabels
{
}

impl Callable for Slot {}
impl Callable for SandboxedProvider {}

/// Reads the arguments of a function. Does not check whether the component exports the function.
pub(in crate::commands) fn parse(function: &str, arguments: Value) -> anyhow::Result<Function> {
    if !function_names().any(|known| known == function) {
        bail!("the contract has no function {function:?}; 'skysail call --help' lists all functions");
    }
    let named = json!({ function: arguments });
    let parsed = match function.starts_with("identity.") {
        true => serde_json::from_value(named).map(Function::Identity),
        false => serde_json::from_value(named).map(Function::Provider),
    };
    parsed.with_context(|| format!("the arguments of {function} are wrong; 'skysail call --help' lists the arguments"))
}

/// Reads an argument that serde alone cannot read.
fn argument<'de, D: Deserializer<'de>, A: DeserializeOwned, T>(
    from: D,
    read: impl FnOnce(A) -> anyhow::Result<T>,
) -> std::result::Result<T, D::Error> {
    read(A::deserialize(from)?).map_err(|error| D::Error::custom(format!("{error:#}")))
}

/// An object as a recording has it; none for an object of Kubernetes, whose name is in its
/// metadata.
fn recorded<T: DeserializeOwned>(object: &Value) -> Option<anyhow::Result<T>> {
    object.get("name")?;
    Some(T::deserialize(object).context("it is neither an object of Kubernetes nor one of a recording"))
}

fn volume<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Box<PersistentVolume>, D::Error> {
    argument(from, |object: Value| {
        if let Some(volume) = recorded(&object) {
            return volume.map(Box::new).context("volume");
        }
        let object: core::PersistentVolume =
            serde_json::from_value(object).context("volume is not a Kubernetes PersistentVolume")?;
        let volume = provider_volume(&object);
        volume.map(Box::new).context("volume has no source that a cloud provider serves (csi, or a cloud's own type); the manager would call no provider for it")
    })
}

fn service<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Box<Service>, D::Error> {
    argument(from, |object: Value| service_of(object).map(Box::new))
}

/// The Service of an object as Kubernetes or a recording has it.
///
/// # Errors
/// The object is no Service, or lacks its identity.
pub(in crate::commands) fn service_of(object: Value) -> anyhow::Result<Service> {
    if let Some(service) = recorded(&object) {
        return service.context("service");
    }
    let object: core::Service = serde_json::from_value(object).context("service is not a Kubernetes Service")?;
    let ObjectMeta { name, namespace, uid, .. } = &object.metadata;
    for (field, value) in [("name", name), ("namespace", namespace), ("uid", uid)] {
        if value.as_ref().is_none_or(String::is_empty) {
            bail!("service has no metadata.{field}; give the object as `kubectl get -o json` prints it");
        }
    }
    provider_service(&object).map_err(|problems| anyhow!("service: {}", problems.join("; ")))
}

fn nodes<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<NodeSet, D::Error> {
    argument(from, nodes_of)
}

/// The nodes of objects as Kubernetes or a recording has them.
///
/// # Errors
/// An object is no Node, or has no name.
pub(in crate::commands) fn nodes_of(objects: Vec<Value>) -> anyhow::Result<NodeSet> {
    let node = |(index, object)| {
        if let Some(node) = recorded(&object) {
            return node.map(Arc::new).with_context(|| format!("nodes[{index}]"));
        }
        let object: core::Node =
            serde_json::from_value(object).with_context(|| format!("nodes[{index}] is not a Kubernetes Node"))?;
        if object.metadata.name.as_ref().is_none_or(String::is_empty) {
            bail!("nodes[{index}] has no metadata.name; give the object as `kubectl get -o json` prints it");
        }
        Ok(Arc::new(provider_node(&object)))
    };
    Ok(NodeSet::new(objects.into_iter().enumerate().map(node).collect::<anyhow::Result<Vec<_>>>()?))
}

impl ProviderFunction {
    /// Makes the call.
    pub(in crate::commands) async fn call(self, slot: &impl Callable, call: &Call) -> Result<Value> {
        Ok(match self {
            Self::Name(OfService { cluster, service }) => {
                LoadBalancers::name(slot, call, &cluster, &service).await?.json()
            }
            Self::Get(OfService { cluster, service }) => slot.get(call, &cluster, &service).await?.json(),
            Self::EnsureDeleted(OfService { cluster, service }) => {
                slot.ensure_deleted(call, &cluster, &service).await?.json()
            }
            Self::Ensure(WithNodes { cluster, service, nodes }) => {
                slot.ensure(call, &cluster, &service, &nodes).await?.json()
            }
            Self::Update(WithNodes { cluster, service, nodes }) => {
                slot.update(call, &cluster, &service, &nodes).await?.json()
            }
            Self::InventoryList(OfCluster { cluster }) => {
                LoadBalancerInventory::list(slot, call, &cluster).await?.json()
            }
            Self::InventoryDelete { cluster, name, service } => {
                let share = OwnedLoadBalancer { name, service };
                LoadBalancerInventory::delete(slot, call, &cluster, &share).await?.json()
            }
            Self::Instances { nodes, detail } => describe(slot, call, &nodes, detail).await?.json(),
            Self::RoutesList(OfCluster { cluster }) => Routes::list(slot, call, &cluster).await?.json(),
            Self::RoutesCreate { cluster, routes } => slot.create(call, &cluster, &routes).await?.json(),
            Self::RoutesDelete { cluster, routes } => Routes::delete(slot, call, &cluster, &routes).await?.json(),
            Self::ZonesCurrent {} => slot.current(call).await?.json(),
            Self::ZonesByProviderId { provider_id } => slot.by_provider_id(call, &provider_id).await?.json(),
            Self::ZonesByNodeName { node } => slot.by_node_name(call, &node).await?.json(),
            Self::ClustersList {} => Clusters::list(slot, call).await?.json(),
            Self::ClustersMaster(OfCluster { cluster }) => slot.master(call, &cluster).await?.json(),
            Self::AddSshKey { user, key } => {
                slot.add_ssh_key_to_all_instances(call, &user, key.as_bytes()).await?.json()
            }
            Self::CurrentNodeName { hostname } => slot.current_node_name(call, &hostname).await?.json(),
            Self::ScrubDns { nameservers, searches } => slot.scrub_dns(call, &nameservers, &searches).await?.json(),
            Self::VolumeLabels { cluster, volume } => slot.labels(call, &cluster, &volume).await?.json(),
        })
    }
}

/// Describes the nodes in pages of the provider's size, up to the first page that fails.
async fn describe(slot: &impl Callable, call: &Call, nodes: &NodeSet, detail: Detail) -> Result<Vec<Result<Instance>>> {
    let page_nodes = slot.info().map_or(NODES_PER_PAGE, |info| info.page_nodes);
    if nodes.len() <= page_nodes {
        return slot.describe(call, nodes, detail).await;
    }
    let mut instances = Vec::with_capacity(nodes.len());
    for page in nodes.pages(page_nodes) {
        instances.extend(slot.describe(call, &page, detail).await?);
    }
    Ok(instances)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;
    use skysail_provider::{Node, PersistentVolume, Service};
    use wit_parser::{Resolve, WorldItem};

    use super::{function_names, parse};

    /// `<interface>.<function>` of everything that a component may export.
    fn functions_of_the_contract() -> BTreeSet<String> {
        let mut resolve = Resolve::default();
        let [_, package] = ["v0.1.0", "legacy-v0.1.0"].map(|folder| {
            let folder = format!("{}/../../wit/{folder}", env!("CARGO_MANIFEST_DIR"));
            resolve.push_dir(folder).expect("the contract parses").0
        });
        let world = resolve.select_world(&[package], Some("complete-provider")).expect("the world is there");
        let interfaces = resolve.worlds[world].exports.values().filter_map(|item| match item {
            WorldItem::Interface { id, .. } => Some(&resolve.interfaces[*id]),
            _ => None,
        });
        let functions = interfaces.flat_map(|interface| {
            let name = interface.name.as_deref().unwrap_or_default();
            interface.functions.keys().map(move |function| format!("{name}.{function}"))
        });
        functions.collect()
    }

    #[test]
    fn every_function_of_the_contract_can_be_called_and_is_in_the_help_text() {
        let contract = functions_of_the_contract();
        assert_eq!(function_names().map(str::to_owned).collect::<BTreeSet<_>>(), contract);
        for function in contract {
            let error = parse(&function, json!({"no-such-argument": 1})).expect_err("the argument is unknown");
            assert!(format!("{error:#}").contains("no-such-argument"), "{function}: {error:#}");
        }
    }

    #[test]
    fn an_object_without_its_identity_is_refused() {
        let ports = json!({"ports": [{"port": 80}]});
        let without_uid = json!({"service": {"metadata": {"name": "web", "namespace": "default"}, "spec": ports}});
        let error = parse("load-balancers.name", without_uid).unwrap_err();
        assert!(format!("{error:#}").contains("service has no metadata.uid"), "{error:#}");
        let error = parse("instances.describe", json!({"nodes": [{}]})).unwrap_err();
        assert!(format!("{error:#}").contains("nodes[0] has no metadata.name"), "{error:#}");
        let local = json!({"volume": {"metadata": {"name": "a"}, "spec": {"local": {"path": "/"}}}});
        let error = parse("persistent-volume-labels.labels", local).unwrap_err();
        assert!(format!("{error:#}").contains("volume has no source that a cloud provider serves"), "{error:#}");
    }

    #[test]
    fn an_object_is_given_as_kubernetes_has_it_or_as_a_recording_has_it() {
        let node = Node { name: "node-1".to_owned(), ..Node::default() };
        let arguments = json!({"service": Service::new("shop", "web", "u-1"), "nodes": [node]});
        parse("load-balancers.ensure", arguments).unwrap();
        parse("persistent-volume-labels.labels", json!({"volume": PersistentVolume::default()})).unwrap();
        let error = parse("load-balancers.name", json!({"service": {"name": "web"}})).unwrap_err();
        let text = "service: it is neither an object of Kubernetes nor one of a recording: missing field `namespace`";
        assert!(format!("{error:#}").contains(text), "{error:#}");
    }

    #[test]
    fn the_error_about_an_unknown_function_says_how_to_list_the_functions() {
        for function in ["describe", "identity.nothing", "volumes.create"] {
            let error = parse(function, json!({})).expect_err("there is no such function");
            assert!(error.to_string().contains("skysail call --help"), "{error}");
        }
    }
}
